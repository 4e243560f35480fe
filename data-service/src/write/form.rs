//! In which of OpenTSDB's forms points are stored.

use std::fmt;

use clap::ValueEnum as _;
use oxtsdb_row_store::RowStore;

/// The setting: in which form the points of a row are stored.
///
/// Every form is read, here and by OpenTSDB, whatever is set and however they are mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum WriteForm {
    /// `rows` where the store prefers few cells, as HBase does; else `cells`
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
            Self::Auto if store.prefers_few_cells() => Form::Compacted,
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
    /// The append cell of the row.
    Appended,
}
