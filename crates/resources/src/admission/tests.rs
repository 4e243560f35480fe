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
    let error = admission.admit(client(2)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "1 queries run (--max-concurrent-queries) and 1 wait (--max-queued-queries); retry later"
    );
    drop(permit);
    let permit = second.await.unwrap();
    assert_eq!((admission.usage().running, admission.usage().queued), (1, 0));
    let error = admission.admit(client(2)).await.unwrap_err();
    assert!(
        matches!(error, AdmissionError::TimedOut { waited, .. } if waited.as_secs() == 10),
        "{error}"
    );
    assert_eq!(admission.usage().rejected, 2);
    assert_eq!(admission.usage().queued, 0, "a timed-out query leaves the queue");
    drop(permit);
    assert_eq!(admission.usage().running, 0);
}

#[tokio::test]
async fn admits_clients_round_robin() {
    let admission = admission(1, 100);
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
async fn paused_query_resumes_before_queued_ones() {
    let admission = admission(1, 100);
    let mut paused = admission.admit(client(1)).await.unwrap();
    let second = waiting(&admission, client(2));
    paused.pause();
    let second = second.await.unwrap();
    let mut third = waiting(&admission, client(3));
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
    let stays = waiting(&admission, client(2));
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
    let running = admission.admit(client(2)).await.unwrap();
    let mut queued = waiting(&admission, client(3));
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
