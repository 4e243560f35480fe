//! Reproducible random numbers.

use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// A generator with a printed seed; `OXTSDB_TEST_SEED` sets it, to repeat a failure.
///
/// # Errors
///
/// If the variable is not a number.
pub fn seeded(test: &str) -> anyhow::Result<StdRng> {
    let seed = match std::env::var("OXTSDB_TEST_SEED") {
        Ok(text) => text.parse()?,
        Err(_not_set) => rand::random(),
    };
    println!("{test}: OXTSDB_TEST_SEED={seed}");
    Ok(StdRng::seed_from_u64(seed))
}
