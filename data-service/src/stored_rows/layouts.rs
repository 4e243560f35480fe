//! Tables with salt, with other UID widths, under other names.

use super::*;

struct Layout {
    salt_width: usize,
    salt_buckets: u32,
    /// Of metrics, tag keys and tag values.
    widths: (usize, usize, usize),
}

impl Layout {
    fn settings(&self) -> (DataSettings, UidSettings) {
        let mut data = DataSettings::default();
        data.tables.salt_width = self.salt_width;
        data.tables.salt_buckets = self.salt_buckets;
        data.tables.data_table = "ops:metrics".to_owned();
        let mut uids = UidSettings::default();
        uids.tables.uid_table = "ops:metrics-uid".to_owned();
        uids.tables.uid_width_metric = self.widths.0;
        uids.tables.uid_width_tagk = self.widths.1;
        uids.tables.uid_width_tagv = self.widths.2;
        (data, uids)
    }

    async fn tsdb(&self, metrics: &[&str], tagks: &[&str], tagvs: &[&str]) -> Tsdb {
        let (data, uids) = self.settings();
        Tsdb::start(data, uids, metrics, tagks, tagvs).await
    }
}

/// V73 to V77: 1 byte of salt, 20 buckets.
#[tokio::test]
async fn finds_rows_in_all_salt_buckets() {
    let layout = Layout {
        salt_width: 1,
        salt_buckets: 20,
        widths: (3, 3, 3),
    };
    let (metrics, tagks, tagvs) = (
        ["sys.cpu.user", "sys.mem.free"],
        ["host", "dc"],
        ["web01", "web02", "lax"],
    );
    let tsdb = layout.tsdb(&metrics, &tagks, &tagvs).await;
    for (row_key, cell) in [
        ("0800000150e22700000001000001", ("0000", "01", 1)),
        ("0800000150e23510000001000001", ("0000", "02", 1)),
        ("0900000150e22700000001000002", ("0000", "01", 1)),
        ("0a00000250e22700000001000001000002000003", ("0000", "01", 1)),
        (
            "0b00000250e22700000001000002000002000003",
            ("f0007d0b", "40200000", 1),
        ),
        // Annotations: of a series in its row, global in one without salt and metric.
        ("0800000150e22700000001000001", ("010005", "7b7d", 1)),
        ("0000000050e22700", ("010005", "7b7d", 1)),
    ] {
        tsdb.plant(row_key, &[cell]).await;
    }
    let (cpu, statistics) = tsdb.query("sys.cpu.user", "host").await.unwrap();
    let expected = [
        ("web01", vec![(0, Int(1)), (3_600_000, Int(2))]),
        ("web02", vec![(0, Int(1))]),
    ];
    assert_eq!(
        cpu,
        expected.map(|(host, points)| (host.to_owned(), points)).into()
    );
    assert_eq!((statistics.rows, statistics.skipped_cells), (3, 1));
    let (memory, _) = tsdb.query("sys.mem.free", "host").await.unwrap();
    let expected = [("web01", vec![(0, Int(1))]), ("web02", vec![(500, Double(2.5))])];
    assert_eq!(
        memory,
        expected.map(|(host, points)| (host.to_owned(), points)).into()
    );
    for (metric, host, points) in [
        ("sys.cpu.user", "web01", vec![(0, Int(1)), (3_600_000, Int(2))]),
        ("sys.mem.free", "web02", vec![(500, Double(2.5))]),
    ] {
        assert_eq!(http_points(&tsdb.http_query(metric, "host", host).await), points);
    }
    assert_eq!(tsdb.last("000001000001000001").await, Some(3_600_000));
    assert_eq!(tsdb.scan("sys.cpu.user").await.len(), 3);
}

/// V81 and V82: 2 bytes of salt, 1000 buckets, UIDs of 4, 2 and 5 bytes.
#[tokio::test]
async fn reads_uids_of_the_configured_widths() {
    let layout = Layout {
        salt_width: 2,
        salt_buckets: 1000,
        widths: (4, 2, 5),
    };
    let tsdb = layout
        .tsdb(&["sys.cpu.user"], &["host", "dc"], &["web01", "web02", "lax"])
        .await;
    tsdb.plant("00ce0000000150e2270000010000000001", &[("0000", "01", 1)])
        .await;
    tsdb.plant(
        "01860000000150e227000001000000000200020000000003",
        &[("0011", "fed4", 1)],
    )
    .await;
    let (series, _) = tsdb.query("sys.cpu.user", "host").await.unwrap();
    let expected = [("web01", vec![(0, Int(1))]), ("web02", vec![(1000, Int(-300))])];
    assert_eq!(
        series,
        expected.map(|(host, points)| (host.to_owned(), points)).into()
    );
    assert_eq!(tsdb.last("0000000100010000000002").await, None);
    assert_eq!(
        tsdb.last("000000010001000000000200020000000003").await,
        Some(1000)
    );
}

/// V83 and V84: UIDs of 4 bytes, nine tags.
#[tokio::test]
async fn stores_as_many_tags_as_configured() {
    let layout = Layout {
        salt_width: 0,
        salt_buckets: 1,
        widths: (4, 4, 4),
    };
    let tagks = ["host", "a", "b", "c", "d", "e", "f", "g", "h"];
    let tsdb = layout.tsdb(&["sys.cpu.user"], &tagks, &["web01"]).await;
    tsdb.plant("0000000150e227000000000100000001", &[("0000", "01", 1)])
        .await;
    let tags = "0000000100000001000000020000000100000003000000010000000400000001000000050000000100000006\
                000000010000000700000001000000080000000100000009000000 01"
        .replace(' ', "");
    tsdb.plant(&format!("0000000150e22700{tags}"), &[("f0000040", "02", 1)])
        .await;
    let rows = tsdb.scan("sys.cpu.user").await;
    assert_eq!(rows.len(), 2);
    let response = tsdb.http_query("sys.cpu.user", "h", "web01").await;
    assert_eq!(http_points(&response), [(1, Int(2))]);
}

/// Every width of salt and UIDs, written through the service and read again.
#[tokio::test]
async fn writes_and_reads_all_widths() {
    let mut layouts = Vec::new();
    for width in 1..=8 {
        layouts.extend([
            (0, 1, (width, 3, 3)),
            (1, 20, (3, width, 3)),
            (width, 300, (3, 3, width)),
            (width, 7, (9 - width, width, 9 - width)),
            (width, 1, (width, width, width)),
        ]);
    }
    for (salt_width, salt_buckets, widths) in layouts {
        let layout = Layout {
            salt_width,
            salt_buckets,
            widths,
        };
        let hosts = ["a", "b", "c", "d"];
        let tsdb = layout.tsdb(&["other", "m"], &["dc", "host"], &["lga"]).await;
        let points: Vec<_> = hosts
            .iter()
            .enumerate()
            .map(|(number, host)| {
                json!({
                    "metric": "m",
                    "timestamp": HOUR_MS / 1000 + 3600 * (i64::try_from(number).unwrap() % 2),
                    "value": number,
                    "tags": {"host": host, "dc": "lga"},
                })
            })
            .collect();
        let response = tsdb
            .http
            .post("/api/put?details", json!(points).to_string())
            .await;
        assert_eq!(response.status, 200, "{}", response.text());
        let (series, statistics) = tsdb.query("m", "host").await.unwrap();
        let expected: BTreeMap<String, Points> = (0..)
            .zip(hosts)
            .map(|(number, host)| (host.to_owned(), vec![(3_600_000 * (number % 2), Int(number))]))
            .collect();
        assert_eq!(
            series, expected,
            "salt {salt_width}/{salt_buckets}, UIDs {widths:?}"
        );
        assert_eq!(statistics.rows, 4);
        for (host, points) in &expected {
            assert_eq!(http_points(&tsdb.http_query("m", "host", host).await), *points);
        }
        let rows = tsdb.scan("m").await;
        assert_eq!(rows.len(), 4);
        for row in rows {
            let last = tsdb.last(&hex::encode(row.tsuid)).await;
            assert_eq!(last, Some(row.base_timestamp_ms - HOUR_MS));
        }
    }
}
