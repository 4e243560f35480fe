//! The embedded store passes the conformance suite.

use oxtsdb_row_store::conformance;
use oxtsdb_row_store::embedded::{EmbeddedConfig, EmbeddedStore};

#[tokio::test]
async fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(EmbeddedConfig::new(folder.path())).unwrap();
    conformance::suite(&store).await;
}

#[tokio::test]
async fn conforms_with_constant_flushes() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = EmbeddedConfig::new(folder.path());
    config.journal_bytes = 1;
    let store = EmbeddedStore::open(config).unwrap();
    conformance::suite(&store).await;
}
