//! Waiting for a condition, never for a time.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long a condition may take on a slow, busy machine before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until the answer is there.
///
/// # Errors
///
/// After [`PATIENCE`], with `what` and the last reason why not.
pub async fn until<T, F, A>(what: &str, mut ask: F) -> anyhow::Result<T>
where
    F: FnMut() -> A,
    A: Future<Output = anyhow::Result<T>>,
{
    let end = Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(reason) if Instant::now() > end => {
                return Err(reason.context(format!("{what}: not within {} s", PATIENCE.as_secs())));
            }
            Err(_not_yet) => sleep(Duration::from_millis(10)).await,
        }
    }
}
