use std::net::{IpAddr, Ipv4Addr};

use super::*;

const SOON: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn growth_beyond_the_pool_fails_permanently() {
    let pool = MemoryPool::new("ingest", 100 << 20);
    let mut held = pool.try_reserve(60 << 20).unwrap();
    let began = tokio::time::Instant::now();
    let error = held.grow(41 << 20, SOON).await.unwrap_err();
    assert!(error.is_final() && began.elapsed().is_zero(), "{error:?}");
    assert_eq!(
        error.to_string(),
        "needs 103424 KiB of ingest memory, more than the 100 MiB that a request can have (--memory-limit-mib); \
         send or request less at a time"
    );
    assert!(held.try_grow(41 << 20).unwrap_err().is_final());
    assert!(pool.check_fits(100 << 20).is_ok());
    assert!(pool.check_fits(101 << 20).unwrap_err().is_final());
    // Other holders may release these.
    let _other = pool.try_reserve(40 << 20).unwrap();
    let error = held.grow(40 << 20, SOON).await.unwrap_err();
    assert!(!error.is_final() && began.elapsed() == SOON, "{error:?}");
    assert_eq!(
        error.to_string(),
        "ingest memory is in use: 100 of 100 MiB, 40960 KiB more requested (--memory-limit-mib), which did not become \
         free within 5.0 s; retry later"
    );
    assert!(!pool.try_reserve(100 << 20).unwrap_err().is_final());
    assert!(pool.reserve(101 << 20, SOON).await.unwrap_err().is_final());
    assert_eq!(began.elapsed(), SOON, "a final error does not wait");
}

#[test]
fn dropping_a_reservation_releases_its_bytes() {
    let pool = MemoryPool::new("query", 100);
    let mut first = pool.try_reserve(60).unwrap();
    let error = pool.try_reserve(41).unwrap_err();
    assert_eq!((error.requested, error.used, error.limit), (41, 60, 100));
    assert_eq!(pool.usage().rejected, 1);
    first.try_grow(40).unwrap();
    assert!(first.try_grow(1).is_err());
    assert_eq!(first.bytes(), 100, "a rejected growth changes nothing");
    first.shrink_to(10);
    let second = first.split(4);
    assert_eq!(
        (first.bytes(), second.bytes(), pool.usage().used_bytes),
        (6, 4, 10)
    );
    first.merge(second);
    assert_eq!((first.bytes(), pool.usage().used_bytes), (10, 10));
    drop(first);
    assert_eq!((pool.usage().used_bytes, pool.usage().peak_bytes), (0, 100));
}

#[tokio::test(start_paused = true)]
async fn reservations_wait_in_order_for_a_bounded_time() {
    let pool = MemoryPool::new("ingest", 100);
    let held = pool.try_reserve(100).unwrap();
    let large = tokio::spawn({
        let pool = pool.clone();
        async move { pool.reserve(80, SOON).await }
    });
    tokio::task::yield_now().await;
    let small = tokio::spawn({
        let pool = pool.clone();
        async move { pool.reserve(30, SOON).await }
    });
    tokio::task::yield_now().await;
    drop(held);
    let large = large.await.unwrap().unwrap();
    assert!(!small.is_finished(), "20 bytes are left");
    drop(large);
    assert_eq!(small.await.unwrap().unwrap().bytes(), 30);

    let held = pool.try_reserve(100).unwrap();
    let began = tokio::time::Instant::now();
    let error = pool.reserve(1, SOON).await.unwrap_err();
    assert_eq!((began.elapsed(), error.used), (SOON, 100));
    drop(held);
}

#[test]
fn charges_may_exceed_the_limit() {
    let pool = MemoryPool::new("query", 100);
    let held = pool.charge(150);
    assert!(pool.try_reserve(1).is_err());
    assert!(pool.try_reserve(0).is_ok(), "requests without content are served");
    drop(held);
    assert!(pool.try_reserve(100).is_ok());
}

const LARGE: ClientId = ClientId::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
const SMALL: ClientId = ClientId::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));

#[tokio::test(start_paused = true)]
async fn a_client_that_fills_the_pool_leaves_memory_for_small_requests_of_others() {
    let pool = MemoryPool::new("ingest", 1000);
    let (large, small) = (pool.for_client(LARGE), pool.for_client(SMALL));
    assert!(large.check_fits(750).is_ok() && large.check_fits(751).unwrap_err().is_final());
    let held = large.try_reserve(750).unwrap();
    assert!(!large.try_reserve(1).unwrap_err().is_final());
    // Others of the same client wait.
    let began = tokio::time::Instant::now();
    let waiting = large.clone();
    let waiting = tokio::spawn(async move { waiting.reserve(100, SOON).await });
    tokio::task::yield_now().await;
    // Two clients share the last quarter.
    let mut few = small.reserve(100, SOON).await.unwrap();
    few.grow(25, SOON).await.unwrap();
    assert!(began.elapsed().is_zero(), "small requests do not wait");
    assert!(few.try_grow(1).is_err(), "beyond the share");
    let charged = pool.try_reserve(125).unwrap();
    assert_eq!(
        pool.usage().used_bytes,
        1000,
        "the server's own memory has no share"
    );
    drop(held);
    assert!(waiting.await.unwrap().is_ok());
    drop((few, charged));
    assert_eq!(pool.usage().used_bytes, 0);
}

#[test]
fn reservations_of_a_client_are_counted_until_they_are_dropped() {
    let pool = MemoryPool::new("ingest", 1000);
    let of = |client| pool.for_client(client);
    let mut held = of(LARGE).try_reserve(100).unwrap();
    let part = held.split(40);
    held.shrink_to(50);
    assert_eq!(
        of(LARGE).client.as_ref().unwrap().used.load(Ordering::Relaxed),
        90
    );
    let mut other = of(SMALL).try_reserve(10).unwrap();
    assert_eq!(pool.shared.active_clients.load(Ordering::Relaxed), 2);
    other.merge(part);
    assert_eq!(
        of(LARGE).client.as_ref().unwrap().used.load(Ordering::Relaxed),
        50
    );
    drop(held);
    assert_eq!(pool.shared.active_clients.load(Ordering::Relaxed), 1);
    assert_eq!(other.bytes(), 50);
    drop(other);
    assert_eq!(pool.usage().used_bytes, 0);
    assert_eq!(pool.shared.active_clients.load(Ordering::Relaxed), 0);
    assert!(
        pool.shared.clients.lock().is_empty(),
        "unused clients are forgotten"
    );
}
