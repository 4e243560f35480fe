//! Sends the same random queries to OpenTSDB and OxTSDB, which share their tables, and compares the responses.
//!
//! ```text
//!   data ──► both write ──► the same rows, the same UIDs
//!   request (range, downsampling, filters; sometimes a mistake)
//!        ├──► OpenTSDB ──┐
//!        └──► OxTSDB ────┴──► response: equal?   otherwise ──► known: one of the accepted differences?
//! ```
//!
//! One seed determines a run: the seed itself the data and names, the seed and its number each request. A request
//! with differing responses can therefore be repeated alone.

pub mod comparison;
pub mod data;
mod downsampling;
pub mod expressions;
mod filters;
pub mod known;
mod mistake;
mod range;
pub mod request;
pub mod response;
pub mod servers;
mod sub_query;

use anyhow::Context as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::sizes;

/// The requests of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Determines data and requests.
    pub seed: u64,
    /// Number of the first request.
    pub first: usize,
    /// Number of requests.
    pub count: usize,
    /// The environment variable that sets `count`.
    count_variable: &'static str,
}

impl Run {
    /// Reads the environment: `OXTSDB_DIFFERENTIAL_SEED` (default: random), `OXTSDB_DIFFERENTIAL_FIRST` (default: 0)
    /// and the number of requests.
    ///
    /// # Errors
    ///
    /// If a variable is not a number.
    pub fn from_environment(count_variable: &'static str, count: usize) -> anyhow::Result<Self> {
        let variable = "OXTSDB_DIFFERENTIAL_SEED";
        let seed = match std::env::var(variable) {
            Ok(text) => text.parse().with_context(|| format!("{variable}: `{text}`"))?,
            // Short enough to copy by hand.
            Err(_not_set) => u64::from(rand::random::<u32>()),
        };
        Ok(Self {
            seed,
            first: sizes::from_environment("OXTSDB_DIFFERENTIAL_FIRST", 0)?,
            count: sizes::from_environment(count_variable, count)?,
            count_variable,
        })
    }

    /// The random numbers of the data.
    pub fn random_of_data(&self) -> StdRng {
        StdRng::seed_from_u64(self.seed)
    }

    /// The random numbers of a request.
    pub fn random_of(&self, request: usize) -> StdRng {
        // Neighbouring requests need different numbers; the constant is splitmix64's.
        let number = request as u64 + 1;
        StdRng::seed_from_u64(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The environment variables that repeat a request.
    pub fn replay(&self, request: usize) -> String {
        format!(
            "OXTSDB_DIFFERENTIAL_SEED={} OXTSDB_DIFFERENTIAL_FIRST={request} {}=1",
            self.seed, self.count_variable
        )
    }
}
