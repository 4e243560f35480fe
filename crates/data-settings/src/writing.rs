//! Writes: the form of cells, and the windows of write streams.

use std::fmt;
use std::time::Duration;

use clap::{Args, ValueEnum};
use oxtsdb_schema::data_table;
use oxtsdb_server::settings::{SettingError, in_range};

/// Writes of all protocols.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Writing")]
pub struct WriteSettings {
    /// Maximum tags of a series (tsd.storage.max_tags)
    #[arg(long, env = "OXTSDB_MAX_TAGS", value_name = "COUNT", default_value_t = Self::default().max_tags)]
    pub max_tags: usize,

    /// Form in which points are stored; all forms can be read. A point that is written again with another
    /// value replaces the old one if both are single cells or both are appended; next to a compacted cell,
    /// OpenTSDB fails to read the row unless it has tsd.storage.fix_duplicates
    #[arg(long, env = "OXTSDB_WRITE_FORM", value_name = "FORM", value_enum, default_value_t = Self::default().write_form)]
    pub write_form: WriteForm,

    /// Delay of a batch for further points of its rows, milliseconds; 0: no delay. Points are
    /// acknowledged when they are stored, so the delay adds to the latency of each write
    #[arg(long, env = "OXTSDB_LINGER_MS", value_name = "MS", default_value_t = Self::default().linger_ms)]
    pub linger_ms: u64,

    /// Give a cell the timestamp of its point, the last one of a compacted cell, for HBase's date-tiered
    /// compaction (tsd.storage.use_otsdb_timestamp). Deleted points cannot be written again before
    /// HBase's next major compaction. Not with --write-form appends
    #[arg(long, env = "OXTSDB_USE_OTSDB_TIMESTAMP", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub use_otsdb_timestamp: bool,
}

impl Default for WriteSettings {
    fn default() -> Self {
        Self {
            max_tags: data_table::MAX_TAGS_DEFAULT,
            write_form: WriteForm::Auto,
            linger_ms: 0,
            use_otsdb_timestamp: false,
        }
    }
}

impl WriteSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range("--max-tags", self.max_tags, 1, 64)?;
        in_range("--linger-ms", self.linger_ms, 0, 10_000)?;
        if self.use_otsdb_timestamp && self.write_form == WriteForm::Appends {
            let rule = "with --write-form appends a row is one cell, whose timestamp is the store's";
            return Err(SettingError::new("--use-otsdb-timestamp", true, rule));
        }
        Ok(())
    }

    /// How long a batch is delayed for further points of its rows.
    pub fn linger(&self) -> Duration {
        Duration::from_millis(self.linger_ms)
    }
}

/// The form in which the points of a row are stored.
///
/// OpenTSDB and this service read every form, and rows that mix them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WriteForm {
    /// `cells`, and on HBase, where many cells are slow, `rows` for hours that are over, which OpenTSDB
    /// would compact too
    #[default]
    Auto,
    /// Each point is a cell, as OpenTSDB writes it
    Cells,
    /// The points of a row that are written together become one compacted cell
    Rows,
    /// The points of a row are appended to its append cell (tsd.storage.enable_appends)
    Appends,
}

/// The value of the flag.
impl fmt::Display for WriteForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_possible_value() {
            Some(value) => f.write_str(value.get_name()),
            None => Ok(()),
        }
    }
}

/// Write streams of gRPC.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Write streams")]
pub struct StreamSettings {
    /// Unacknowledged frames of a stream
    #[arg(long, env = "OXTSDB_STREAM_WINDOW_FRAMES", value_name = "COUNT", default_value_t = Self::default().stream_window_frames)]
    pub stream_window_frames: u32,

    /// Unacknowledged points of a stream
    #[arg(long, env = "OXTSDB_STREAM_WINDOW_POINTS", value_name = "COUNT", default_value_t = Self::default().stream_window_points)]
    pub stream_window_points: u64,

    /// Series that a stream may declare
    #[arg(long, env = "OXTSDB_STREAM_MAX_SERIES", value_name = "COUNT", default_value_t = Self::default().stream_max_series)]
    pub stream_max_series: u32,

    /// Memory for the names that a stream declares, MiB
    #[arg(long, env = "OXTSDB_STREAM_MAX_SYMBOLS_MIB", value_name = "MIB", default_value_t = Self::default().stream_max_symbols_mib)]
    pub stream_max_symbols_mib: usize,

    /// Time that clients have to close their streams while the server drains, seconds
    #[arg(long, env = "OXTSDB_STREAM_GRACE_SECONDS", value_name = "SECONDS", default_value_t = Self::default().stream_grace_seconds)]
    pub stream_grace_seconds: u64,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self {
            stream_window_frames: 64,
            stream_window_points: 1_000_000,
            stream_max_series: 1_000_000,
            stream_max_symbols_mib: 64,
            stream_grace_seconds: 10,
        }
    }
}

impl StreamSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range("--stream-window-frames", self.stream_window_frames, 1, 1 << 20)?;
        in_range("--stream-window-points", self.stream_window_points, 1, 1 << 40)?;
        in_range("--stream-max-series", self.stream_max_series, 1, 1 << 28)?;
        in_range("--stream-max-symbols-mib", self.stream_max_symbols_mib, 1, 1024)
    }

    /// Memory for the names that a stream declares, in bytes.
    pub fn max_symbol_bytes(&self) -> usize {
        self.stream_max_symbols_mib << 20
    }

    /// How long a stream may continue after the server has begun to drain.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.stream_grace_seconds)
    }
}
