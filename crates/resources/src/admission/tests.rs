use std::net::Ipv4Addr;

use futures::FutureExt as _;

use super::*;

fn admission(running: usize, queued: usize) -> Admission {
    Admission::new(AdmissionLimits {
        running,
        queued,
        wait: Duration::from_secs(10),
    })
}

fn client(number: u8) -> ClientId {
    ClientId::Address(Ipv4Addr::new(10, 0, 0, number).into())
}

/// A queued query.
fn waiting(
    admission: &Admission,
    client: ClientId,
) -> std::pin::Pin<Box<dyn Future<Output = Result<Permit, AdmissionError>> + Send>> {
    let admission = admission.clone();
    let mut admitted = async move { admission.admit(client).await }.boxed();
    assert!(admitted.as_mut().now_or_never().is_none(), "it waits");
    admitted
}

#[tokio::test(start_paused = true)]
async fn rejects_queries_beyond_the_queue() {
    let admission = admission(1, 1);
    let permit = admission.admit(client(1)).await.unwrap();
    let second = waiting(&admission, client(1));
    let error = admission.admit(client(1)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 queries run (--max-concurrent-queries) and 1 wait (--max-queued-queries); retry later"
    );
    drop(permit);
    let permit = second.await.unwrap();
    assert_eq!((admission.usage().running, admission.usage().queued), (1, 0));
    let error = admission.admit(client(1)).await.unwrap_err();
    assert!(
        matches!(error, AdmissionError::TimedOut { waited, .. } if waited.as_secs() == 10),
        "{error}"
    );
    assert_eq!(admission.usage().rejected, 2);
    assert_eq!(admission.usage().queued, 0, "a timed-out query leaves the queue");
    drop(permit);
    assert_eq!(admission.usage().running, 0);
}

/// Clients that run a query each, so that none of them gets a permit beyond the limit.
async fn running_queries(admission: &Admission, clients: impl IntoIterator<Item = u8>) -> Vec<Permit> {
    let mut permits = Vec::new();
    for number in clients {
        permits.push(admission.admit(client(number)).await.unwrap());
    }
    permits
}

#[tokio::test]
async fn admits_clients_round_robin() {
    let admission = admission(3, 100);
    let _own = running_queries(&admission, [1, 2]).await;
    let permit = admission.admit(client(1)).await.unwrap();
    let mut first: VecDeque<_> = (0..10).map(|_| waiting(&admission, client(1))).collect();
    let mut other = waiting(&admission, client(2));
    drop(permit);
    // Round-robin: the first client, then the other one.
    let permit = first.pop_front().unwrap().await.unwrap();
    assert!(other.as_mut().now_or_never().is_none());
    drop(permit);
    let permit = other.await.unwrap();
    for next in &mut first {
        assert!(next.as_mut().now_or_never().is_none());
    }
    drop(permit);
    assert!(first.pop_front().unwrap().await.is_ok());
}

#[tokio::test]
async fn a_client_without_a_running_query_does_not_wait_for_those_of_another() {
    let admission = admission(2, 100);
    let _heavy = running_queries(&admission, [1, 1]).await;
    let mut queued: Vec<_> = (0..62).map(|_| waiting(&admission, client(1))).collect();
    let light = admission.admit(client(2)).await.unwrap();
    let second = waiting(&admission, client(2));
    let other = admission.admit(client(3)).await.unwrap();
    assert_eq!(admission.usage().running, 4, "at most twice as many as may run");
    let mut last = waiting(&admission, client(4));
    drop(light);
    let second = second.await.unwrap();
    assert!(last.as_mut().now_or_never().is_none(), "four run");
    drop(other);
    let last = last.await.unwrap();
    drop((last, second));
    assert!(
        queued
            .iter_mut()
            .all(|query| query.as_mut().now_or_never().is_none())
    );
    assert_eq!((admission.usage().running, admission.usage().queued), (2, 62));
}

#[tokio::test]
async fn a_client_that_fills_the_queue_leaves_places_for_others() {
    let admission = admission(1, 2);
    let _running = running_queries(&admission, [1, 2]).await;
    let full = AdmissionError::QueueFull {
        running: 1,
        queued: 2,
    };
    let _first = [waiting(&admission, client(1)), waiting(&admission, client(1))];
    assert_eq!(admission.admit(client(1)).await.unwrap_err(), full);
    let _second = waiting(&admission, client(2));
    assert_eq!(admission.admit(client(2)).await.unwrap_err(), full);
    let _third = waiting(&admission, client(3));
    assert_eq!(
        admission.admit(client(4)).await.unwrap_err(),
        full,
        "twice as many"
    );
}

#[tokio::test]
async fn paused_queries_of_a_client_resume_in_turn_with_those_of_others() {
    let admission = admission(2, 100);
    let mut paused = running_queries(&admission, [1, 1, 2]).await;
    paused.iter_mut().for_each(Permit::pause);
    let running = running_queries(&admission, [1, 2]).await;
    let (heavy, light) = paused.split_at_mut(2);
    let mut heavy: Vec<_> = heavy.iter_mut().map(|permit| Box::pin(permit.resume())).collect();
    for resume in &mut heavy {
        assert!(resume.as_mut().now_or_never().is_none());
    }
    let mut light = Box::pin(light[0].resume());
    assert!(light.as_mut().now_or_never().is_none());
    drop(running);
    assert!(heavy[0].as_mut().now_or_never().is_some());
    assert!(light.as_mut().now_or_never().is_some());
    assert!(heavy[1].as_mut().now_or_never().is_none());
}

#[tokio::test]
async fn paused_query_resumes_before_queued_ones() {
    let admission = admission(1, 100);
    let mut paused = admission.admit(client(1)).await.unwrap();
    let second = waiting(&admission, client(1));
    paused.pause();
    let second = second.await.unwrap();
    let mut third = waiting(&admission, client(1));
    {
        let mut resumed = std::pin::pin!(paused.resume());
        assert!(resumed.as_mut().now_or_never().is_none());
        drop(second);
        resumed.await;
    }
    assert!(third.as_mut().now_or_never().is_none());
    assert_eq!(admission.usage().running, 1);
    drop(paused);
    assert!(third.await.is_ok());
    assert_eq!(admission.usage().running, 0);
}

#[tokio::test]
async fn cancelled_waiter_frees_its_place() {
    let admission = admission(1, 100);
    let permit = admission.admit(client(1)).await.unwrap();
    let leaves = waiting(&admission, client(1));
    let stays = waiting(&admission, client(1));
    // Admitted, but dropped before it is polled again.
    drop(permit);
    drop(leaves);
    let permit = stays.await.unwrap();
    assert_eq!((admission.usage().running, admission.usage().queued), (1, 0));
    drop(permit);
    assert_eq!(admission.usage().running, 0);
}

/// A paused query may hold the memory that a running one waits for.
#[tokio::test]
async fn paused_queries_resume_with_the_permit_of_a_query_that_waits_for_memory() {
    let admission = admission(1, 100);
    let mut paused = admission.admit(client(1)).await.unwrap();
    paused.pause();
    let running = admission.admit(client(1)).await.unwrap();
    let mut queued = waiting(&admission, client(1));
    let mut resume = Box::pin(paused.resume());
    assert!(resume.as_mut().now_or_never().is_none(), "the permit is in use");
    let lent = running.lend();
    assert!(resume.now_or_never().is_some());
    assert!(queued.as_mut().now_or_never().is_none(), "it has not started");
    drop(lent);
    assert_eq!(admission.usage().running, 2);
    drop(running);
    assert!(queued.as_mut().now_or_never().is_none(), "the resumed one runs");
    drop(paused);
    drop(queued.await.unwrap());
    assert_eq!(admission.usage().running, 0);
}
