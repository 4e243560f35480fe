//! Waiting for a condition, never for a fixed time.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Time for a condition on a slow, busy machine before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls a condition until it is met, and returns its result.
///
/// # Errors
///
/// After [`PATIENCE`], with `what` and the last error.
pub async fn until<T, F, R>(what: &str, mut poll: F) -> anyhow::Result<T>
where
    F: FnMut() -> R,
    R: Future<Output = anyhow::Result<T>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        match poll().await {
            Ok(result) => return Ok(result),
            Err(reason) if Instant::now() > end => {
                return Err(reason.context(format!("{what}: not within {} s", PATIENCE.as_secs())));
            }
            Err(_not_yet) => sleep(Duration::from_millis(10)).await,
        }
    }
}
