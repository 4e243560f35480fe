//! OpenTSDB's oddities that nobody would design today, as switches.
//!
//! HTTP has them all, so that no dashboard moves; gRPC has none.

/// Which oddities an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quirks {
    /// Until a series has its first rate, it takes part in its group with the slope from the epoch
    /// to its first point, which is a tiny number: the sum of a rate of 10 and one that begins later
    /// is 10.000000036846027. Without it the series takes part from its first rate on.
    pub rates_begin_at_the_epoch: bool,
    /// One value over the whole range (`0all-sum`) leaves out points at the very end of the range,
    /// which all other queries include.
    pub whole_range_excludes_end: bool,
}

impl Quirks {
    /// Answers as OpenTSDB's.
    pub const OPENTSDB: Self = Self {
        rates_begin_at_the_epoch: true,
        whole_range_excludes_end: true,
    };

    /// Answers as one would expect them.
    pub const NONE: Self = Self {
        rates_begin_at_the_epoch: false,
        whole_range_excludes_end: false,
    };
}
