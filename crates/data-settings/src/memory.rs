//! Memory that is reserved at start: caches, and batches on their way to the store.

use clap::Args;
use oxtsdb_resources::FixedShare;
use oxtsdb_server::settings::{SettingError, in_range};

/// Caches and buffers of a fixed size.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Memory")]
pub struct MemorySettings {
    /// Cache of series, MiB
    #[arg(long, env = "OXTSDB_SERIES_CACHE_MIB", value_name = "MIB", default_value_t = Self::default().series_cache_mib)]
    pub series_cache_mib: usize,

    /// Caches of names and UIDs in the data service, MiB
    #[arg(long, env = "OXTSDB_NAME_CACHE_MIB", value_name = "MIB", default_value_t = Self::default().name_cache_mib)]
    pub name_cache_mib: usize,

    /// Lists of the series of metrics, MiB; the embedded store needs none
    #[arg(long, env = "OXTSDB_SERIES_INDEX_MIB", value_name = "MIB", default_value_t = Self::default().series_index_mib)]
    pub series_index_mib: usize,

    /// Batches of points that the store has not confirmed yet, MiB. At the limit writes wait, calls for
    /// at most 10 s
    #[arg(long, env = "OXTSDB_MAX_WRITES_MIB", value_name = "MIB", default_value_t = Self::default().max_writes_mib)]
    pub max_writes_mib: usize,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self {
            series_cache_mib: 256,
            name_cache_mib: 64,
            series_index_mib: 64,
            max_writes_mib: 128,
        }
    }
}

impl MemorySettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range("--series-cache-mib", self.series_cache_mib, 1, 1 << 20)?;
        in_range("--name-cache-mib", self.name_cache_mib, 1, 1 << 20)?;
        in_range("--series-index-mib", self.series_index_mib, 1, 4095)?;
        in_range("--max-writes-mib", self.max_writes_mib, 1, 1 << 20)
    }

    /// The sum, in bytes.
    pub(super) fn fixed_bytes(&self) -> u64 {
        let mib = self.series_cache_mib + self.name_cache_mib + self.series_index_mib + self.max_writes_mib;
        (mib as u64) << 20
    }

    /// Reduces these settings to the share that fits under the memory limit.
    pub(super) fn reduce_to(&mut self, share: &FixedShare) {
        for mib in [
            &mut self.series_cache_mib,
            &mut self.name_cache_mib,
            &mut self.series_index_mib,
            &mut self.max_writes_mib,
        ] {
            let bytes = share.scale((*mib as u64) << 20);
            *mib = usize::try_from(bytes >> 20).unwrap_or(*mib).max(1);
        }
    }
}
