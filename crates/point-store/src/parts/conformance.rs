//! The embedded engine passes the conformance suite.

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tempfile::TempDir;

use super::disk::real::RealDisk;
use super::{PartsConfig, PartsStore};
use crate::PointStore;
use crate::conformance::{self, Subject};

/// Stores in a folder that the next one replaces.
struct Parts {
    folder: Mutex<TempDir>,
    head_bytes: Option<usize>,
}

impl Parts {
    fn new(head_bytes: Option<usize>) -> Self {
        Self {
            folder: Mutex::new(tempfile::tempdir().unwrap()),
            head_bytes,
        }
    }

    fn open(&self) -> Arc<dyn PointStore> {
        let path = self.folder.lock().path().join("points");
        let mut config = PartsConfig::new(path, Arc::new(RealDisk));
        if let Some(head_bytes) = self.head_bytes {
            config.head_bytes = head_bytes;
        }
        Arc::new(PartsStore::open(config).unwrap())
    }
}

#[async_trait]
impl Subject for Parts {
    async fn create(&self) -> Arc<dyn PointStore> {
        *self.folder.lock() = tempfile::tempdir().unwrap();
        self.open()
    }

    async fn reopen(&self) -> Option<Arc<dyn PointStore>> {
        Some(self.open())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passes_with_points_in_the_head() {
    conformance::suite(&Parts::new(None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn passes_with_many_parts() {
    conformance::suite(&Parts::new(Some(20_000))).await;
}
