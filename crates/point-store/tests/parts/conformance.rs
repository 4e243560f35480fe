//! The conformance suite.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use oxtsdb_point_store::PointStore;
use oxtsdb_point_store::conformance::{self, Subject};
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_storage_file::disk::real::RealDisk;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;
use parking_lot::Mutex;

use crate::support::small;

struct Folders {
    root: tempfile::TempDir,
    config: Mutex<Option<PartsConfig>>,
    is_small: bool,
}

impl Folders {
    fn open(&self, config: PartsConfig) -> Arc<dyn PointStore> {
        *self.config.lock() = Some(config.clone());
        Arc::new(PartsStore::open(config).unwrap())
    }
}

#[async_trait]
impl Subject for Folders {
    async fn create(&self) -> Arc<dyn PointStore> {
        let count = std::fs::read_dir(self.root.path()).unwrap().count();
        let path: PathBuf = self.root.path().join(count.to_string());
        let disk = Arc::new(RealDisk);
        self.open(if self.is_small {
            PartsConfig { path, ..small(disk) }
        } else {
            PartsConfig::new(path, disk)
        })
    }

    async fn reopen(&self) -> Option<Arc<dyn PointStore>> {
        let config = self.config.lock().clone();
        Some(self.open(config.unwrap()))
    }
}

fn folders(is_small: bool) -> Folders {
    Folders {
        root: tempfile::tempdir().unwrap(),
        config: Mutex::default(),
        is_small,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passes_with_default_limits() {
    conformance::suite(&folders(false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn passes_with_limits_that_flush_and_merge_all_the_time() {
    conformance::suite(&folders(true)).await;
}

struct Simulated(Mutex<SimulatedDisk>);

#[async_trait]
impl Subject for Simulated {
    async fn create(&self) -> Arc<dyn PointStore> {
        let disk = SimulatedDisk::new();
        *self.0.lock() = disk.clone();
        Arc::new(PartsStore::open(small(Arc::new(disk))).unwrap())
    }

    /// Every close is followed by a power loss.
    async fn reopen(&self) -> Option<Arc<dyn PointStore>> {
        let mut disk = self.0.lock();
        *disk = disk.power_loss();
        Some(Arc::new(PartsStore::open(small(Arc::new(disk.clone()))).unwrap()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passes_on_a_disk_that_loses_power() {
    conformance::suite(&Simulated(Mutex::new(SimulatedDisk::new()))).await;
}
