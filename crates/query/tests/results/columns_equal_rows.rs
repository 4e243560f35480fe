//! Queries of columns return what queries of the same points in rows return.

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_point_store::memory::MemoryPoints;
use oxtsdb_point_store::view::TableView;
use oxtsdb_point_store::{Point, PointBatch, PointKind, PointStore};
use oxtsdb_query::language::parse_metric_query;
use oxtsdb_query::testing::NumberedNames;
use oxtsdb_query::{
    AnnotationSelection, Engine, Frame, Group, Limits, NameGeneration, PointStorage, QueryResources,
    QuerySpec, Quirks, RequestContext, Source,
};
use oxtsdb_row_store::WriteBatch;
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{BaseTime, DuplicatePolicy, RowKeyLayout, SaltLayout, Tsuid, Uid, UidWidth};
use proptest::prelude::*;

use crate::support::{HOUR_MS, START_MS, empty_table};

/// A series: the values of tag keys 1 and 2; 0: it does not have the key.
type Tags = (u8, u8);

#[derive(Clone, Debug)]
struct Data {
    points: Vec<(Tags, Point)>,
    annotated: Vec<(Tags, u8)>,
}

fn tags() -> impl Strategy<Value = Tags> {
    (0_u8..10, 0_u8..3).prop_map(|(one, two)| if one == 0 && two == 0 { (1, 0) } else { (one, two) })
}

fn point() -> impl Strategy<Value = Point> {
    let kind = prop_oneof![Just(0_u8), Just(1), Just(2), Just(4), Just(6)];
    (0_i64..600, kind, -50_i32..50).prop_map(|(minute, kind, value)| {
        let kind = PointKind::from_byte(kind).unwrap();
        let is_int = kind.value() == oxtsdb_point_store::ValueKind::Int;
        Point {
            time_ms: START_MS + minute * 60_000,
            kind,
            bits: if is_int {
                i64::from(value).cast_unsigned()
            } else {
                (f64::from(value) / 2.0).to_bits()
            },
        }
    })
}

fn data() -> impl Strategy<Value = Data> {
    // Some series with many points.
    let tags_of_point = prop_oneof![tags(), Just((1, 1)), Just((2, 1))];
    let points = prop::collection::vec((tags_of_point, point()), 1..600);
    let annotated = prop::collection::vec((tags(), 0_u8..10), 0..4);
    (points, annotated).prop_map(|(points, annotated)| Data { points, annotated })
}

fn tsuid((one, two): Tags) -> Vec<u8> {
    let tags = [(1, one), (2, two)].into_iter().filter(|(_, value)| *value > 0);
    let tags = tags.flat_map(|(key, value)| [0, 0, key, 0, 0, value]);
    [0, 0, 1].into_iter().chain(tags).collect()
}

/// Engines over the same data, in rows and in columns: with results at the end, and as early as possible.
async fn engines(data: &Data, layout: RowKeyLayout) -> [[Engine; 2]; 2] {
    let (cells, table) = empty_table().await;
    let mut rows = WriteBatch::new(table.clone());
    let family = rows.family("t");
    for (tags, hour) in &data.annotated {
        let base = BaseTime::from_seconds(u32::try_from(START_MS / 1000).unwrap() + u32::from(*hour) * 3600);
        let mut key = Vec::new();
        write_row_key(&layout, &tsuid(*tags), base, &mut key);
        let note = format!(
            r#"{{"startTime":{},"endTime":0,"description":"note"}}"#,
            base.seconds() + 5
        );
        rows.row(&key).put(family, &[1, 0, 5], note.as_bytes());
    }
    cells.write(rows).await.unwrap();
    let points = MemoryPoints::new(layout.widths);
    let mut batch = PointBatch::default();
    for (tags, point) in &data.points {
        let series = points.numbers(&[&tsuid(*tags)]).unwrap()[0];
        batch.push(series, *point);
    }
    points.append(batch).await.unwrap();
    let columns: Arc<dyn PointStore> = Arc::new(points);
    let view = TableView::new(Arc::clone(&cells), Arc::clone(&columns), layout, table.clone());
    // Queries of a case use the matches of earlier ones.
    let names = NumberedNames::default()
        .with_generation(NameGeneration::default())
        .without_name(Uid::from_number(9, UidWidth::DEFAULT).unwrap());
    let rows = Engine::new(
        Arc::new(view),
        (table.clone(), table),
        layout,
        Arc::new(names),
        Limits::NONE,
        QueryResources::unlimited().unwrap(),
    );
    let columns = rows.clone().with_points(Some(PointStorage {
        columns,
        cells,
        rollups: Arc::default(),
    }));
    let early = [&rows, &columns].map(|engine| engine.clone().with_emit_threshold(1));
    [[rows, columns], early]
}

/// The groups as text, because NaN is not equal to itself, or the error.
async fn result(engine: &Engine, query: QuerySpec) -> Result<Vec<String>, String> {
    let frames = engine.run_whole(query, RequestContext::default()).await;
    let deliveries: Vec<_> = frames.try_collect().await.map_err(|error| error.to_string())?;
    let groups = deliveries
        .into_iter()
        .filter_map(|delivery| match delivery.frame {
            Frame::Group(group) => Some(format!(
                "{:?}",
                Group {
                    is_whole: true,
                    // The form of the values depends on all points that were read, not on the result.
                    points: group.points.iter().collect(),
                    ..group
                }
            )),
            _ => None,
        });
    Ok(groups.collect())
}

const QUERIES: [&str; 22] = [
    "sum:m1",
    "none:m1",
    "avg:m1{k1=*}",
    "sum:m1{k1=v1}",
    "sum:m1{k1=v1|v2|v77,k2=*}",
    "sum:explicit_tags:m1{k1=*}",
    "sum:explicit_tags:m1{k1=v3,k2=v2}",
    "max:m1{k1=wildcard(v*)}",
    "max:m1{k1=regexp(v[1-4])}",
    "min:m1{}{k1=not_literal_or(v1|v2)}",
    "sum:m1{k2=iliteral_or(V1)}",
    "count:10m-count:m1{k2=*}",
    "avg:1h-avg-zero:m1{k1=regexp(v.*)}",
    "sum:0all-sum:m1",
    "sum:rate:m1{k2=*}",
    "none:rate{counter,100,5}:m1",
    "sum:rate{dropcounter}:m1",
    "avg:rate:5m-avg:m1",
    "sum:rate:20m-last-nan:m1{k2=*}",
    "max:2h-min-zero:m1",
    "p90:30m-p90:m1",
    "sum:m7",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn columns_equal_rows(
        data in data(),
        salted: bool,
        (first, length, end_minute) in (-1_i64..11, 0_i64..11, 0_i64..60),
    ) {
        let layout = RowKeyLayout {
            salt: if salted { SaltLayout::new(1, 3).unwrap() } else { SaltLayout::default() },
            ..RowKeyLayout::default()
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let engines = engines(&data, layout).await;
            let tsuids: Vec<Tsuid> = [(1, 0), (2, 1), (9, 0), (3, 2)]
                .iter()
                .map(|tags| Tsuid::from_bytes(&tsuid(*tags), &layout.widths).unwrap())
                .collect();
            for number in 0..QUERIES.len() + 2 {
                let text = QUERIES.get(number).copied().unwrap_or("sum:m1{k1=regexp(v[1-3])}");
                let mut sub_query = parse_metric_query(text, &jiff::tz::TimeZone::UTC).unwrap();
                if number >= QUERIES.len() {
                    sub_query.source = Source::Tsuids(tsuids.iter().map(|tsuid| tsuid.as_bytes().to_vec()).collect());
                    if number > QUERIES.len() {
                        sub_query.filter.tags.clear();
                    }
                }
                for quirks in [Quirks::NONE, Quirks::OPENTSDB] {
                    let query = QuerySpec {
                        start_ms: START_MS + first * HOUR_MS + 1000,
                        end_ms: START_MS + (first + length) * HOUR_MS + end_minute * 60_000,
                        sub_queries: vec![sub_query.clone()],
                        duplicates: DuplicatePolicy::Error,
                        max_scanned_points: None,
                        quirks,
                        skip_damaged_rows: false,
                        with_surroundings: false,
                        with_infinities: false,
                        annotations: AnnotationSelection { of_series: true, global: false },
                    };
                    // With quirks, the tags of early results depend on where the first slice ends.
                    let compared = if quirks == Quirks::NONE { 2 } else { 1 };
                    for [rows, columns] in &engines[..compared] {
                        let expected = result(rows, query.clone()).await;
                        let actual = result(columns, query.clone()).await;
                        assert_eq!(actual, expected, "{text} {quirks:?}");
                    }
                }
            }
        });
    }
}
