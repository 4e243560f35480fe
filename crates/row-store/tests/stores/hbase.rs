//! The HBase store against a real HBase: the conformance suite, directly and through a network that breaks.
//!
//! `OXTSDB_TEST_HBASE` names its Thrift gateways, as `host:port[,host:port]`;
//! `tests/hbase/rig.sh run --no-opentsdb cargo test ... -- --ignored hbase::` sets it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::proxy::Proxy;
use crate::support::real_gateways;
use futures::{StreamExt, TryStreamExt};
use oxtsdb_row_store::hbase::thrift::{ThriftConfig, ThriftStore};
use oxtsdb_row_store::hbase::{Compression, Hbase as _};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, FamilyDef, Retry, Row, RowFilter, RowStore, Scan, StoreControl as _,
    StoreError, TableDef, TableName, WriteBatch, conformance,
};

async fn connect(gateways: &[String]) -> ThriftStore {
    ThriftStore::connect(ThriftConfig::new(gateways)).await.unwrap()
}

/// A name unique to this run.
fn new_name(of: &str) -> TableName {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    format!("hbase_{nanos:x}_{of}").parse().unwrap()
}

async fn new_table(store: &dyn RowStore, of: &str) -> TableName {
    let name = new_name(of);
    assert!(
        store
            .create_table(&TableDef::new(name.clone(), &["t"]))
            .await
            .unwrap()
    );
    name
}

async fn all_rows(store: &dyn RowStore, table: &TableName, scan: Scan) -> Result<Vec<Row>, StoreError> {
    let stream = store.scan(table, scan).await?;
    let batches: Vec<Vec<Row>> = stream.try_collect().await?;
    Ok(batches.into_iter().flatten().collect())
}

async fn row(store: &dyn RowStore, table: &TableName, key: &[u8]) -> Option<Row> {
    store.get(table, key, &ColumnSelection::All).await.unwrap()
}

/// Rows of 20 cells with values of 50 bytes.
fn many_rows(table: &TableName, keys: std::ops::Range<u32>) -> WriteBatch {
    let mut batch = WriteBatch::new(table.clone());
    let family = batch.family("t");
    for key in keys {
        batch.row(&key.to_be_bytes());
        for qualifier in 0..20_u8 {
            batch.put(family, &[qualifier], &[qualifier; 50]);
        }
    }
    batch
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn conforms() {
    let gateways = real_gateways();
    let store = connect(&gateways).await;
    conformance::suite(&store).await;
    store.close().await.unwrap();
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn scans_agree_with_the_memory_store() {
    let gateways = real_gateways();
    let (store, model) = (connect(&gateways).await, MemoryStore::new());
    let table = new_table(&store, "scans").await;
    model
        .create_table(&TableDef::new(table.clone(), &["t"]))
        .await
        .unwrap();
    let mut random = Random(1);
    let mut batch = WriteBatch::new(table.clone());
    let family = batch.family("t");
    for _ in 0..400 {
        batch
            .row(&random.key(1))
            .put(family, &random.key(0), &random.key(0));
    }
    store.write(batch.clone()).await.unwrap();
    model.write(batch).await.unwrap();
    for _ in 0..300 {
        let mut scan = match random.below(3) {
            0 => Scan::prefix(&random.key(0)),
            _ => Scan::range(random.key(0), random.key(0)),
        };
        scan.reverse = random.below(2) == 0;
        scan.limit = (random.below(3) == 0).then(|| random.below(20));
        scan.batch_rows = [1, 10, 1_000][usize::try_from(random.below(3)).unwrap()];
        let (rows, expected) = (
            all_rows(&store, &table, scan.clone()).await.unwrap(),
            all_rows(&model, &table, scan.clone()).await.unwrap(),
        );
        assert_eq!(contents(&rows), contents(&expected), "{scan:?}");
    }
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn selective_scan_finds_few_of_many_rows() {
    let gateways = real_gateways();
    let (store, model) = (connect(&gateways).await, MemoryStore::new());
    let table = new_table(&store, "selective").await;
    model
        .create_table(&TableDef::new(table.clone(), &["t"]))
        .await
        .unwrap();
    let mut batch = WriteBatch::new(table.clone());
    let family = batch.family("t");
    for row in 0..3_000_u16 {
        for qualifier in [b"1", b"2", b"3"] {
            batch.row(&row.to_be_bytes()).put(family, qualifier, &[0x80]);
        }
    }
    store.write(batch.clone()).await.unwrap();
    model.write(batch).await.unwrap();
    let number = |key: &[u8]| u64::from(u16::from_be_bytes([key[0], key[1]]));
    let mut random = Random(2);
    for _ in 0..60 {
        // The first `matching` of each `stride` rows: from one in a thousand to all.
        let most = [3, 40, 1_500][usize::try_from(random.below(3)).unwrap()];
        let stride = 1 + random.below(most);
        let matching = 1 + random.below(stride.min(100));
        let filter = RowFilter::new(move |key| number(key) % stride < matching);
        let filter = match random.below(3) {
            0 => filter.with_seek(|_| None),
            _ => filter.with_seek(move |key| {
                let next = (number(key) / stride + 1) * stride;
                Some(u16::try_from(next).unwrap_or(u16::MAX).to_be_bytes().to_vec())
            }),
        };
        let end = |random: &mut Random| u16::try_from(random.below(3_100)).unwrap().to_be_bytes();
        let (one, other) = (end(&mut random), end(&mut random));
        let mut scan = Scan::range(one.min(other), one.max(other));
        scan.filter = Some(filter);
        scan.batch_rows = [1, 10, 1_000][usize::try_from(random.below(3)).unwrap()];
        let (rows, expected) = (
            all_rows(&store, &table, scan.clone()).await.unwrap(),
            all_rows(&model, &table, scan.clone()).await.unwrap(),
        );
        assert_eq!(
            contents(&rows),
            contents(&expected),
            "{matching} of {stride}: {scan:?}"
        );
    }
}

/// Rows without their timestamps.
fn contents(rows: &[Row]) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let cells = rows.iter().flat_map(|row| {
        row.cells()
            .map(|cell| (row.key().to_vec(), cell.qualifier.to_vec(), cell.value.to_vec()))
    });
    cells.collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// A few bytes, including ones that are special to HBase or Thrift.
    fn key(&mut self, shortest: u64) -> Vec<u8> {
        let length = shortest + self.below(4 - shortest);
        (0..length)
            .map(|_| [0, 1, b':', 0x7f, 0x80, 0xff][usize::try_from(self.below(6)).unwrap()])
            .collect()
    }
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn splits_a_batch_into_several_calls() {
    let gateways = real_gateways();
    let store = connect(&gateways).await;
    let table = new_name("batches");
    let def = TableDef {
        name: table.clone(),
        families: vec![FamilyDef {
            name: "t".to_owned(),
            max_versions: 10,
            ttl: None,
        }],
    };
    store.create_table(&def).await.unwrap();
    let mut batch = WriteBatch::new(table.clone());
    let t = batch.family("t");
    // Several timestamps in one row, and one cell twice.
    batch
        .row(b"times")
        .put_at(t, b"a", 1_000, b"1")
        .put_at(t, b"a", 2_000, b"2");
    batch.put_at(t, b"a", 2_000, b"3").put_at(t, b"b", 1_000, b"4");
    // A row that is begun twice; the last of two puts wins.
    batch.row(b"twice").put(t, b"a", b"1");
    batch.row(b"between").put(t, b"a", b"1");
    batch.row(b"twice").put(t, b"a", b"2").put(t, b"b", b"3");
    // Alternating puts and deletes.
    batch
        .row(b"turns")
        .put(t, b"a", b"1")
        .delete_column(t, b"a")
        .put(t, b"a", b"2");
    batch.row(b"gone").put(t, b"a", b"1").delete_row();
    batch
        .row(b"back")
        .put(t, b"a", b"1")
        .put(t, b"b", b"1")
        .delete_family(t)
        .put(t, b"b", b"2");
    store.write(batch).await.unwrap();
    let cells = async |key: &[u8]| {
        let row = row(&store, &table, key).await?;
        let cells = row
            .cells()
            .map(|cell| (cell.qualifier.to_vec(), cell.value.to_vec()));
        Some(cells.collect::<Vec<_>>())
    };
    let cell = |qualifier: &str, value: &str| (qualifier.as_bytes().to_vec(), value.as_bytes().to_vec());
    assert_eq!(cells(b"times").await.unwrap(), [cell("a", "3"), cell("b", "4")]);
    assert_eq!(cells(b"twice").await.unwrap(), [cell("a", "2"), cell("b", "3")]);
    assert_eq!(cells(b"between").await.unwrap(), [cell("a", "1")]);
    assert_eq!(cells(b"turns").await.unwrap(), [cell("a", "2")]);
    assert_eq!(cells(b"gone").await, None);
    assert_eq!(cells(b"back").await.unwrap(), [cell("b", "2")]);
    let mut scan = Scan::prefix(b"times");
    scan.max_versions = 9;
    let rows = all_rows(&store, &table, scan).await.unwrap();
    let versions: Vec<i64> = rows[0].cells().map(|cell| cell.timestamp_ms).collect();
    assert_eq!(versions, [2_000, 1_000, 1_000]);
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn reports_hbase_rejections() {
    let gateways = real_gateways();
    let store = connect(&gateways).await;
    let table = new_table(&store, "refused").await;
    let put = |timestamp_ms: Option<i64>, value: &[u8]| {
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family("t");
        match timestamp_ms {
            Some(timestamp_ms) => batch.row(b"row").put_at(family, b"q", timestamp_ms, value),
            None => batch.row(b"row").put(family, b"q", value),
        };
        store.write(batch)
    };
    for timestamp_ms in [-1, i64::MAX] {
        let error = put(Some(timestamp_ms), b"v").await.unwrap_err();
        assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
        assert!(error.to_string().contains(&timestamp_ms.to_string()), "{error}");
    }
    let error = put(None, &vec![7; 15 << 20]).await.unwrap_err();
    assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("KeyValue size too large"), "{error}");
    let mut def = TableDef::new(new_name("ttl"), &["t"]);
    def.families[0].ttl = Some(Duration::from_millis(1_500));
    let error = store.create_table(&def).await.unwrap_err();
    assert!(
        error.to_string().contains("1.5s, HBase needs whole seconds"),
        "{error}"
    );
    assert_eq!(row(&store, &table, b"row").await, None);
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn creates_tables_with_the_requested_settings() {
    let gateways = real_gateways();
    let store = connect(&gateways).await;
    let family = |name: &str, max_versions, ttl| FamilyDef {
        name: name.to_owned(),
        max_versions,
        ttl,
    };
    let mut def = TableDef {
        name: new_name("settings"),
        families: vec![
            family("t", 3, Some(Duration::from_secs(86_400))),
            family("name", 1, None),
            // It sorts before `t:`, though `t` sorts before it.
            family("t-x", 2, None),
        ],
    };
    assert!(store.create_table_with(&def, Compression::Gz, &[]).await.unwrap());
    assert!(!store.create_table(&def).await.unwrap(), "it is there");
    let mut batch = WriteBatch::new(def.name.clone());
    let (long, short) = (batch.family("t-x"), batch.family("t"));
    batch.row(b"row").put(long, b"q", b"2").put(short, b"q", b"1");
    store.write(batch).await.unwrap();
    let in_order = ["t", "t-x"];
    let got = row(&store, &def.name, b"row").await.unwrap();
    assert!(got.cells().map(|cell| cell.family).eq(in_order), "{got:?}");
    let rows = all_rows(&store, &def.name, Scan::prefix(b"")).await.unwrap();
    assert!(rows[0].cells().map(|cell| cell.family).eq(in_order), "{rows:?}");
    let tables = store.tables().await.unwrap();
    let listed = tables.iter().find(|table| table.name == def.name).unwrap();
    def.families.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(*listed, def);
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn recovers_acknowledged_writes_from_any_truncation() {
    let gateways = real_gateways();
    let direct = connect(&gateways).await;
    let table = new_table(&direct, "cut").await;
    let proxy = Proxy::start(&gateways[0]);
    let store = connect(std::slice::from_ref(&proxy.address)).await;
    let writes = futures::stream::iter((0..200_u32).map(|number| {
        let (store, proxy) = (&store, &proxy);
        let batch = many_rows(&table, number * 10..number * 10 + 10);
        async move {
            if number % 10 == 0 {
                proxy.cut();
            }
            // More cuts than a request has attempts are reported; the test then retries.
            while let Err(error) = store.write(batch.clone()).await {
                assert_ne!(error.retry(), Retry::Never, "{error}");
            }
        }
    }));
    writes.buffer_unordered(8).collect::<()>().await;
    let rows = all_rows(&direct, &table, Scan::prefix(b"")).await.unwrap();
    assert!(
        rows.iter()
            .map(|row| row.key().to_vec())
            .eq((0..2_000_u32).map(|key| key.to_be_bytes().to_vec()))
    );
    assert!(rows.iter().all(|row| row.len() == 20));
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn scan_is_complete_for_every_batch_size() {
    let gateways = real_gateways();
    let direct = connect(&gateways).await;
    let table = new_table(&direct, "scan_cut").await;
    direct.write(many_rows(&table, 0..1_000)).await.unwrap();
    let proxy = Proxy::start(&gateways[0]);
    let store = connect(std::slice::from_ref(&proxy.address)).await;
    for reverse in [false, true] {
        let mut scan = Scan::prefix(b"");
        scan.reverse = reverse;
        let expected = all_rows(&direct, &table, scan.clone()).await.unwrap();
        assert_eq!(expected.len(), 1_000);
        for cut_at in (0..1_600_000).step_by(170_001) {
            proxy.cut_after(cut_at);
            let rows = all_rows(&store, &table, scan.clone()).await.unwrap();
            assert_eq!(rows, expected, "cut after {cut_at} bytes");
        }
    }
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn stalled_gateway_times_out() {
    let gateways = real_gateways();
    let direct = connect(&gateways).await;
    let table = new_table(&direct, "stall").await;
    direct.write(many_rows(&table, 0..10)).await.unwrap();
    let proxy = Proxy::start(&gateways[0]);
    let mut config = ThriftConfig::new([proxy.address.as_str()]);
    config.connections = 1;
    config.request_timeout = Duration::from_millis(500);
    config.connect_timeout = Duration::from_millis(500);
    let store = ThriftStore::connect(config).await.unwrap();
    for round in 0..3_u32 {
        proxy.stall();
        let started = std::time::Instant::now();
        let key = round.to_be_bytes();
        let error = store.get(&table, &key, &ColumnSelection::All).await.unwrap_err();
        assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
        let error = store.check_health().await.unwrap_err();
        assert_eq!(error.retry(), Retry::Safe, "{error}");
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "{:?}",
            started.elapsed()
        );
        proxy.resume();
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while let Err(error) = store.check_health().await {
            assert!(std::time::Instant::now() < deadline, "{error}");
        }
        // A late response would be for another row.
        let other = (round + 5).to_be_bytes();
        let row = row(&store, &table, &other).await.unwrap();
        assert_eq!(row.key(), other);
    }
}

#[tokio::test]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn never_repeats_an_increment() {
    let gateways = real_gateways();
    let direct = connect(&gateways).await;
    let table = new_table(&direct, "increments").await;
    let proxy = Proxy::start(&gateways[0]);
    let mut config = ThriftConfig::new([proxy.address.as_str()]);
    config.connections = 2;
    let store = ThriftStore::connect(config).await.unwrap();
    let cell = CellAddress::new("row", "t", "q");
    let (mut done, mut unknown) = (0_i64, 0_i64);
    for number in 0..100 {
        if number % 5 == 0 {
            proxy.cut_after(10);
        }
        match store.increment(&table, &cell, 1).await {
            Ok(_) => done += 1,
            Err(error) => {
                assert_eq!(error.retry(), Retry::IfIdempotent, "{error}");
                unknown += 1;
            }
        }
    }
    let sum = direct.increment(&table, &cell, 0).await.unwrap();
    assert!(
        (done..=done + unknown).contains(&sum),
        "{sum} of {done} and perhaps {unknown}"
    );
    assert!(unknown > 0, "some were cut");
}
