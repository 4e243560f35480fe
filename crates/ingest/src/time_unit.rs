//! The unit of timestamps in messages.

use std::fmt;

/// The last instant that OpenTSDB's rows can hold.
pub(super) const LAST_MS: i64 = 4_294_967_295_999;

/// Unit of the timestamps of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds since the epoch.
    Seconds,
    /// Milliseconds since the epoch.
    Milliseconds,
}

impl TimeUnit {
    /// The last timestamp in this unit.
    pub(super) fn last(self) -> i64 {
        match self {
            Self::Seconds => LAST_MS / 1000,
            Self::Milliseconds => LAST_MS,
        }
    }
}

/// The symbol of the unit.
impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
        })
    }
}
