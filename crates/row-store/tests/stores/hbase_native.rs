//! The store over HBase's own RPC against a real HBase: the conformance suite, and scans of several regions.
//!
//! `OXTSDB_TEST_HBASE_QUORUM` and `OXTSDB_TEST_HBASE_MASTERS` name its ZooKeeper and its master, `OXTSDB_TEST_HBASE_TLS` a
//! folder with certificates if it has TLS, `OXTSDB_TEST_HBASE_KERBEROS` one with keytabs if it has Kerberos;
//! `tests/hbase/rig.sh run --no-opentsdb cargo test ... -- --ignored hbase_native::` sets them.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use oxtsdb_row_store::hbase::native::{KerberosConfig, NativeConfig, NativeStore, Principal, Registry};
use oxtsdb_row_store::hbase::{Compression, Hbase as _};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, KeyPart, Row, RowFilter, RowStore, Scan, StoreControl as _, StoreError,
    TableDef, TableName, WriteBatch, conformance,
};
use oxtsdb_tls::testing::Authority;
use oxtsdb_tls::{Credentials, Pem};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

pub(crate) fn quorum() -> Registry {
    Registry::Quorum {
        servers: vec![variable("OXTSDB_TEST_HBASE_QUORUM")],
        parent: "/hbase".to_owned(),
    }
}

/// The credentials for an HBase with TLS.
fn credentials() -> Option<Credentials> {
    let folder = PathBuf::from(std::env::var_os("OXTSDB_TEST_HBASE_TLS")?);
    let file = |name: &str| {
        Some(folder.join(name))
            .filter(|path| path.exists())
            .map(Pem::File)
    };
    Some(Credentials {
        ca: file("ca.pem"),
        identity: file("client.pem").zip(file("client.key")),
    })
}

/// The client `name` for an HBase with Kerberos, with the keytab of its name.
pub(crate) fn kerberos(name: &str) -> Option<KerberosConfig> {
    let folder = PathBuf::from(std::env::var_os("OXTSDB_TEST_HBASE_KERBEROS")?);
    let principal: Principal = format!("{name}@RIG.TEST").parse().unwrap();
    Some(KerberosConfig {
        server_principal: Principal::of_hbase(&principal),
        principal,
        keytab: folder.join(format!("{name}.keytab")),
        kdcs: vec![
            std::fs::read_to_string(folder.join("address"))
                .unwrap()
                .trim()
                .to_owned(),
        ],
    })
}

pub(crate) fn config(registry: Registry) -> NativeConfig {
    NativeConfig {
        kerberos: kerberos("oxtsdb"),
        tls: credentials(),
        ..NativeConfig::new(registry)
    }
}

async fn connect(registry: Registry) -> NativeStore {
    NativeStore::connect(config(registry)).await.unwrap()
}

pub(crate) fn new_name(of: &str) -> TableName {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    format!("native_{nanos:x}_{of}").parse().unwrap()
}

async fn rows(store: &dyn RowStore, table: &TableName, scan: Scan) -> Vec<Row> {
    let stream = store.scan(table, scan).await.unwrap();
    let batches: Vec<Vec<Row>> = stream.try_collect().await.unwrap();
    batches.into_iter().flatten().collect()
}

/// A row without timestamps, which are each store's own: its key, and qualifier and value of its cells.
type Contents = (Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>);

fn contents(rows: &[Row]) -> Vec<Contents> {
    let of_row = |row: &Row| {
        let cells = row
            .cells()
            .map(|cell| (cell.qualifier.to_vec(), cell.value.to_vec()));
        (row.key().to_vec(), cells.collect())
    };
    rows.iter().map(of_row).collect()
}

/// A generator of numbers: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Up to four bytes, of few different ones.
    fn key(&mut self, least: u64) -> Vec<u8> {
        let length = least + self.below(4);
        (0..length)
            .map(|_| [0, 1, 0x7f, 0x80, 0xfe, 0xff][usize::try_from(self.below(6)).unwrap()])
            .collect()
    }
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn conforms() {
    let store = connect(quorum()).await;
    conformance::suite(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn masters_are_a_registry_too() {
    let masters = Registry::Masters(vec![variable("OXTSDB_TEST_HBASE_MASTERS")]);
    let store = connect(masters).await;
    let table = new_name("masters");
    assert!(
        store
            .create_table(&TableDef::new(table.clone(), &["t"]))
            .await
            .unwrap()
    );
    assert_eq!(store.table(&table).await.unwrap().unwrap().families[0].name, "t");
    let cell = CellAddress::new("row", "t", "q");
    assert_eq!(store.increment(&table, &cell, 7).await.unwrap(), 7);
    assert_eq!(store.increment(&table, &cell, 0).await.unwrap(), 7);
}

/// Scans of four regions, in both directions, with all kinds of filters and limits, agree with the store in memory.
#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn scans_of_regions_agree_with_the_memory_store() {
    let (store, model) = (connect(quorum()).await, MemoryStore::new());
    let def = TableDef::new(new_name("regions"), &["t"]);
    let splits = [vec![1], vec![0x7f, 0x80], vec![0xff]];
    assert!(
        store
            .create_table_with(&def, Compression::None, &splits)
            .await
            .unwrap()
    );
    model.create_table(&def).await.unwrap();
    let table = def.name;
    let mut random = Random(7);
    let mut batch = WriteBatch::new(table.clone());
    let family = batch.family("t");
    for _ in 0..600 {
        batch
            .row(&random.key(1))
            .put(family, &random.key(0), &random.key(0));
    }
    for key in [vec![1], vec![0x7f, 0x80], vec![0xff]] {
        batch.row(&key).put(family, b"first of a region", b"");
    }
    store.write(batch.clone()).await.unwrap();
    model.write(batch).await.unwrap();
    for _ in 0..400 {
        let mut scan = match random.below(3) {
            0 => Scan::prefix(&random.key(0)),
            _ => Scan::range(random.key(0), random.key(0)),
        };
        scan.reverse = random.below(2) == 0;
        scan.limit = (random.below(3) == 0).then(|| random.below(20));
        scan.batch_rows = [1, 10, 1_000][usize::try_from(random.below(3)).unwrap()];
        scan.any_order = !scan.reverse && random.below(2) == 0;
        let wanted = [0, 0x80, 0xff][usize::try_from(random.below(3)).unwrap()];
        scan.filter = match random.below(5) {
            0 => None,
            1 => Some(RowFilter::new(move |key| key.contains(&wanted))),
            2 => {
                let part = KeyPart {
                    prefix: Vec::new(),
                    endings: vec![vec![wanted]],
                };
                Some(RowFilter::new(move |key| key.contains(&wanted)).with_parts(vec![part]))
            }
            3 => Some(RowFilter::new(move |key| key.contains(&wanted)).with_seek(|_| None)),
            _ => Some(
                RowFilter::new(move |key| key[0] == wanted).with_ranges(move |start, stop, _| {
                    let (first, behind) = (vec![wanted], prefix_end(wanted));
                    let first = first.max(start.to_vec());
                    let behind = match (stop.is_empty(), behind.is_empty()) {
                        (true, _) => behind,
                        (false, true) => stop.to_vec(),
                        (false, false) => behind.min(stop.to_vec()),
                    };
                    Some(if behind.is_empty() || first < behind {
                        vec![(first, behind)]
                    } else {
                        Vec::new()
                    })
                }),
            ),
        };
        let mut read = contents(&rows(&store, &table, scan.clone()).await);
        let mut expected = contents(&rows(&model, &table, scan.clone()).await);
        if scan.any_order && scan.limit.is_none() {
            read.sort();
            expected.sort();
        }
        assert_eq!(read, expected, "{scan:?}");
    }
}

fn prefix_end(byte: u8) -> Vec<u8> {
    byte.checked_add(1).map(|next| vec![next]).unwrap_or_default()
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn many_rows_and_long_rows_are_read_in_several_fetches() {
    let store = connect(quorum()).await;
    let def = TableDef::new(new_name("many"), &["t"]);
    store
        .create_table_with(&def, Compression::None, &[30_000_u32.to_be_bytes().to_vec()])
        .await
        .unwrap();
    let table = def.name;
    for part in 0..6_u32 {
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family("t");
        for row in part * 10_000..(part + 1) * 10_000 {
            batch.row(&row.to_be_bytes()).put(family, b"q", &[7; 100]);
        }
        store.write(batch).await.unwrap();
    }
    // One row of 8 MiB: four fetches.
    let mut batch = WriteBatch::new(table.clone());
    let family = batch.family("t");
    batch.row(&70_000_u32.to_be_bytes());
    for qualifier in 0..8_u8 {
        batch.put(family, &[qualifier], &vec![qualifier; 1 << 20]);
    }
    store.write(batch).await.unwrap();
    for (reverse, any_order) in [(false, false), (true, false), (false, true)] {
        let mut scan = Scan::range("", "");
        (scan.reverse, scan.any_order) = (reverse, any_order);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for row in rows(&store, &table, scan).await {
            let cells = if row.key() == 70_000_u32.to_be_bytes() {
                8
            } else {
                1
            };
            assert_eq!(row.len(), cells);
            keys.push(row.key().to_vec());
        }
        match (reverse, any_order) {
            (true, _) => keys.reverse(),
            (false, true) => keys.sort(),
            (false, false) => {}
        }
        assert_eq!(keys.len(), 60_001);
        assert!(keys.is_sorted());
    }
    let keys: Vec<Vec<u8>> = (0..60_000_u32)
        .step_by(7)
        .map(|row| row.to_be_bytes().to_vec())
        .collect();
    let read = store
        .get_rows(&table, &keys, &ColumnSelection::All, None)
        .await
        .unwrap();
    assert!(
        read.iter()
            .zip(&keys)
            .all(|(row, key)| row.as_ref().is_some_and(|row| row.key() == key))
    );
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn errors_name_the_server_and_the_cause() {
    let config = |registry| NativeConfig {
        connect_timeout: Duration::from_secs(1),
        request_timeout: Duration::from_secs(2),
        ..config(registry)
    };
    let Registry::Quorum { servers, .. } = quorum() else {
        panic!("a quorum")
    };
    let wrong_parent = Registry::Quorum {
        servers,
        parent: "/other".to_owned(),
    };
    for (registry, text) in [
        (wrong_parent, "znode `/other/master` does not exist"),
        (
            Registry::Masters(vec!["127.0.0.1:1".to_owned()]),
            "127.0.0.1:1: cannot connect",
        ),
        (
            Registry::Masters(vec![variable("OXTSDB_TEST_HBASE")]),
            "HBase's active master is unknown",
        ),
        (
            Registry::Quorum {
                servers: vec![variable("OXTSDB_TEST_HBASE_MASTERS")],
                parent: "/hbase".to_owned(),
            },
            "HBase's active master is unknown",
        ),
    ] {
        let begun = Instant::now();
        let error = NativeStore::connect(config(registry)).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains(text), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

/// Connections of the other kind fail, and the error names the flag: plain text to an HBase with TLS, without a certificate
/// if it requires one, with a foreign authority; TLS to an HBase without it; without a ticket to one with Kerberos.
#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn other_security_than_the_servers_is_named() {
    let foreign = Credentials {
        ca: Some(Pem::Bytes(Authority::new("others").unwrap().pem().into_bytes())),
        identity: None,
    };
    let mut cases = Vec::new();
    match credentials() {
        Some(credentials) => {
            cases.push((None, "(--hbase-tls)"));
            cases.push((Some(foreign), "its authority is not trusted"));
            if credentials.identity.is_some() {
                let without = Credentials {
                    identity: None,
                    ..credentials
                };
                cases.push((Some(without), "(--hbase-tls-certificate)"));
            }
        }
        None => cases.push((Some(foreign), "TLS (--hbase-tls)")),
    }
    for (tls, text) in cases {
        let config = NativeConfig {
            tls,
            request_timeout: Duration::from_secs(2),
            ..config(quorum())
        };
        let error = NativeStore::connect(config).await.unwrap_err();
        assert!(error.to_string().contains(text), "`{text}`: {error}");
    }
    if kerberos("oxtsdb").is_some() {
        let config = NativeConfig {
            kerberos: None,
            request_timeout: Duration::from_secs(2),
            ..config(quorum())
        };
        let error = NativeStore::connect(config).await.unwrap_err();
        assert!(
            error.to_string().contains("(--hbase-kerberos-principal)"),
            "{error}"
        );
    }
    let store = connect(quorum()).await;
    let peers = store.tls_peers();
    assert_eq!(peers.is_empty(), credentials().is_none(), "{peers:?}");
    let servers: Vec<_> = store
        .kerberos_peers()
        .into_iter()
        .map(|peer| peer.principal)
        .collect();
    match kerberos("oxtsdb") {
        Some(_) => {
            assert!(servers.iter().all(|server| server == "hbase/localhost@RIG.TEST") && !servers.is_empty())
        }
        None => assert_eq!(servers, [] as [String; 0]),
    }
}
