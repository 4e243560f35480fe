use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

#[tokio::test]
async fn one_thread_runs_any_number_of_jobs() {
    let pool = ComputePool::new(1).unwrap();
    let jobs: Vec<_> = (0..1000_u64).map(|job| pool.run(move || job)).collect();
    let results = futures::future::join_all(jobs).await;
    let sum: u64 = results.into_iter().map(Result::unwrap).sum();
    assert_eq!(sum, 499_500);
}

#[tokio::test]
async fn self_scheduling_jobs_do_not_starve_others() {
    fn forever(pool: &ComputePool, is_over: &Arc<AtomicBool>) {
        let (next, is_over) = (pool.clone(), Arc::clone(is_over));
        pool.spawn(move || {
            if !is_over.load(Ordering::Relaxed) {
                forever(&next, &is_over);
            }
        });
    }
    let pool = ComputePool::new(1).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        forever(&pool, &is_over);
    }
    assert_eq!(pool.run(|| 1).await, Ok(1), "it runs in between");
    is_over.store(true, Ordering::Relaxed);
}

#[tokio::test]
async fn threads_end_with_the_pool_after_all_jobs() {
    let pool = ComputePool::new(2).unwrap();
    let queue = Arc::downgrade(&pool.handle.queue);
    let jobs: Vec<_> = (0..100_u64)
        .map(|job| {
            let clone = pool.clone();
            pool.run(move || {
                drop(clone);
                job
            })
        })
        .collect();
    drop(pool);
    let results = futures::future::join_all(jobs).await;
    assert!(results.iter().all(Result::is_ok));
    let ended = async {
        while queue.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), ended)
        .await
        .unwrap();
}

#[tokio::test]
async fn panic_fails_only_its_job() {
    let pool = ComputePool::new(1).unwrap();
    let error = pool.run(|| -> () { panic!("of the job") }).await.unwrap_err();
    assert_eq!(error.to_string(), "a computation panicked: of the job");
    assert_eq!(pool.run(|| 1).await, Ok(1));
}

fn client(number: u8) -> ClientId {
    ClientId::Address(Ipv4Addr::new(10, 0, 0, number).into())
}

/// Computes for one chunk.
fn compute_a_chunk() {
    let begun = Instant::now();
    while begun.elapsed() < CHUNK {
        std::hint::spin_loop();
    }
}

async fn soon<T>(result: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), result)
        .await
        .expect("the job is served")
}

/// 64 jobs of one client that do not end before the test does, and jobs of other clients.
#[tokio::test]
async fn a_short_job_is_served_after_one_chunk_of_long_ones_for_each_thread() {
    for threads in [1, 2] {
        let pool = ComputePool::new(threads).unwrap();
        let (chunks, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let heavy = pool.for_client(client(1));
        let jobs: Vec<_> = (0..64)
            .map(|_| {
                let (chunks, is_over) = (Arc::clone(&chunks), Arc::clone(&is_over));
                heavy.run(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        compute_a_chunk();
                        chunks.fetch_add(1, Ordering::SeqCst);
                        yield_to_others();
                    }
                })
            })
            .collect();
        // Each of a client of its own: on a busy machine, a short job may be charged more time than a chunk takes.
        for number in 2..22 {
            let counted = Arc::clone(&chunks);
            let short = pool.for_client(client(number));
            let short = short.run(move || counted.load(Ordering::SeqCst));
            let before = chunks.load(Ordering::SeqCst);
            let at_start = soon(short).await.unwrap();
            assert!(at_start <= before + threads, "{} chunks", at_start - before);
        }
        is_over.store(true, Ordering::Relaxed);
        for job in soon(futures::future::join_all(jobs)).await {
            job.unwrap();
        }
    }
}

/// More clients than jobs may pause.
#[tokio::test]
async fn jobs_of_many_clients_end_and_few_of_them_pause() {
    let pool = ComputePool::new(1).unwrap();
    let jobs: Vec<_> = (0..36_u8)
        .map(|number| {
            pool.for_client(client(number % 12)).run(move || {
                for _ in 0..3 {
                    compute_a_chunk();
                    yield_to_others();
                }
                number
            })
        })
        .collect();
    let results = soon(futures::future::join_all(jobs)).await;
    let results: Vec<u8> = results.into_iter().map(Result::unwrap).collect();
    assert_eq!(results, (0..36).collect::<Vec<u8>>());
    let state = pool.handle.queue.state.lock();
    assert!(state.threads <= 1 + PAUSED_PER_THREAD, "{}", state.threads);
    assert_eq!(state.paused, 0);
}

/// A job that panics after it paused, and one that is alone.
#[tokio::test]
async fn a_paused_job_may_panic() {
    let pool = ComputePool::new(1).unwrap();
    let (started, is_started) = oneshot::channel();
    let is_queued = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&is_queued);
    let panics = pool.for_client(client(1)).run(move || -> () {
        started.send(()).unwrap();
        while !waits.load(Ordering::Relaxed) {
            compute_a_chunk();
            yield_to_others();
        }
        compute_a_chunk();
        yield_to_others();
        panic!("after the pause")
    });
    soon(is_started).await.unwrap();
    let other = pool.for_client(client(2)).run(|| 2);
    is_queued.store(true, Ordering::Relaxed);
    assert_eq!(soon(other).await, Ok(2));
    assert!(soon(panics).await.is_err());
    assert_eq!(soon(pool.run(|| 1)).await, Ok(1));
}

#[tokio::test]
async fn a_dropped_future_removes_its_job() {
    let pool = ComputePool::new(1).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&is_over);
    let first = pool.run(move || {
        while !waits.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    });
    let held = Arc::new(());
    let in_job = Arc::clone(&held);
    let queued = pool.for_client(client(1)).run(move || drop(in_job));
    // It waits, unless it is the first job that still does.
    drop(queued);
    assert_eq!(Arc::strong_count(&held), 1, "what it holds is free at once");
    is_over.store(true, Ordering::Relaxed);
    assert_eq!(soon(first).await, Ok(()));
}

#[test]
fn a_thread_of_no_pool_does_not_pause() {
    yield_to_others();
}
