//! Points in all forms that OpenTSDB has stored, and cells that are not points.

use oxtsdb_proto::data::v1::CellType;

use super::*;

/// A series, the cells of its row, and its points.
type Case = (&'static str, Vec<Cell>, Points);

/// Rows that have the same points with every setting.
fn cases() -> Vec<Case> {
    let seconds = vec![
        (0, Int(1)),
        (10_000, Int(300)),
        (20_000, Int(-5)),
        (30_000, Double(4.5)),
    ];
    let mixed = vec![
        (0, Int(1)),
        (500, Double(2.5)),
        (1000, Double(0.1)),
        (1500, Int(70_000)),
    ];
    let with_one_more = vec![
        (0, Int(1)),
        (10_000, Int(300)),
        (15_000, Int(9)),
        (20_000, Int(-5)),
        (30_000, Double(4.5)),
    ];
    let appended = vec![
        (0, Int(1)),
        (10_000, Int(300)),
        (20_000, Int(-5)),
        (30_000, Double(4.5)),
        (40_000, Double(0.1)),
    ];
    vec![
        // V59: before and after the compaction, and without the meta byte.
        (
            "single",
            vec![
                ("0000", "01", 1),
                ("00a1", "012c", 1),
                ("0140", "fb", 1),
                ("01eb", "40900000", 1),
            ],
            seconds.clone(),
        ),
        (
            "compacted",
            vec![("000000a1014001eb", "01012cfb4090000000", 1)],
            seconds.clone(),
        ),
        (
            "without-meta-byte",
            vec![("000000a1014001eb", "01012cfb40900000", 1)],
            seconds.clone(),
        ),
        (
            "strange-meta-byte",
            vec![("000000a1014001eb", "01012cfb4090000002", 1)],
            seconds,
        ),
        // V60, and with the meta byte of one resolution, which a wrong compaction wrote.
        (
            "mixed",
            vec![(
                "0000f0007d0b001ff0017703",
                "01402000003fb999999999999a0001117001",
                1,
            )],
            mixed.clone(),
        ),
        (
            "mixed-wrong-meta-byte",
            vec![(
                "0000f0007d0b001ff0017703",
                "01402000003fb999999999999a0001117000",
                1,
            )],
            mixed,
        ),
        // V61, V62
        (
            "millis",
            vec![("f0000040fdbb9fc0", "010200", 1)],
            vec![(1, Int(1)), (3_599_999, Int(2))],
        ),
        ("alone", vec![("e0f0", "2a", 1)], vec![(3_599_000, Int(42))]),
        // V63: a compacted cell and a point written later; then between the put of the new compacted
        // cell and the deletes of what went into it.
        (
            "compacted-and-later",
            vec![("000000a1014001eb", "01012cfb4090000000", 1), ("00f0", "09", 2)],
            with_one_more.clone(),
        ),
        (
            "half-way",
            vec![
                ("000000a100f0014001eb", "01012c09fb4090000000", 3),
                ("000000a1014001eb", "01012cfb4090000000", 1),
                ("00f0", "09", 2),
            ],
            with_one_more,
        ),
        // V85 to V88: appended, out of order and with an instant twice too.
        (
            "appended",
            vec![(
                "050000",
                "00000100a1012c0140fb01eb40900000028f3fb999999999999a",
                1,
            )],
            appended,
        ),
        (
            "appended-millis",
            vec![("050000", "f0007d0001001002fdbb9fc003", 1)],
            vec![(500, Int(1)), (1000, Int(2)), (3_599_999, Int(3))],
        ),
        (
            "appended-disorder",
            vec![("050000", "01e00300a00101400200a063014b40200000", 1)],
            vec![(10_000, Int(99)), (20_000, Double(2.5)), (30_000, Int(3))],
        ),
        // A table with writers that changed from one form to the other.
        (
            "all-three",
            vec![
                ("00000020", "010300", 1),
                ("0010", "02", 2),
                ("050000", "003004005006", 3),
                ("f003e800", "05", 4),
            ],
            (0..6).map(|n| (n * 1000, Int(n + 1))).collect(),
        ),
        // V66 to V68: floats on 8 bytes, lengths that the flags do not say.
        (
            "float-on-8-bytes",
            vec![("000b", "0000000040200000", 1), ("001b", "40200000", 1)],
            vec![(0, Double(2.5)), (1000, Double(2.5))],
        ),
        (
            "wrong-lengths",
            vec![
                ("0007", "05", 1),
                ("0010", "0000000000000009", 1),
                ("002f", "40200000", 1),
            ],
            vec![(0, Int(5)), (1000, Int(9)), (2000, Double(2.5))],
        ),
        // V69: a compacted cell that does not ascend.
        (
            "disorder",
            vec![("00100000", "020100", 1)],
            vec![(0, Int(1)), (1000, Int(2))],
        ),
        // The same value twice is one point, whatever cells it is in.
        (
            "equal",
            vec![
                ("0000", "01", 1),
                ("00000010", "010200", 1),
                ("0010", "02", 2),
                ("f0000000", "01", 3),
                ("050000", "001002", 4),
            ],
            vec![(0, Int(1)), (1000, Int(2))],
        ),
    ]
}

/// Metric `m` with a series for each name; see [`row_key`].
async fn tsdb(settings: DataSettings, names: &[&str]) -> Tsdb {
    Tsdb::start(settings, UidSettings::default(), &["m"], &["case"], names).await
}

/// The row of the name with this number, from 0.
fn row_key(number: usize) -> String {
    format!("00000150e22700000001{:06x}", number + 1)
}

fn tsuid(number: usize) -> String {
    row_key(number).replacen("50e22700", "", 1)
}

#[tokio::test]
async fn reads_points_from_cells_of_all_forms() {
    let cases = cases();
    let names: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    let tsdb = tsdb(DataSettings::default(), &names).await;
    for (number, (_, cells, _)) in cases.iter().enumerate() {
        tsdb.plant(&row_key(number), cells).await;
    }
    let (series, statistics) = tsdb.query("m", "case").await.unwrap();
    let rows = tsdb.scan("m").await;
    assert_eq!(rows.len(), cases.len());
    for (number, (name, cells, points)) in cases.iter().enumerate() {
        assert_eq!(series[*name], *points, "{name}");
        let over_http = http_points(&tsdb.http_query("m", "case", name).await);
        assert_eq!(over_http, as_returned(points), "{name} over HTTP");
        let last = points.last().map(|(time_ms, _)| *time_ms);
        assert_eq!(tsdb.last(&tsuid(number)).await, last, "{name}");
        // Cells are shown as they are, each with its points.
        let row = rows
            .iter()
            .find(|row| hex::encode(&row.row_key) == row_key(number))
            .unwrap();
        assert_eq!(row.cells.len(), cells.len(), "{name}");
        assert!(
            row.cells
                .iter()
                .all(|cell| cell.error.is_none() && !cell.points.is_empty()),
            "{name}"
        );
    }
    let total: usize = cases.iter().map(|(_, _, points)| points.len()).sum();
    assert_eq!((statistics.points, statistics.skipped_cells), (total as u64, 0));
    // `half-way`: six points are there twice; `appended-disorder`: two, `equal`: four of two.
    assert_eq!(statistics.duplicates, 5 + 2 + 4);
}

/// V116: a point every 100 ms, compacted in chunks of 4096.
#[tokio::test]
async fn reads_a_row_with_very_long_cells() {
    let tsdb = tsdb(DataSettings::default(), &["long"]).await;
    let points: Vec<_> = (0..36_000)
        .map(|n| {
            let timestamp = oxtsdb_schema::Timestamp::from_millis(HOUR_MS + n * 100).unwrap();
            (timestamp, oxtsdb_schema::Value::Int(n % 100))
        })
        .collect();
    let mut batch = WriteBatch::new(tsdb.table.clone());
    let family = batch.family("t");
    batch.row(&hex::decode(row_key(0)).unwrap());
    for chunk in points.chunks(4096) {
        let (qualifier, value) = oxtsdb_schema::row::compact(chunk.iter().copied()).unwrap();
        batch.put(family, &qualifier, &value);
    }
    tsdb.store.write(batch).await.unwrap();
    let (series, _) = tsdb.query("m", "case").await.unwrap();
    let expected: Points = (0..36_000).map(|n| (n * 100, Int(n % 100))).collect();
    assert_eq!(series["long"], expected);
}

#[tokio::test]
async fn skips_and_counts_cells_without_points() {
    let annotation = "7b22737461727454696d65223a317d";
    let histogram = "2a0001000000003f800000050000";
    let others = [
        ("01003d", annotation, 9, CellType::Annotation),
        ("010000f03c", annotation, 9, CellType::Annotation),
        ("060005", histogram, 9, CellType::Histogram),
        ("060000157c", histogram, 9, CellType::Histogram),
        // A rollup, and an unknown cell.
        ("020020", "f7", 9, CellType::Unknown),
        ("00", "01", 9, CellType::Unknown),
        ("ffffffffffffff", "01", 9, CellType::Unknown),
        ("", "01", 9, CellType::Unknown),
    ];
    let tsdb = tsdb(DataSettings::default(), &["points", "none"]).await;
    let cells: Vec<Cell> = others.iter().map(|(q, v, at, _)| (*q, *v, *at)).collect();
    let points: [Cell; 2] = [("00000010", "010200", 1), ("0020", "03", 1)];
    tsdb.plant(&row_key(0), &[&cells[..], &points].concat()).await;
    tsdb.plant(&row_key(1), &cells).await;
    // A row of global annotations belongs to no metric.
    tsdb.plant("00000050e22700", &[("01003d", annotation, 9)]).await;

    let (series, statistics) = tsdb.query("m", "case").await.unwrap();
    let expected = vec![(0, Int(1)), (1000, Int(2)), (2000, Int(3))];
    assert_eq!(series["points"], expected);
    assert_eq!(series.get("none").map_or(0, Vec::len), 0);
    assert_eq!(statistics.skipped_cells, 2 * cells.len() as u64);
    let reported = tsdb.http.get("/api/stats").await.json();
    let mut lines = reported
        .as_array()
        .unwrap()
        .iter()
        .filter(|line| line["metric"] == "oxtsdb.query.skipped_cells");
    assert_eq!(
        lines.next().unwrap()["value"],
        statistics.skipped_cells.to_string()
    );
    assert_eq!(statistics.points, 3);
    assert_eq!(
        http_points(&tsdb.http_query("m", "case", "points").await),
        expected
    );
    assert_eq!(http_points(&tsdb.http_query("m", "case", "none").await), []);
    assert_eq!(tsdb.last(&tsuid(0)).await, Some(2000));
    assert_eq!(tsdb.last(&tsuid(1)).await, None);
    let rows = tsdb.scan("m").await;
    for (qualifier, _, _, kind) in &others {
        let cell = rows[1]
            .cells
            .iter()
            .find(|cell| hex::encode(&cell.qualifier) == *qualifier)
            .unwrap();
        assert_eq!(cell.r#type(), *kind, "{qualifier}");
        assert!(cell.error.is_none() && cell.points.is_empty(), "{qualifier}");
    }
}

#[tokio::test]
async fn takes_the_newest_of_two_values_or_rejects_the_row() {
    let cases: [(&str, Vec<Cell>, Points); 6] = [
        // V65 and V71: an integer, then a float.
        (
            "types",
            vec![("0000", "01", 1), ("000b", "40000000", 2)],
            vec![(0, Double(2.0))],
        ),
        // V72: seconds, then milliseconds.
        (
            "resolutions",
            vec![("03c0", "01", 1), ("f03a9800", "02", 2), ("03d0", "03", 3)],
            vec![(60_000, Int(2)), (61_000, Int(3))],
        ),
        // Written again after a compaction, and compacted again after that.
        (
            "single-later",
            vec![("00000010", "010200", 1), ("0010", "09", 2)],
            vec![(0, Int(1)), (1000, Int(9))],
        ),
        (
            "compacted-later",
            vec![("00000010", "010200", 2), ("0010", "09", 1)],
            vec![(0, Int(1)), (1000, Int(2))],
        ),
        (
            "two-compacted",
            vec![("00000010", "010200", 1), ("00000020", "080300", 2)],
            vec![(0, Int(8)), (1000, Int(2)), (2000, Int(3))],
        ),
        (
            "appended-later",
            vec![("0010", "02", 1), ("050000", "001009002003", 2)],
            vec![(1000, Int(9)), (2000, Int(3))],
        ),
    ];
    let names: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    let strict = tsdb(DataSettings::default(), &names).await;
    let mut settings = DataSettings::default();
    settings.queries.fix_duplicates = true;
    let fixing = tsdb(settings, &names).await;
    for tsdb in [&strict, &fixing] {
        for (number, (_, cells, _)) in cases.iter().enumerate() {
            tsdb.plant(&row_key(number), cells).await;
        }
    }
    let (series, statistics) = strict.query("m", "case").await.unwrap();
    assert_eq!(statistics.duplicates, cases.len() as u64);
    for (number, (name, _, points)) in cases.iter().enumerate() {
        assert_eq!(series[*name], *points, "{name}");
        let last = points.last().map(|(time_ms, _)| *time_ms);
        assert_eq!(strict.last(&tsuid(number)).await, last, "{name}");
        let rejected = strict.http_query("m", "case", name).await;
        assert_eq!(rejected.status, 400, "{name}");
        assert!(
            rejected.text().contains("Duplicate timestamp"),
            "{}",
            rejected.text()
        );
        let fixed = fixing.http_query("m", "case", name).await;
        assert_eq!(http_points(&fixed), as_returned(points), "{name}");
    }
}
