//! Free-text search over metadata.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use oxtsdb_server::settings::{SettingError, in_range};

/// Whether this build has free-text search.
pub const TEXT_SEARCH_IS_BUILT: bool = cfg!(feature = "text-search");

/// Memory of the index outside of mapped files, in bytes: documents that are not in a file yet, and merges.
pub const TEXT_SEARCH_MEMORY_BYTES: u64 = 64 << 20;

/// Free-text search over metadata.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Text search")]
pub struct TextSearchSettings {
    /// Search the metadata of UIDs and series, and annotations, by text, with an index in this
    /// folder. One server uses a folder; the index is built from the tables and may be deleted. Needs a build with
    /// `--features text-search`
    #[arg(long, env = "OXTSDB_TEXT_SEARCH", value_name = "DIR")]
    pub text_search: Option<PathBuf>,

    /// The pause after which the tables are read again for changes by other programs, seconds; at least four times
    /// as long as reading them takes
    #[arg(long, env = "OXTSDB_TEXT_SEARCH_PAUSE_SECONDS", value_name = "SECONDS", default_value_t = Self::default().text_search_pause_seconds)]
    pub text_search_pause_seconds: u64,
}

impl Default for TextSearchSettings {
    fn default() -> Self {
        Self {
            text_search: None,
            text_search_pause_seconds: 600,
        }
    }
}

impl TextSearchSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        if let (Some(folder), false) = (&self.text_search, TEXT_SEARCH_IS_BUILT) {
            let rule = "this build has no text search; build it with `--features text-search`";
            return Err(SettingError::new("--text-search", folder.display(), rule));
        }
        in_range(
            "--text-search-pause-seconds",
            self.text_search_pause_seconds,
            1,
            86_400,
        )
    }

    /// The pause between two passes over the tables.
    pub fn pause(&self) -> Duration {
        Duration::from_secs(self.text_search_pause_seconds)
    }

    /// Memory of the index.
    pub(super) fn fixed_bytes(&self) -> u64 {
        self.text_search.as_ref().map_or(0, |_| TEXT_SEARCH_MEMORY_BYTES)
    }
}

#[cfg(all(test, not(feature = "text-search")))]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_search_rejects_the_setting() {
        let settings = TextSearchSettings {
            text_search: Some("index".into()),
            ..TextSearchSettings::default()
        };
        assert_eq!(
            settings.check().unwrap_err().to_string(),
            "--text-search index: this build has no text search; build it with `--features text-search`"
        );
    }
}
