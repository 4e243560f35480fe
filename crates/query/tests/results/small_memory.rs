//! Concurrent queries with little memory: all of them return what they return alone.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use futures::{Stream, StreamExt as _};
use oxtsdb_point_store::memory::MemoryPoints;
use oxtsdb_point_store::{Point, PointBatch, PointKind, PointStore};
use oxtsdb_query::language::parse_metric_query;
use oxtsdb_query::{
    AnnotationSelection, Budget, Delivery, Engine, Frame, Group, GroupEncoder, Held, Limit, Limits, Points,
    QueryError, QueryResources, QuerySpec, Quirks, RequestContext,
};
use oxtsdb_resources::{Admission, AdmissionLimits, ClientId, MemoryPool, Reservation};
use oxtsdb_schema::{Annotation, DuplicatePolicy, RowKeyLayout};

use crate::support::{self, HOUR_MS, START_MS};

const SERIES: u16 = 100;
const HOURS: i64 = 25;
const STEP_MS: i64 = 40_000;

/// The memory of all queries: four raw queries of all 225,000 points do not fit.
const POOL_BYTES: u64 = 14 << 20;

/// Integers and, from the middle of the range, floating point; the last tenth of the series begins late.
async fn points() -> Arc<dyn PointStore> {
    let points = MemoryPoints::new(RowKeyLayout::default().widths);
    for number in 0..SERIES {
        let [high, low] = number.to_be_bytes();
        let tsuid = [0, 0, 1, 0, 0, 1, 0, high, low, 0, 0, 2, 0, 0, low % 4];
        let series = points.numbers(&[&tsuid]).unwrap()[0];
        let first = if number >= SERIES / 10 * 9 {
            HOURS * HOUR_MS / 5
        } else {
            0
        };
        let mut batch = PointBatch::default();
        for offset_ms in (first..HOURS * HOUR_MS).step_by(usize::try_from(STEP_MS).unwrap()) {
            let value = (offset_ms / STEP_MS * 31 + i64::from(number)) % 1000;
            let is_int = offset_ms < HOURS * HOUR_MS / 2 || number % 2 == 0;
            let (kind, bits) = if is_int {
                (0, value.cast_unsigned())
            } else {
                (2, (value as f64).to_bits())
            };
            let kind = PointKind::from_byte(kind).unwrap();
            batch.push(
                series,
                Point {
                    time_ms: START_MS + offset_ms,
                    kind,
                    bits,
                },
            );
        }
        points.append(batch).await.unwrap();
    }
    Arc::new(points)
}

fn resources(bytes: u64) -> QueryResources {
    QueryResources {
        memory: MemoryPool::new("query", bytes),
        admission: Admission::new(AdmissionLimits {
            running: 4,
            queued: 1024,
            wait: Duration::from_secs(600),
        }),
        timeout: Some(Duration::from_secs(600)),
        ..QueryResources::unlimited().unwrap()
    }
}

fn limits(bytes: u64) -> Limits {
    Limits {
        memory: Limit::from_setting("--query-max-memory-mib", bytes),
        ..Limits::NONE
    }
}

fn query(text: &str, quirks: Quirks) -> QuerySpec {
    QuerySpec {
        start_ms: START_MS,
        end_ms: START_MS + HOURS * HOUR_MS - 1,
        sub_queries: vec![parse_metric_query(text, &jiff::tz::TimeZone::UTC).unwrap()],
        duplicates: DuplicatePolicy::Error,
        max_scanned_points: None,
        quirks,
        skip_damaged_rows: false,
        with_surroundings: false,
        with_infinities: false,
        annotations: AnnotationSelection::default(),
    }
}

/// A client other than the server itself.
fn client() -> RequestContext {
    RequestContext {
        client: ClientId::Address([10, 0, 0, 1].into()),
        deadline: None,
    }
}

/// Tags and points of each group.
type Groups = Vec<(Vec<(Arc<str>, Arc<str>)>, Points)>;

/// The result, streamed or whole.
async fn result(engine: &Engine, text: &str, quirks: Quirks) -> Result<Groups, QueryError> {
    let query = query(text, quirks);
    if quirks == Quirks::NONE {
        groups(engine.run(query, client()).await).await
    } else {
        groups(engine.run_whole(query, client()).await).await
    }
}

/// The groups of frames.
async fn groups(
    mut frames: impl Stream<Item = Result<Delivery, QueryError>> + Unpin,
) -> Result<Groups, QueryError> {
    let mut groups = Groups::new();
    while let Some(delivery) = frames.next().await {
        match delivery?.frame {
            Frame::Group(group) => groups.push((group.tags, group.points)),
            Frame::More { number, points } => groups[number].1.append(points),
            _ => {}
        }
    }
    Ok(groups)
}

/// Sends `count` queries at a time; returns how many were answered, all with the expected result.
async fn answered(engine: &Engine, text: &str, quirks: Quirks, count: usize, expected: &Groups) -> usize {
    let queries = (0..count).map(|_| {
        let (engine, text) = (engine.clone(), text.to_owned());
        tokio::spawn(async move { result(&engine, &text, quirks).await })
    });
    let mut answered = 0;
    for result in join_all(queries).await {
        match result.unwrap() {
            Ok(groups) => {
                assert!(groups == *expected, "{text} {count}");
                answered += 1;
            }
            Err(QueryError::NoMemory(_)) => {}
            Err(error) => panic!("{text}: {error}"),
        }
    }
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_queries_wait_their_turn() {
    let points = points().await;
    let unlimited = support::engine(
        Arc::clone(&points),
        Limits::NONE,
        QueryResources::unlimited().unwrap(),
    )
    .await;
    let mut all = Vec::new();
    for (text, quirks, counts) in [
        ("sum:m", Quirks::OPENTSDB, [4, 12].as_slice()),
        ("sum:m", Quirks::NONE, &[8]),
        ("sum:rate:m", Quirks::OPENTSDB, &[4]),
        ("sum:0all-p99:m", Quirks::OPENTSDB, &[4]),
        ("none:1m-avg:m", Quirks::OPENTSDB, &[4]),
        ("sum:m{b=*}", Quirks::OPENTSDB, &[4]),
    ] {
        let expected = result(&unlimited, text, quirks).await.unwrap();
        for count in counts.iter().copied() {
            let pool = resources(POOL_BYTES);
            let engine = support::engine(Arc::clone(&points), limits(POOL_BYTES / 2), pool).await;
            let begun = Instant::now();
            let answered = answered(&engine, text, quirks, count, &expected).await;
            let usage = engine.resources().memory.usage();
            println!(
                "{text} {count}: {answered} answered in {:?}, {usage:?}",
                begun.elapsed()
            );
            assert!(usage.peak_bytes <= POOL_BYTES, "{usage:?}");
            all.push((text, count, answered));
        }
    }
    for (text, count, answered) in all {
        assert_eq!(answered, count, "{text}");
    }
}

/// Waits until a query waits for memory.
async fn waiting_requests(engine: &Engine) {
    while !engine.resources().memory.has_waiting_requests() {
        tokio::task::yield_now().await;
    }
}

/// An engine, and all the memory that its client can have.
async fn occupied() -> (Engine, Reservation) {
    let engine = support::engine(points().await, limits(POOL_BYTES / 2), resources(POOL_BYTES)).await;
    let memory = engine.resources().memory.for_client(client().client);
    let occupied = memory.try_reserve(memory.most_bytes() - (2 << 20)).unwrap();
    (engine, occupied)
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_that_wait_leave_memory_to_other_clients() {
    let (engine, occupied) = occupied().await;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { result(&engine, "none:m", Quirks::OPENTSDB).await }
    });
    waiting_requests(&engine).await;
    let other = RequestContext {
        client: ClientId::Address([10, 0, 0, 2].into()),
        deadline: None,
    };
    let small = query("sum:1h-avg:m{a=one}", Quirks::OPENTSDB);
    assert!(engine.collect(small, other).await.is_ok());
    assert!(!waiting.is_finished());
    drop(occupied);
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_waited_until_its_deadline_says_so() {
    let (engine, _occupied) = occupied().await;
    let request = RequestContext {
        deadline: Some(Instant::now() + Duration::from_secs(5)),
        ..client()
    };
    let rejected = engine.collect(query("none:m", Quirks::OPENTSDB), request).await;
    let Err(QueryError::NoMemory(error)) = rejected else {
        panic!("{rejected:?}")
    };
    assert!(!error.is_final() && !error.waited.is_zero(), "{error:?}");
    let text = error.to_string();
    assert!(
        text.starts_with("query memory is in use: ") && text.contains(" s; retry later"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_can_never_fit_is_rejected_before_it_reads() {
    let engine = support::engine(points().await, limits(3 << 19), resources(POOL_BYTES)).await;
    let rejected = result(&engine, "none:m", Quirks::OPENTSDB).await;
    let Err(error) = rejected else {
        panic!("{rejected:?}")
    };
    assert!(matches!(error, QueryError::NeverFits { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "query needs about 3 MiB of memory for 220500 points, limit is 1 MiB (--query-max-memory-mib)"
    );
    let usage = engine.resources().memory.usage();
    assert_eq!((usage.used_bytes, usage.rejected), (0, 0));
    assert!(usage.peak_bytes <= 3 << 19, "{usage:?}");
    // In time slices the same points fit.
    result(&engine, "sum:m", Quirks::OPENTSDB).await.unwrap();
}

/// A query that waits and one that reads.
#[tokio::test(flavor = "multi_thread")]
async fn callers_that_go_away_free_their_memory() {
    let (engine, occupied) = occupied().await;
    let memory = engine.resources().memory.clone();
    let before = memory.usage().used_bytes;
    let spawned = || {
        let engine = engine.clone();
        tokio::spawn(async move { result(&engine, "none:m", Quirks::OPENTSDB).await })
    };
    let waiting = spawned();
    waiting_requests(&engine).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(
        (memory.usage().used_bytes, memory.has_waiting_requests()),
        (before, false)
    );
    drop(occupied);
    // Again if this thread had to wait until the query was over.
    let reading = loop {
        let reading = spawned();
        while memory.usage().used_bytes < 4 << 20 && !reading.is_finished() {
            tokio::task::yield_now().await;
        }
        reading.abort();
        if let Err(error) = reading.await {
            break error;
        }
    };
    assert!(reading.is_cancelled());
    let begun = Instant::now();
    while memory.usage().used_bytes > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", memory.usage());
        tokio::task::yield_now().await;
    }
    println!("freed after {:?}", begun.elapsed());
    assert_eq!(engine.resources().admission.usage().running, 0);
}

/// Encodes groups as text.
#[derive(Debug)]
struct TextEncoder;

impl GroupEncoder for TextEncoder {
    fn encode(
        &self,
        groups: &mut dyn Iterator<Item = (Group, Option<Held>)>,
        _: Option<&[Arc<Annotation>]>,
        budget: &Budget,
    ) -> Result<(Vec<Bytes>, Held), QueryError> {
        let text = |(group, _): (Group, _)| {
            let (points, last) = (group.points.len(), group.points.iter().last());
            let sum: f64 = group.points.iter().map(|(_, value)| value.as_f64()).sum();
            format!("{} {:?} {points} {last:?} {sum}\n", group.number, group.tags)
        };
        let text: String = groups.map(text).collect();
        Ok((vec![text.into()], budget.hold(0)?))
    }
}

/// The encoded groups, and the number of groups.
async fn encoded(engine: &Engine, text: &str) -> Result<(String, usize), QueryError> {
    let query = query(text, Quirks::OPENTSDB);
    let mut frames = engine.run_encoded(query, client(), Arc::new(TextEncoder)).await;
    let (mut encoded, mut count) = (String::new(), None);
    while let Some(delivery) = frames.next().await {
        match delivery?.frame {
            Frame::Encoded(groups) => {
                for part in groups.parts {
                    encoded.push_str(std::str::from_utf8(&part).unwrap());
                }
            }
            Frame::Done { groups, .. } => count = Some(groups),
            _ => {}
        }
    }
    Ok((encoded, count.unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_do_not_fit_at_once_are_read_in_batches() {
    const MOST_BYTES: u64 = 1 << 20;
    let points = points().await;
    let resources = QueryResources::unlimited().unwrap();
    let unlimited = support::engine(Arc::clone(&points), Limits::NONE, resources).await;
    for text in [
        "none:m",
        "none:rate:m",
        "sum:m{v1=*}",
        "sum:0all-p99:m{v2=*}",
        "max:1m-avg-zero:m{v1=*,v2=*}",
    ] {
        let (expected, count) = encoded(&unlimited, text).await.unwrap();
        assert_eq!(expected.lines().count(), count);
        let engine = support::engine(
            Arc::clone(&points),
            limits(MOST_BYTES),
            self::resources(POOL_BYTES),
        )
        .await;
        let result = encoded(&engine, text).await.unwrap();
        assert!(result == (expected, count), "{text}");
        let usage = engine.resources().memory.usage();
        assert!(usage.peak_bytes <= 2 * MOST_BYTES, "{text}: {usage:?}");
    }
    // A group that does not fit by itself is cut into time slices, unless it needs all of its points at once.
    let engine = support::engine(points, limits(MOST_BYTES / 2), self::resources(POOL_BYTES)).await;
    let expected = encoded(&unlimited, "sum:m{v2=*}").await.unwrap();
    assert!(encoded(&engine, "sum:m{v2=*}").await.unwrap() == expected);
    let rejected = encoded(&engine, "sum:0all-p99:m{v2=*}").await;
    assert!(
        matches!(rejected, Err(QueryError::OverBudget { .. })),
        "{rejected:?}"
    );
}

/// A number in a range, from a state that it changes.
fn random(state: &mut u64, range: Range<i64>) -> i64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    let number = (*state >> 33) % (range.end - range.start).unsigned_abs();
    range.start + number.cast_signed()
}

/// Series that begin, pause and end at any time, and change their type.
async fn uneven(seed: u64) -> Arc<dyn PointStore> {
    let state = &mut (seed + 1);
    let points = MemoryPoints::new(RowKeyLayout::default().widths);
    for number in 0..8 {
        let tsuid = [0, 0, 1, 0, 0, 1, 0, 0, number, 0, 0, 2, 0, 0, number % 3];
        let series = points.numbers(&[&tsuid]).unwrap()[0];
        let (mut at_ms, step_ms) = (random(state, 0..6 * HOUR_MS), random(state, 60_000..HOUR_MS));
        let end_ms = random(state, at_ms..9 * HOUR_MS);
        let mut is_int = random(state, 0..2) == 0;
        let mut batch = PointBatch::default();
        while at_ms <= end_ms {
            is_int ^= random(state, 0..10) == 0;
            let value = random(state, -9..100);
            let (kind, bits) = if is_int {
                (4, value.cast_unsigned())
            } else {
                (6, (value as f64 / 8.0).to_bits())
            };
            let kind = PointKind::from_byte(kind).unwrap();
            let time_ms = START_MS + at_ms;
            batch.push(series, Point { time_ms, kind, bits });
            let pauses = random(state, 0..12) == 0;
            at_ms += if pauses { 2 * HOUR_MS } else { step_ms };
        }
        points.append(batch).await.unwrap();
    }
    Arc::new(points)
}

/// OpenTSDB's integers depend on points to come: see [`Quirks::floats_to_come_count`].
#[tokio::test(flavor = "multi_thread")]
async fn sums_in_time_slices_equal_sums_of_all_points() {
    for seed in 0..60 {
        let resources = QueryResources::unlimited().unwrap();
        let whole = support::engine(uneven(seed).await, Limits::NONE, resources).await;
        let sliced = whole.clone().with_emit_threshold(1);
        for text in [
            "sum:m",
            "none:m",
            "avg:m{b=*}",
            "count:m",
            "diff:m",
            "last:m",
            "zimsum:m",
            "sum:rate:m",
            "max:rate{counter,,40}:m",
            "sum:rate{dropcounter}:m{b=*}",
            "avg:rate:30m-avg:m",
            "sum:rate:30m-max-zero:m",
        ] {
            for (quirks, hours) in [(Quirks::OPENTSDB, 9), (Quirks::OPENTSDB, 7), (Quirks::NONE, 7)] {
                let mut spec = query(text, quirks);
                spec.start_ms += HOUR_MS / 2;
                spec.end_ms = START_MS + hours * HOUR_MS - 1000;
                let whole = groups(whole.run_whole(spec.clone(), client()).await).await;
                let sliced = groups(sliced.run(spec, client()).await).await;
                let [whole, sliced] = [whole, sliced].map(|groups| {
                    let groups = groups.unwrap().into_iter();
                    let groups = groups.map(|(tags, points)| (tags, points.iter().collect::<Vec<_>>()));
                    // As text: NaN does not equal itself.
                    format!("{:?}", groups.collect::<Vec<_>>())
                });
                assert_eq!(sliced, whole, "{seed} {text} {quirks:?} {hours}");
            }
        }
    }
}
