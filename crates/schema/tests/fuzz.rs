//! Fuzz targets of the formats: any bytes decode or fail, without a panic and with little memory. Decoded values
//! encode to the same bytes, where the format has one form.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use oxtsdb_fuzz::{Outcome, run, run_with};
use oxtsdb_schema::rollup::RollupCell;
use oxtsdb_schema::row::{decode_cell, decode_row};
use oxtsdb_schema::timestamp::Timestamp;
use oxtsdb_schema::tree::{BranchDocument, LeafDocument, RuleDocument, TreeDocument};
use oxtsdb_schema::value::{parse_http, parse_import, parse_telnet};
use oxtsdb_schema::{
    Annotation, CellRef, DuplicatePolicy, HistogramCodecs, Points, RollupConfig, RowKey, RowKeyLayout,
    RowKeyRef, SaltLayout, Tsuid, UidKind, UidWidth, UidWidths,
};

/// A merge has a column and a head for each cell, however short it is.
const CELL_STATE: usize = 400;

/// Cells, each as `qualifier length (2) | value length (2) | timestamp (1) | qualifier | value`.
#[derive(Clone)]
struct Cells<'a>(&'a [u8]);

impl<'a> Iterator for Cells<'a> {
    type Item = CellRef<'a>;

    fn next(&mut self) -> Option<CellRef<'a>> {
        let (&[a, b, c, d, timestamp], rest) = self.0.split_first_chunk()?;
        let qualifier = usize::from(u16::from_be_bytes([a, b])).min(rest.len());
        let (qualifier, rest) = rest.split_at(qualifier);
        let value = usize::from(u16::from_be_bytes([c, d])).min(rest.len());
        let (value, rest) = rest.split_at(value);
        self.0 = rest;
        Some(CellRef {
            qualifier,
            timestamp_ms: timestamp.into(),
            value,
        })
    }
}

fn text(input: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(input).map_err(|_| "not UTF-8".to_owned())
}

/// The number of decoded items, or the message.
fn outcome<T, E: std::fmt::Display>(decoded: Result<T, E>, items: impl Fn(T) -> usize) -> Outcome {
    decoded.map(items).map_err(|error| error.to_string())
}

#[test]
fn row_keys() {
    let width = |bytes| UidWidth::new(bytes).unwrap();
    let layouts = [
        (0, 0, [3, 3, 3]),
        (1, 20, [3, 3, 3]),
        (2, 700, [4, 2, 8]),
        (1, 1, [1, 1, 1]),
    ];
    let layouts = layouts.map(|(salt, buckets, [metric, tagk, tagv])| RowKeyLayout {
        salt: if salt == 0 {
            SaltLayout::default()
        } else {
            SaltLayout::new(salt, buckets).unwrap()
        },
        widths: UidWidths {
            metric: width(metric),
            tagk: width(tagk),
            tagv: width(tagv),
        },
    });
    run("row-keys", |input| {
        let (layout, bytes) = input.split_first().unwrap_or((&0, &[]));
        let layout = &layouts[usize::from(layout % 4)];
        let key = RowKeyRef::decode(bytes, layout).map_err(|error| error.to_string())?;
        let tsuid = key.tsuid().map_err(|error| error.to_string())?;
        assert_eq!(
            Tsuid::from_bytes(tsuid.as_bytes(), &layout.widths).unwrap(),
            tsuid
        );
        if key.has_valid_salt(layout) {
            assert_eq!(RowKey::new(layout, &tsuid, key.base_time()).as_bytes(), bytes);
        }
        Ok(key.tags().count())
    });
}

#[test]
fn rows() {
    let state = |input: &[u8]| Cells(input).count() * CELL_STATE;
    run_with("rows", state, |input| {
        let cells = Cells(input);
        let mut points = Points::default();
        let mut first = None;
        for policy in [DuplicatePolicy::Error, DuplicatePolicy::KeepNewest] {
            points = Points::default();
            let decoded = decode_row(cells.clone(), policy, &mut points);
            let ascends = points.offsets_ms().is_sorted_by(|a, b| a < b);
            assert!(ascends, "{:?}", points.offsets_ms());
            first = first.or(decoded.err());
        }
        match first {
            Some(error) => Err(error.to_string()),
            None => Ok(points.len()),
        }
    });
}

/// A cell of a kind, decoded by itself: the qualifier's length is the first two bytes.
fn cell(input: &[u8]) -> Outcome {
    let (&[a, b], rest) = input.split_first_chunk().ok_or("too short")?;
    let (qualifier, value) = rest.split_at(usize::from(u16::from_be_bytes([a, b])).min(rest.len()));
    let mut points = Vec::new();
    let cell = CellRef {
        qualifier,
        value,
        timestamp_ms: 0,
    };
    outcome(decode_cell(cell, &mut points), |_| points.len())
}

#[test]
fn point_cells() {
    run("point-cells", cell);
}

#[test]
fn compacted_cells() {
    run("compacted-cells", cell);
}

#[test]
fn appended_cells() {
    run("appended-cells", cell);
}

#[test]
fn histograms() {
    let codecs = HistogramCodecs::with_simple(42);
    run("histograms", |input| {
        let histogram = codecs.decode_cell(input).map_err(|error| error.to_string())?;
        let encoded = codecs
            .encode_cell(&histogram)
            .map_err(|error| error.to_string())?;
        assert_eq!(codecs.decode_cell(&encoded).as_ref(), Ok(&histogram));
        Ok(histogram.buckets().len())
    });
}

#[test]
fn rollup_cells() {
    let config = RollupConfig::parse(
        r#"{"aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3}, "intervals": [
            {"table": "t", "preAggregationTable": "p", "interval": "1m", "rowSpan": "1h"},
            {"table": "u", "preAggregationTable": "q", "interval": "1h", "rowSpan": "1d"}]}"#,
    );
    let config = config.unwrap();
    run("rollup-cells", |input| {
        let (&[interval, length], rest) = input.split_first_chunk().ok_or("too short")?;
        let interval = &config.intervals()[usize::from(interval % 2)];
        let (qualifier, value) = rest.split_at(usize::from(length).min(rest.len()));
        outcome(RollupCell::decode(qualifier, value, interval), |cell| {
            usize::from(cell.offset)
        })
    });
}

#[test]
fn rollup_configs() {
    run("rollup-configs", |input| {
        outcome(RollupConfig::parse(text(input)?), |config| {
            config.intervals().len()
        })
    });
}

#[test]
fn annotations() {
    run("annotations", |input| {
        let annotation = Annotation::decode(input).map_err(|error| error.to_string())?;
        let stored = annotation.to_stored();
        assert_eq!(Annotation::decode(&stored).unwrap(), annotation);
        Ok(annotation.custom.map_or(0, |custom| custom.len()))
    });
}

#[test]
fn documents_of_metadata_and_trees() {
    use oxtsdb_schema::ts_meta::TsMeta;
    use oxtsdb_schema::uid_meta::UidDocument;
    run("documents", |input| {
        let (kind, json) = input.split_first().unwrap_or((&0, &[]));
        match kind % 6 {
            0 => outcome(UidDocument::decode(UidKind::Metric, json), |_| 0),
            1 => outcome(TsMeta::decode(json), |_| 1),
            2 => outcome(TreeDocument::decode(json), |_| 2),
            3 => outcome(RuleDocument::decode(json), |_| 4),
            4 => outcome(BranchDocument::decode(json), |_| 8),
            _ => outcome(LeafDocument::decode(json), |_| 16),
        }
    });
}

#[test]
fn numbers_as_text() {
    run("numbers", |input| {
        let text = text(input)?;
        let parsed = [parse_telnet(text), parse_http(text), parse_import(text)];
        let timestamp = Timestamp::parse_telnet(text).is_ok();
        let numbers = parsed.iter().flatten().count() + usize::from(timestamp);
        match parsed.into_iter().find_map(Result::err) {
            Some(error) if numbers == 0 => Err(error.to_string()),
            _ => Ok(1 << numbers),
        }
    });
}
