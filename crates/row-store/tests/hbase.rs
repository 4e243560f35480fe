//! The store on HBase does what every store must do, on a real one.
//!
//! `OXTSDB_TEST_HBASE` names its Thrift gateways, as `host:port[,host:port]`; without it there is
//! nothing to test.

use oxtsdb_row_store::conformance;
use oxtsdb_row_store::hbase::{HbaseConfig, HbaseStore};

fn gateways() -> Option<Vec<String>> {
    let Ok(gateways) = std::env::var("OXTSDB_TEST_HBASE") else {
        eprintln!("SKIPPED: OXTSDB_TEST_HBASE names no HBase Thrift gateway");
        return None;
    };
    Some(gateways.split(',').map(str::to_owned).collect())
}

#[tokio::test]
async fn conforms() {
    let Some(gateways) = gateways() else { return };
    let store = HbaseStore::connect(HbaseConfig::new(gateways)).await.unwrap();
    conformance::suite(&store).await;
}
