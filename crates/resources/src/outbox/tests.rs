use futures::StreamExt as _;

use super::*;

const STALL: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn delivers_items_in_order_before_the_error() {
    let (mut outbox, inbox) = outbox::<_, &str>(10, STALL);
    let producer = tokio::spawn(async move {
        for number in 0..100 {
            outbox.send(number, 4).await.unwrap();
        }
        outbox.fail("at the end");
    });
    let taken: Vec<_> = inbox.collect().await;
    producer.await.unwrap();
    assert_eq!(taken.len(), 101);
    assert!(
        taken[..100]
            .iter()
            .enumerate()
            .all(|(number, item)| *item == Ok(number))
    );
    assert_eq!(taken[100], Err("at the end"));
}

#[tokio::test(start_paused = true)]
async fn send_fails_after_the_stall_timeout() {
    let (mut outbox, mut inbox) = outbox(10, STALL);
    outbox.send(1, 10).await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(outbox.send(2, 1).await, Err(SendError::Stalled));
    assert_eq!(began.elapsed(), STALL);
    assert_eq!(outbox.drained().await, Err(SendError::Stalled));
    outbox.abort("cut off");
    assert_eq!(
        inbox.next().await,
        Some(Err("cut off")),
        "waiting items are dropped"
    );
    assert_eq!(inbox.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn slow_client_that_makes_progress_does_not_stall() {
    let (mut outbox, mut inbox) = outbox::<_, ()>(10, STALL);
    let producer = tokio::spawn(async move {
        for number in 0..5 {
            outbox.send(number, 10).await?;
        }
        outbox.drained().await
    });
    for number in 0..5 {
        tokio::time::sleep(STALL / 2).await;
        assert_eq!(inbox.next().await, Some(Ok(number)));
    }
    assert_eq!(producer.await.unwrap(), Ok(()));
    assert_eq!(inbox.next().await, None);
}

#[tokio::test]
async fn reports_a_dropped_inbox_to_the_producer() {
    let (mut outbox, inbox) = outbox::<_, ()>(10, STALL);
    outbox.send(1, 10).await.unwrap();
    drop(inbox);
    outbox.closed().await;
    assert_eq!(outbox.send(2, 1).await, Err(SendError::Closed));
}
