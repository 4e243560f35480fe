//! The form of stored points: OpenTSDB has three.

use oxtsdb_schema::{BaseTime, HOUR_SECONDS};

/// The cells that hold the points of a row; see [`oxtsdb_schema::row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A cell for each point.
    Single,
    /// A compacted cell for the points of a row, if they are two or more.
    Compacted,
    /// A compacted cell for rows of hours that are over, else a cell for each point. Until OpenTSDB compacts a row, a
    /// rewritten point replaces the old one, and readers that use OpenTSDB rely on it.
    CompactedWhenOver,
    /// The append cell of the row.
    Appended,
}

impl Form {
    /// Whether the points of a row of this hour are stored as a compacted cell at this time.
    ///
    /// Source: OpenTSDB 2.4, `CompactionQueue`, which takes rows that began 3601 seconds ago or earlier.
    pub(super) fn compacts(self, hour: BaseTime, now_seconds: u64) -> bool {
        match self {
            Self::Single | Self::Appended => false,
            Self::Compacted => true,
            Self::CompactedWhenOver => u64::from(hour.seconds()) + u64::from(HOUR_SECONDS) < now_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_over_when_opentsdb_would_compact_it() {
        let hour = BaseTime::from_seconds(1_356_998_400);
        for (now, over) in [
            (1_356_998_400, false),
            (1_357_002_000, false),
            (1_357_002_001, true),
        ] {
            assert_eq!(Form::CompactedWhenOver.compacts(hour, now), over, "{now}");
            assert!(Form::Compacted.compacts(hour, now));
            assert!(!Form::Single.compacts(hour, now));
        }
        assert!(!Form::CompactedWhenOver.compacts(BaseTime::MAX, u64::from(u32::MAX)));
    }
}
