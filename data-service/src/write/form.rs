//! In which of OpenTSDB's forms points are stored.

use std::fmt;

use clap::ValueEnum as _;
use oxtsdb_row_store::RowStore;
use oxtsdb_schema::{BaseTime, HOUR_SECONDS};

/// The setting: in which form the points of a row are stored.
///
/// Every form is read, here and by OpenTSDB, whatever is set and however they are mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum WriteForm {
    /// What OpenTSDB would have: `cells`, and on HBase, where many cells are slow, `rows` for hours
    /// that are over, which its compaction would make so
    #[default]
    Auto,
    /// Each point is a cell of its own, as OpenTSDB writes them
    Cells,
    /// The points of a row that are written together become one compacted cell
    Rows,
    /// The points of a row are appended to its one append cell (tsd.storage.enable_appends)
    Appends,
}

impl WriteForm {
    /// The form on a store.
    pub(super) fn on(self, store: &dyn RowStore) -> Form {
        match self {
            Self::Auto if store.prefers_few_cells() => Form::CompactedWhenOver,
            Self::Auto | Self::Cells => Form::Single,
            Self::Rows => Form::Compacted,
            Self::Appends => Form::Appended,
        }
    }
}

/// The word of the setting.
impl fmt::Display for WriteForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => f.write_str(value.get_name()),
            None => Ok(()),
        }
    }
}

/// The form of the cells that points become; see [`oxtsdb_schema::row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A cell for each point.
    Single,
    /// A compacted cell for the points of a row, if they are two or more.
    Compacted,
    /// That for rows whose hour is over, else a cell for each point. While OpenTSDB has not compacted a
    /// row, a point that is written again replaces the old one, and who reads with OpenTSDB relies on it.
    CompactedWhenOver,
    /// The append cell of the row.
    Appended,
}

impl Form {
    /// Whether the points of a row of this hour become a compacted cell, at this time.
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
        let hour = BaseTime::of_seconds(1_356_998_400);
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
