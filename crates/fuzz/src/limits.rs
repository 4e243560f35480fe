//! Limits of the memory and the time that a decoder takes for an input.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::Outcome;

/// Bytes that are allocated at a time for each byte of input, at most,
const BYTES_PER_BYTE: u64 = 16;
/// and for any input: error messages.
const BYTES_FOR_ANY: u64 = 4 << 10;
/// Time for an input; inputs have at most 64 KiB, and machines of CI pause.
const TIME: Duration = Duration::from_secs(2);

/// Why an input fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The decoder panicked.
    Panicked,
    /// It allocated more than 16 bytes for each byte of input, and 4 KiB.
    Allocated {
        /// The most that was allocated at a time.
        bytes: u64,
        /// Length of the input.
        input: usize,
    },
    /// It took more than 2 s.
    Slow {
        /// Its time.
        millis: u128,
        /// Length of the input.
        input: usize,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked => write!(f, "panicked"),
            Self::Allocated { bytes, input } => write!(
                f,
                "allocated {bytes} bytes for an input of {input}, limit is {BYTES_PER_BYTE} a byte and {BYTES_FOR_ANY}"
            ),
            Self::Slow { millis, input } => {
                write!(
                    f,
                    "took {millis} ms for an input of {input} bytes, limit is {TIME:?}"
                )
            }
        }
    }
}

/// Decodes an input and checks what that took.
pub(crate) fn check(
    input: &[u8],
    state_bytes: usize,
    decode: &dyn Fn(&[u8]) -> Outcome,
) -> Result<Outcome, Failure> {
    let start = Instant::now();
    let mut decoded = None;
    let allocated = allocation_counter::measure(|| {
        decoded = catch_unwind(AssertUnwindSafe(|| decode(input))).ok();
    });
    let took = start.elapsed();
    let outcome = decoded.ok_or(Failure::Panicked)?;
    let limit = BYTES_FOR_ANY + state_bytes as u64 + BYTES_PER_BYTE * input.len() as u64;
    if allocated.bytes_max > limit {
        return Err(Failure::Allocated {
            bytes: allocated.bytes_max,
            input: input.len(),
        });
    }
    if took > TIME {
        return Err(Failure::Slow {
            millis: took.as_millis(),
            input: input.len(),
        });
    }
    Ok(outcome)
}
