//! The cell store passes the conformance suite.

use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::conformance;

#[tokio::test]
async fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    conformance::suite(&store).await;
}

#[tokio::test]
async fn conforms_with_frequent_flushes() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = CellConfig::new(folder.path());
    config.memory_bytes = 256 << 10;
    let store = CellStore::open(config).unwrap();
    conformance::suite(&store).await;
}
