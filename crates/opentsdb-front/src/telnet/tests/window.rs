//! The window of batches in flight, and back-pressure.

use super::*;

#[tokio::test]
async fn reads_lines_while_others_are_being_stored() {
    let (service, gate) = Service::gated(in_batches_of(10)).await;
    let mut stream = service.connect().await;
    stream.write_all(lines(35).as_bytes()).await.unwrap();
    gate.until_waiting(4).await;
    assert_eq!(counted(&service).await, [35, 0, 0]);
    // Later lines are sent to the store too.
    let more = format!("put m {} 1 a=b\n", T + 35);
    stream.write_all(more.as_bytes()).await.unwrap();
    gate.until_waiting(5).await;
    gate.release(5);
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    assert_eq!(counted(&service).await, [36, 36, 0]);
    assert_eq!(service.cells().await.len(), 36);
}

#[tokio::test]
async fn coalesces_points_of_a_row_while_hbase_is_busy() {
    let (stack, gate) = Gate::hbase_stack(in_batches_of(1)).await;
    let service = Service::from_stack(stack).await;
    let mut stream = service.connect().await;
    stream.write_all(lines(1).as_bytes()).await.unwrap();
    gate.until_waiting(1).await;
    let more = lines(10).split_off(lines(1).len());
    stream.write_all(more.as_bytes()).await.unwrap();
    until_statistic(&service, "tsd.rpc.received", "put", 10).await;
    gate.release(2);
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    assert_eq!(gate.passed(), 2);
    assert_eq!(
        service.cells().await.len(),
        2,
        "the first point, and the nine that arrived meanwhile"
    );
    assert_eq!(counted(&service).await, [10, 10, 0]);
}

#[tokio::test]
async fn a_full_window_pauses_reading_without_loss() {
    let (mut service, gate) = gated_in_pairs(in_batches_of(10)).await;
    let mut stream = service.connect().await;
    stream.write_all(lines(45).as_bytes()).await.unwrap();
    gate.until_waiting(2).await;
    // A third batch waits for the window; the others were not read.
    assert_eq!(statistic(&service, "tsd.rpc.received", "telnet").await, 30);
    assert_eq!((gate.waiting(), gate.passed()), (2, 0));
    // When one is stored, the next is read.
    gate.release(1);
    until_statistic(&service, "tsd.rpc.received", "telnet", 40).await;
    assert_eq!((gate.waiting(), gate.passed()), (2, 1));
    // On shutdown, received lines are stored before the process ends.
    service.stop().await;
    gate.release(100);
    assert_eq!(read_to_end(&mut stream).await, "");
    let store = service.store.clone();
    service.ended().await;
    assert_eq!(gate.passed(), 5);
    assert_eq!(points(&store).await.len(), 45);
}

#[tokio::test]
async fn completed_batches_free_the_window() {
    let mut settings = in_batches_of(4096);
    settings.memory.max_writes_mib = 1;
    let service = Service::start_with(settings, UidSettings::default()).await;
    assert_eq!(service.telnet(lines(40_000)).await, "");
    assert_eq!(service.cells().await.len(), 40_000);
}

#[tokio::test]
async fn a_client_that_does_not_read_replies_holds_no_permit_and_is_disconnected() {
    let mut settings = DataSettings::default();
    settings.memory.max_writes_mib = 1;
    settings.connections.client_timeout_seconds = 1;
    let service = Service::start_with(settings, UidSettings::default()).await;
    let mut deaf = service.connect().await;
    let input = format!("put m {T} 1 a=b\n{}", "put m 1 x a=b\n".repeat(1000));
    let cut_off = async { while deaf.write_all(input.as_bytes()).await.is_ok() {} };
    let others = async {
        for second in 1..=20 {
            assert_eq!(service.telnet(format!("put m {} 1 c=d\n", T + second)).await, "");
        }
    };
    let both = futures::future::join(cut_off, others);
    tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("the connection is closed");
}

#[tokio::test]
async fn an_exhausted_memory_pool_pauses_reading_without_loss() {
    let memory = oxtsdb_resources::MemoryAccount::new(256 << 20, 0);
    let stack = TestStack::with_memory(DataSettings::default(), &memory).await;
    let service = Service::from_stack(stack).await;
    let pool = memory.ingest();
    let taken = pool.try_reserve(pool.limit_bytes()).unwrap();
    let mut stream = service.connect().await;
    stream.write_all(lines(5000).as_bytes()).await.unwrap();
    stream.write_all(b"version\n").await.unwrap();
    stream.shutdown().await.unwrap();
    while pool.usage().rejected == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(service.cells().await.len(), 0);
    drop(taken);
    let reply = read_to_end(&mut stream).await;
    assert!(reply.starts_with("oxtsdb "), "{reply}");
    assert_eq!(service.cells().await.len(), 5000);
    while pool.usage().used_bytes > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_session_that_waits_for_memory_ends_on_shutdown() {
    let memory = oxtsdb_resources::MemoryAccount::new(256 << 20, 0);
    let stack = TestStack::with_memory(DataSettings::default(), &memory).await;
    let mut service = Service::from_stack(stack).await;
    let pool = memory.ingest();
    let _taken = pool.try_reserve(pool.limit_bytes()).unwrap();
    let mut stream = service.connect().await;
    stream.write_all(lines(10).as_bytes()).await.unwrap();
    while pool.usage().rejected == 0 {
        tokio::task::yield_now().await;
    }
    let began = std::time::Instant::now();
    service.stop().await;
    service.ended().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}
