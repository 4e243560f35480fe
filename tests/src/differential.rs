//! OpenTSDB and OxTSDB on the same tables, asked the same random questions.
//!
//! ```text
//!   data ──► both write ──► the same rows, the same UIDs
//!   question (range, downsampling, filters; now and then mistake)
//!        ├──► OpenTSDB ──┐
//!        └──► OxTSDB ────┴──► answer: the same?   else ──► known: one of few that stand as they are?
//! ```
//!
//! Everything follows from one seed: data and names from the seed itself, each question from the seed and
//! its number. So a question that was answered otherwise can be asked again alone.

pub mod answer;
pub mod comparison;
pub mod data;
mod downsampling;
pub mod expressions;
mod filters;
pub mod known;
mod mistake;
pub mod question;
mod range;
pub mod servers;

use anyhow::Context as _;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::sizes;

/// What a run asks.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Everything follows from it.
    pub seed: u64,
    /// The first question.
    pub first: usize,
    /// How many questions.
    pub count: usize,
    /// The variable that says how many.
    count_variable: &'static str,
}

impl Run {
    /// What the environment says: `OXTSDB_DIFFERENTIAL_SEED` (else one by chance), `OXTSDB_DIFFERENTIAL_FIRST`
    /// (0), and how many questions.
    ///
    /// # Errors
    ///
    /// If a variable is not a number.
    pub fn of_environment(count_variable: &'static str, count: usize) -> anyhow::Result<Self> {
        let variable = "OXTSDB_DIFFERENTIAL_SEED";
        let seed = match std::env::var(variable) {
            Ok(text) => text.parse().with_context(|| format!("{variable}: `{text}`"))?,
            // So few digits that they are easily copied.
            Err(_not_set) => u64::from(rand::random::<u32>()),
        };
        Ok(Self {
            seed,
            first: sizes::of("OXTSDB_DIFFERENTIAL_FIRST", 0)?,
            count: sizes::of(count_variable, count)?,
            count_variable,
        })
    }

    /// For the data.
    pub fn random_of_data(&self) -> StdRng {
        StdRng::seed_from_u64(self.seed)
    }

    /// For a question.
    pub fn random_of(&self, question: usize) -> StdRng {
        // Neighbours must not have the same numbers; the constant is that of splitmix64.
        let number = question as u64 + 1;
        StdRng::seed_from_u64(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The variables that ask a question again.
    pub fn replay(&self, question: usize) -> String {
        format!(
            "OXTSDB_DIFFERENTIAL_SEED={} OXTSDB_DIFFERENTIAL_FIRST={question} {}=1",
            self.seed, self.count_variable
        )
    }
}
