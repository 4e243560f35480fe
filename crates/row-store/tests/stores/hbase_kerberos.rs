//! The store over HBase's own RPC on an HBase with Kerberos: tickets that expire, and logins that are rejected.
//!
//! `tests/hbase/rig.sh run --no-opentsdb --kerberos privacy cargo test ... -- --ignored hbase_kerberos::` sets
//! `OXTSDB_TEST_HBASE_KERBEROS`, a folder with keytabs.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oxtsdb_row_store::hbase::Hbase as _;
use oxtsdb_row_store::hbase::native::{KerberosConfig, NativeConfig, NativeStore};
use oxtsdb_row_store::{ColumnSelection, RowStore as _, StoreError, TableDef, WriteBatch};

use crate::hbase_native::{config, kerberos, new_name, quorum};

fn client(name: &str) -> KerberosConfig {
    kerberos(name).expect("OXTSDB_TEST_HBASE_KERBEROS is set")
}

async fn connect(kerberos: KerberosConfig) -> Result<NativeStore, StoreError> {
    let config = NativeConfig {
        kerberos: Some(kerberos),
        request_timeout: Duration::from_secs(3),
        ..config(quorum())
    };
    NativeStore::connect(config).await
}

#[tokio::test]
#[ignore = "needs an HBase with Kerberos: tests/hbase/kerberos.sh"]
async fn rejected_logins_are_named() {
    let other = |principal: &str| KerberosConfig {
        principal: principal.parse().unwrap(),
        ..client("oxtsdb")
    };
    let kdc = |kdc: &str| KerberosConfig {
        kdcs: vec![kdc.to_owned()],
        ..client("oxtsdb")
    };
    let server = |principal: &str| KerberosConfig {
        server_principal: principal.parse().unwrap(),
        ..client("oxtsdb")
    };
    for (client, text) in [
        (client("other"), "the key in the keytab is not the client's"),
        (client("gone"), "it does not know the client"),
        (other("sha2@RIG.TEST"), "has no key of `sha2@RIG.TEST`"),
        (other("oxtsdb@OTHER.TEST"), "it has keys of: `oxtsdb@RIG.TEST`"),
        (kdc("127.0.0.1:1"), "no KDC of the realm `RIG.TEST` responds"),
        (server("hdfs/_HOST@RIG.TEST"), "it does not know the server"),
        // HBase has no key of it.
        (
            server("sha2@RIG.TEST"),
            "the server rejects the ticket for `sha2@RIG.TEST`",
        ),
    ] {
        let begun = Instant::now();
        let error = connect(client).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains(text), "`{text}`: {error}");
        assert!(begun.elapsed() < Duration::from_secs(15), "{text}");
    }
}

#[tokio::test]
#[ignore = "needs an HBase with Kerberos: tests/hbase/kerberos.sh"]
async fn a_client_may_have_a_key_of_another_type() {
    connect(client("sha2")).await.unwrap();
}

/// A connection that is opened after its ticket has expired gets another one.
#[tokio::test]
#[ignore = "needs an HBase with Kerberos: tests/hbase/kerberos.sh"]
async fn tickets_are_renewed() {
    let config = NativeConfig {
        kerberos: Some(client("brief")),
        max_reply_bytes: 100_000,
        ..config(quorum())
    };
    let store = NativeStore::connect(config).await.unwrap();
    let table = new_name("tickets");
    store
        .create_table(&TableDef::new(table.clone(), &["t"]))
        .await
        .unwrap();
    let rows = [b"a".to_vec(), b"b".to_vec()];
    let mut batch = WriteBatch::new(table.clone());
    let family = batch.family("t");
    for row in &rows {
        batch.row(row).put(family, b"q", &[7; 60_000]);
    }
    store.write(batch).await.unwrap();

    let ends = |store: &NativeStore| store.kerberos_peers().iter().map(|peer| peer.ticket_ends).max();
    let first = ends(&store).unwrap();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    while now() <= first {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Both rows are too long for one response, which ends the connection; each is requested again over another one.
    let read = store
        .get_rows(&table, &rows, &ColumnSelection::All, None)
        .await
        .unwrap();
    assert!(read.iter().all(Option::is_some));
    assert!(ends(&store).unwrap() > first);
}
