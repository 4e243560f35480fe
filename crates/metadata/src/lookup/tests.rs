use std::collections::BTreeSet;
use std::sync::Arc;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::NewPoint;
use oxtsdb_point_store::TimeRange;
use oxtsdb_query::{Limit, Limits, QueryResources};
use oxtsdb_row_store::{RowStore, WriteBatch};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{BaseTime, Timestamp, UidKind, Value};
use oxtsdb_test_stack::TestStack;
use proptest::prelude::*;
use uid_service::UidSettings;

use super::page::Total;
use super::*;

/// Names of a series: metric and tags, as `m{a=b,c=d}`.
type Text = String;

const METRICS: [&str; 3] = ["m0", "m1", "m2"];
const KEYS: [&str; 3] = ["a", "b", "c"];
const VALUES: [&str; 4] = ["w", "x", "y", "z"];

/// The series that are written: for each metric some combinations of tags.
fn series() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    let mut series = Vec::new();
    for (number, metric) in METRICS.iter().enumerate() {
        for tags in 1..64_usize {
            // Each key has no value or one of three.
            let tags: Vec<_> = KEYS
                .iter()
                .enumerate()
                .filter_map(|(place, key)| {
                    let choice = tags >> (2 * place) & 3;
                    (choice > 0).then(|| (*key, VALUES[(choice + number) % 4]))
                })
                .collect();
            if (tags.len() + number) % 2 == 0 {
                series.push((*metric, tags));
            }
        }
    }
    series
}

fn text(metric: &str, tags: &[(&str, &str)]) -> Text {
    let mut tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    tags.sort();
    format!("{metric}{{{}}}", tags.join(","))
}

async fn stack(salted: bool) -> TestStack {
    let mut settings = DataSettings::default();
    if salted {
        settings.tables.salt_width = 1;
    }
    let stack = TestStack::with(settings, UidSettings::default()).await;
    fill(&stack).await;
    stack
}

/// Writes the series in two hours.
async fn fill(stack: &TestStack) {
    for hour in 0..2 {
        for (metric, tags) in series() {
            let point = NewPoint {
                metric,
                tags: &tags,
                timestamp: Timestamp::from_seconds(1_356_998_400 + hour * 3600),
                value: Value::Int(1),
            };
            let outcome = stack.service.writer.write(&[point], None).await.unwrap();
            assert_eq!(outcome.written, 1);
        }
    }
    // Rows that are no series: neither table has only what we write.
    let mut batch = WriteBatch::new("tsdb-meta".parse().unwrap());
    let family = batch.family("name");
    batch.row(&[0, 0, 1, 0]).put(family, b"ts_meta", b"{}");
    stack.store.write(batch).await.unwrap();
}

/// The engine of a stack without the index of series.
fn without_index(stack: &TestStack, limits: Limits) -> Engine {
    Engine::new(
        Arc::new(stack.store.clone()),
        ("tsdb".parse().unwrap(), "tsdb-meta".parse().unwrap()),
        *stack.service.uids.layout(),
        Arc::new(stack.service.uids.clone()),
        limits,
        QueryResources::unlimited().unwrap(),
    )
}

async fn admitted(engine: &Engine, query: &LookupQuery) -> (SeriesLookup, Admitted) {
    SeriesLookup::admit(engine, query, RequestContext::default())
        .await
        .unwrap()
}

/// All series of a query, as texts, after a check of their order.
async fn export(engine: &Engine, query: &LookupQuery, after: &[u8]) -> Vec<(Box<[u8]>, Text)> {
    let (lookup, _admitted) = admitted(engine, query).await;
    let mut batches = lookup.batches(query, after, Extent::All).await.unwrap();
    let mut named_series = Vec::new();
    while let Some(batch) = batches.next().await.unwrap() {
        named_series.extend(lookup.named(batch).await.unwrap());
    }
    assert!(
        named_series.is_sorted_by(|a, b| a.tsuid < b.tsuid),
        "ascending, each once"
    );
    named_series.into_iter().map(shown).collect()
}

fn shown(series: FoundSeries) -> (Box<[u8]>, Text) {
    let names = series.names.unwrap();
    let tags: Vec<_> = names.tags.iter().map(|(key, value)| (&**key, &**value)).collect();
    (series.tsuid, text(&names.metric, &tags))
}

/// All series of a query, page by page.
async fn pages(engine: &Engine, query: &LookupQuery, size: usize) -> (Vec<Text>, Total) {
    let (mut all, mut after, mut first_total) = (Vec::new(), Vec::new(), None);
    loop {
        let (lookup, _admitted) = admitted(engine, query).await;
        let request = PageRequest {
            size,
            after,
            with_total: true,
        };
        let page = lookup.page(query, request).await.unwrap();
        assert!(page.series.len() <= size);
        let total = page.total.unwrap();
        assert_eq!(*first_total.get_or_insert(total), total);
        all.extend(page.series.into_iter().map(|series| shown(series).1));
        match page.next_after {
            Some(last) => after = last.into(),
            None => return (all, total),
        }
    }
}

fn some_selector() -> impl Strategy<Value = SeriesSelector> {
    let metric = prop::option::of(prop::sample::select(&METRICS[..]));
    let key = prop::option::of(prop::sample::select(&KEYS[..]));
    let values = prop::collection::vec(prop::sample::select(&VALUES[..]), 0..3);
    let tags = prop::collection::vec((key, values), 0..3);
    (metric, tags).prop_map(|(metric, tags)| SeriesSelector {
        metric: metric.map(str::to_owned),
        tags: tags
            .into_iter()
            .map(|(key, values)| TagSelector {
                key: key.map(str::to_owned),
                values: values.into_iter().map(str::to_owned).collect(),
            })
            .collect(),
    })
}

/// The definition: which series match.
fn expected(selector: &SeriesSelector) -> BTreeSet<Text> {
    let matches = |metric: &str, tags: &[(&str, &str)]| {
        selector.metric.as_ref().is_none_or(|expected| expected == metric)
            && selector.tags.iter().all(|condition| {
                tags.iter().any(|(key, value)| {
                    condition.key.as_ref().is_none_or(|expected| expected == key)
                        && (condition.values.is_empty()
                            || condition.values.iter().any(|expected| expected == value))
                })
            })
    };
    let series = series();
    let matching = series.iter().filter(|(metric, tags)| matches(metric, tags));
    matching.map(|(metric, tags)| text(metric, tags)).collect()
}

#[test]
fn all_sources_find_the_series_that_match() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (salted, in_columns) in [(false, false), (true, false), (false, true)] {
        let (_stack, engines) = if in_columns {
            let stack = runtime.block_on(TestStack::with_points());
            runtime.block_on(fill(&stack));
            let engine = stack.service.engine.clone();
            (stack, vec![engine])
        } else {
            let stack = runtime.block_on(stack(salted));
            let engines = vec![stack.service.engine.clone(), without_index(&stack, Limits::NONE)];
            (stack, engines)
        };
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(48));
        runner
            .run(&(some_selector(), 1_usize..30), |(selector, size)| {
                let expected = expected(&selector);
                for engine in &engines {
                    for source in [SeriesSource::MetaTable, SeriesSource::DataTable] {
                        let selector = selector.clone();
                        let query = LookupQuery { selector, source };
                        let exported_series = runtime.block_on(export(engine, &query, &[]));
                        let texts: BTreeSet<Text> =
                            exported_series.iter().map(|(_, text)| text.clone()).collect();
                        prop_assert_eq!(&texts, &expected, "{:?}", source);
                        prop_assert_eq!(exported_series.len(), expected.len());
                        let (paged, total) = runtime.block_on(pages(engine, &query, size));
                        let all: Vec<Text> = exported_series.iter().map(|(_, text)| text.clone()).collect();
                        prop_assert_eq!(paged, all, "{:?}, pages of {}", source, size);
                        prop_assert_eq!(
                            (total.series, total.is_lower_bound),
                            (expected.len() as u64, false)
                        );
                        if let Some((middle, _)) = exported_series.get(exported_series.len() / 2) {
                            let rest = runtime.block_on(export(engine, &query, middle));
                            prop_assert_eq!(&rest[..], &exported_series[exported_series.len() / 2 + 1..]);
                        }
                    }
                }
                Ok(())
            })
            .unwrap();
    }
}

#[tokio::test]
async fn counts_series_metrics_keys_and_values() {
    let stack = stack(false).await;
    let in_columns = TestStack::with_points().await;
    fill(&in_columns).await;
    for engine in [
        stack.service.engine.clone(),
        without_index(&stack, Limits::NONE),
        in_columns.service.engine.clone(),
    ] {
        for source in [SeriesSource::MetaTable, SeriesSource::DataTable] {
            for metric in [None, Some("m1")] {
                let query = LookupQuery {
                    selector: SeriesSelector {
                        metric: metric.map(str::to_owned),
                        tags: Vec::new(),
                    },
                    source,
                };
                let (lookup, _admitted) = admitted(&engine, &query).await;
                let request = CensusRequest {
                    metrics: 9,
                    tag_keys: 9,
                    order: KeyOrder::Values,
                };
                let census = lookup.census(&query, request).await.unwrap();
                let all = series();
                let of_metric: Vec<_> = all
                    .iter()
                    .filter(|(name, _)| metric.is_none_or(|metric| metric == *name))
                    .collect();
                assert_eq!(census.series, of_metric.len() as u64);
                assert_eq!(census.metric_count, if metric.is_some() { 1 } else { 3 });
                let metrics = census.metrics.iter();
                assert_eq!(metrics.map(|metric| metric.series).sum::<u64>(), census.series);
                assert_eq!(census.tag_keys.len(), 3);
                for key in &census.tag_keys {
                    let tags = of_metric.iter().flat_map(|(_, tags)| tags);
                    let values: Vec<&str> = tags
                        .filter(|(name, _)| Some(*name) == key.name.as_deref())
                        .map(|(_, value)| *value)
                        .collect();
                    let distinct: BTreeSet<&str> = values.iter().copied().collect();
                    assert_eq!(
                        (key.series, key.values),
                        (values.len() as u64, distinct.len() as u64)
                    );
                }
            }
        }
    }
}

#[tokio::test]
async fn rejects_unknown_names_and_too_much_memory() {
    let stack = stack(false).await;
    let engine = &stack.service.engine;
    for (metric, key, value, kind) in [
        ("none", "a", "x", UidKind::Metric),
        ("m0", "none", "x", UidKind::Tagk),
        ("m0", "a", "none", UidKind::Tagv),
    ] {
        let query = LookupQuery {
            selector: SeriesSelector {
                metric: Some(metric.to_owned()),
                tags: vec![TagSelector {
                    key: Some(key.to_owned()),
                    values: vec![value.to_owned()],
                }],
            },
            source: SeriesSource::MetaTable,
        };
        let (lookup, _admitted) = admitted(engine, &query).await;
        let error = lookup.batches(&query, &[], Extent::All).await.unwrap_err();
        assert!(
            matches!(&error, QueryError::UnknownName { kind: unknown, name } if (*unknown, &**name) == (kind, "none")),
            "{error}"
        );
    }
    let memory = Limits {
        memory: Limit::from_setting("--query-max-memory-mib", 1000),
        ..Limits::NONE
    };
    let rows = Limits {
        rows: Limit::from_setting("--query-max-rows", 100),
        ..Limits::NONE
    };
    for limits in [memory, rows] {
        let query = LookupQuery {
            selector: SeriesSelector::default(),
            source: SeriesSource::DataTable,
        };
        let engine = without_index(&stack, limits);
        let (lookup, _admitted) = admitted(&engine, &query).await;
        let error = lookup.batches(&query, &[], Extent::All).await.unwrap_err();
        assert!(matches!(error, QueryError::OverBudget { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_cancelled_lookup_ends() {
    let stack = stack(false).await;
    let engine = &stack.service.engine;
    let query = LookupQuery::default();
    let (lookup, _admitted) = admitted(engine, &query).await;
    let mut batches = lookup.batches(&query, &[], Extent::All).await.unwrap();
    let listed = engine.running().list();
    let running = listed.first().expect("a look-up is listed");
    assert_eq!(running.description.sub_queries, ["lookup:*"]);
    assert!(engine.running().cancel(running.id));
    let error = batches.next().await.unwrap_err();
    assert!(matches!(error, QueryError::Cancelled), "{error}");
}

#[tokio::test]
async fn a_catalogue_leaves_out_series_without_rows() {
    let stack = TestStack::with_points().await;
    fill(&stack).await;
    let (engine, store) = (&stack.service.engine, &stack.service.store);
    let of_metric = |source| LookupQuery {
        selector: SeriesSelector {
            metric: Some("m0".to_owned()),
            tags: vec![TagSelector {
                key: Some("a".to_owned()),
                values: Vec::new(),
            }],
        },
        source,
    };
    let data = of_metric(SeriesSource::DataTable);
    let all = export(engine, &data, &[]).await;
    let layout = *stack.service.uids.layout();
    let points = engine.storage().reader.columns().unwrap();
    let series = |place: usize| points.find(&all[place].0).unwrap();
    let first_hour = TimeRange {
        first_ms: 1_356_998_400_000,
        last_ms: 1_356_998_400_000 + 3_599_999,
    };
    // Neither points nor other cells, an annotation only, points in the second hour only.
    points
        .delete(&[series(0), series(1)], TimeRange::ALL)
        .await
        .unwrap();
    points.delete(&[series(2)], first_hour).await.unwrap();
    let mut row = Vec::new();
    write_row_key(
        &layout,
        &all[1].0,
        BaseTime::from_seconds(1_356_998_400),
        &mut row,
    );
    let mut batch = WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    batch.row(&row).put(family, &[1, 0, 0], b"{}");
    store.write(batch).await.unwrap();
    assert_eq!(export(engine, &data, &[]).await, all[1..]);
    // Each has its row of metadata still.
    let meta = of_metric(SeriesSource::MetaTable);
    assert_eq!(export(engine, &meta, &[]).await, all);
    let mut batch = WriteBatch::new("tsdb-meta".parse().unwrap());
    batch.row(&all[3].0).delete_row();
    store.write(batch).await.unwrap();
    let left = [&all[..3], &all[4..]].concat();
    assert_eq!(export(engine, &meta, &[]).await, left);
}
