//! OpenTSDB handles OxTSDB's cells of every form as its own: it reads, compacts, checks and corrects them.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::comparison::{check_opentsdb, check_oxtsdb};
use oxtsdb_tests::opentsdb::{OpenTsdb, Tags};
use oxtsdb_tests::random_points::{Expected, Sent};
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::stored::Stored;
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::{Options, Tsdb, read_back, until, writers};
use serde_json::json;

/// OpenTSDB only writes what a request contains.
const NO_COMPACTION: &str = "tsd.storage.enable_compaction=false";
/// Of several values for one instant OpenTSDB takes the last one instead of failing.
const FIX_DUPLICATES: &str = "tsd.storage.fix_duplicates=true";
/// The series in which `/api/query/last` looks for the last point.
const LAST_POINTS: usize = 20;
/// An hour of 2013.
const HOUR_MS: i64 = 1_356_998_400_000;

/// Points by the form of their cells: each request is written by itself.
struct Shape {
    name: &'static str,
    requests: Vec<Vec<(i64, Number)>>,
    /// Cells of its row in the form `rows`.
    cells: usize,
    /// Telnet stores floating point numbers in 4 bytes if that is exact, HTTP in 8.
    by_telnet: bool,
}

fn ints(instants: impl IntoIterator<Item = i64>) -> Vec<(i64, Number)> {
    let point = |instant: i64| (HOUR_MS + instant, Number::Int(instant % 100));
    instants.into_iter().map(point).collect()
}

fn seconds(values: &[Number]) -> Vec<(i64, Number)> {
    let instants = (HOUR_MS..).step_by(1000);
    instants.zip(values.iter().copied()).collect()
}

fn shapes() -> Vec<Shape> {
    use Number::{Double, Int};
    let widths = [1, 300, 70_000, 1 << 40, -1, -129, -40_000, i64::MIN].map(Int);
    let shape = |name, requests: Vec<Vec<(i64, Number)>>| Shape {
        name,
        cells: requests.len(),
        requests,
        by_telnet: false,
    };
    vec![
        shape("one", vec![ints([7_000])]),
        shape("seconds", vec![ints((0..60).map(|n| n * 10_000))]),
        shape("millis", vec![ints((0..60).map(|n| n * 250 + 1))]),
        shape("mixed", vec![ints((0..60).map(|n| n * 500))]),
        shape("widths", vec![seconds(&widths)]),
        shape("doubles", vec![seconds(&[0.1, -2.5, 1e300, -0.0].map(Double))]),
        Shape {
            by_telnet: true,
            ..shape("floats", vec![seconds(&[0.5, -2.5, 0.1, -0.0].map(Double))])
        },
        shape(
            "types",
            vec![seconds(&[Int(1), Double(2.5), Int(70_000), Double(0.1)])],
        ),
        shape(
            "several",
            (0..3)
                .map(|group| ints((0..20).map(|n| (group * 20 + n) * 1000)))
                .collect(),
        ),
        shape(
            "woven",
            (0..3)
                .map(|group| ints((0..20).map(|n| (n * 3 + group) * 500)))
                .collect(),
        ),
        shape(
            "beside",
            vec![
                ints([500]),
                ints([1_000, 2_000, 3_000]),
                ints([1_500]),
                ints([3_599_999]),
                ints([2_000 + 60_000]),
            ],
        ),
        // OpenTSDB makes one cell of them, with a qualifier of 68,000 bytes.
        Shape {
            cells: 5,
            ..shape("long", vec![ints((0..17_000).map(|n| n * 200))])
        },
    ]
}

fn tags(shape: &str) -> Vec<(String, String)> {
    vec![("shape".to_owned(), shape.to_owned())]
}

fn sent(metric: &str, shape: &str, points: &[(i64, Number)]) -> Vec<Sent> {
    let sent = |(timestamp_ms, value): &(i64, Number)| Sent {
        sample: Sample {
            metric: metric.to_owned(),
            tags: tags(shape),
            timestamp_ms: *timestamp_ms,
            value: *value,
        },
        is_ms: timestamp_ms % 1000 != 0,
    };
    points.iter().map(sent).collect()
}

/// One request.
async fn write(oxtsdb: &Tsdb, points: &[Sent], by_telnet: bool) -> anyhow::Result<()> {
    let points: Vec<&Sent> = points.iter().collect();
    if by_telnet {
        writers::put_lines(oxtsdb.telnet().await?, &points).await
    } else {
        writers::put(oxtsdb.http(), &points).await
    }
}

/// Writes each shape as a series of the metric.
async fn write_shapes(oxtsdb: &Tsdb, metric: &str, expected: &mut Expected) -> anyhow::Result<()> {
    for shape in shapes() {
        for request in &shape.requests {
            write(oxtsdb, &sent(metric, shape.name, request), shape.by_telnet).await?;
            let series = (metric.to_owned(), Tags::from_iter(tags(shape.name)));
            expected
                .entry(series)
                .or_default()
                .extend(request.iter().copied());
        }
    }
    Ok(())
}

/// Number of cells of each row of a metric; its series are in the order of their first write.
async fn cells_of_rows(oxtsdb: &Tsdb, metric: &str) -> anyhow::Result<Vec<usize>> {
    let rows = read_back::rows_of(&mut oxtsdb.data(), metric).await?;
    Ok(rows.into_iter().map(|row| row.cells.len()).collect())
}

async fn serve(rig: &Rig, tables: &Tables, form: &str, flags: &[&str]) -> anyhow::Result<Tsdb> {
    let options = Options::default()
        .flags(rig.flags(tables))
        .flag("--write-form", form)
        .flags(flags.iter().map(|flag| (*flag).to_owned()));
    Tsdb::start_with(options).await
}

fn now_seconds() -> anyhow::Result<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(now.as_secs())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn opentsdb_reads_compacts_and_checks_every_form() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let tables = rig.create_tables("forms").await?;
    let mut expected = Expected::new();
    let (mut forms, mut lasts) = (Vec::new(), Vec::new());
    for form in ["rows", "cells", "appends"] {
        let oxtsdb = serve(&rig, &tables, form, &[]).await?;
        write_shapes(&oxtsdb, form, &mut expected).await?;
        // `/api/query/last` looks at the current hour and those before.
        let mut now_ms = now_seconds()? * 1000;
        // The first byte of a qualifier 80 to 95 s after the hour is 05, which OpenTSDB's `last` takes for an append column.
        let of_hour_s = now_ms / 1000 % 3600;
        if (80..96 + i64::try_from(LAST_POINTS)?).contains(&of_hour_s) {
            now_ms -= (of_hour_s - 79) * 1000;
        }
        let metric = format!("last.{form}");
        let before = (1..LAST_POINTS).map(|n| i64::try_from(n).map(|n| (now_ms - n * 1000, Number::Int(n))));
        let before = before.collect::<Result<Vec<_>, _>>()?;
        let last = (now_ms, Number::Double(7.5));
        let points = sent(&metric, "last", &[before, vec![last]].concat());
        write(&oxtsdb, &points, false).await?;
        lasts.push((metric, last));
        forms.push((form.to_owned(), oxtsdb));
    }
    let metrics: Vec<String> = forms.iter().map(|(form, _)| form.clone()).collect();
    let oxtsdb = &forms[0].1;
    let shapes: Vec<usize> = shapes().iter().map(|shape| shape.cells).collect();
    ensure!(cells_of_rows(oxtsdb, "rows").await? == shapes);
    ensure!(cells_of_rows(oxtsdb, "appends").await? == vec![1; shapes.len()]);
    // fsck checks appended points, but does not count them.
    let counted = expected.iter().filter(|((metric, _), _)| metric != "appends");
    let count = counted.map(|(_, points)| points.len()).sum::<usize>() + 2 * LAST_POINTS;
    let count = u64::try_from(count)?;

    let opentsdb = rig.opentsdb(&tables, &[NO_COMPACTION]).await?;
    check_opentsdb(&opentsdb, &expected, &metrics).await?;
    check_oxtsdb(oxtsdb, &expected, &metrics).await?;
    for (metric, last) in &lasts {
        let actual = opentsdb.last(metric, ("shape", "last")).await?;
        ensure!(actual == Some(*last), "last of {metric}: {actual:?}");
    }
    rig.data_fsck(&opentsdb).await?.check(count)?;

    let compacting = rig.opentsdb(&tables, &[]).await?;
    until("OpenTSDB has compacted the rows", || async {
        // It compacts rows when it reads them, and a row of more than 4,096 cells in several rounds.
        check_opentsdb(&compacting, &expected, &metrics).await?;
        for form in ["rows", "cells"] {
            let cells = cells_of_rows(oxtsdb, form).await?;
            ensure!(cells == vec![1; shapes.len()], "{form}: {cells:?}");
        }
        Ok(())
    })
    .await?;
    check_opentsdb(&opentsdb, &expected, &metrics).await?;
    for (_, oxtsdb) in &forms {
        check_oxtsdb(oxtsdb, &expected, &metrics).await?;
    }
    rig.data_fsck(&opentsdb).await?.check(count)
}

/// Reads the series `shape=a` through every protocol of both servers.
struct Readers {
    strict: OpenTsdb,
    fixing: OpenTsdb,
    oxtsdb: Tsdb,
}

impl Readers {
    /// Every reader returns these points.
    async fn all_read(&self, metric: &str, points: &[(i64, Number)]) -> anyhow::Result<()> {
        let series = (metric.to_owned(), Tags::from_iter(tags("a")));
        let expected = Expected::from([(series, points.iter().copied().collect())]);
        let metric = [metric.to_owned()];
        check_oxtsdb(&self.oxtsdb, &expected, &metric).await?;
        check_opentsdb(&self.fixing, &expected, &metric).await?;
        check_opentsdb(&self.strict, &expected, &metric).await?;
        let status = self.status_over_http(&metric[0]).await?;
        ensure!(status == 200, "OxTSDB over HTTP: {status}");
        Ok(())
    }

    /// Only readers that take the last value return these points.
    async fn some_read(&self, metric: &str, points: &[(i64, Number)]) -> anyhow::Result<()> {
        let series = (metric.to_owned(), Tags::from_iter(tags("a")));
        let expected = Expected::from([(series, points.iter().copied().collect())]);
        let metric = [metric.to_owned()];
        check_oxtsdb(&self.oxtsdb, &expected, &metric).await?;
        check_opentsdb(&self.fixing, &expected, &metric).await?;
        let refused = check_opentsdb(&self.strict, &expected, &metric).await;
        let error = refused.err().context("OpenTSDB reads it")?.to_string();
        ensure!(error.contains("Duplicate timestamp"), "{error}");
        let status = self.status_over_http(&metric[0]).await?;
        ensure!(status == 400, "OxTSDB over HTTP: {status}");
        Ok(())
    }

    async fn status_over_http(&self, metric: &str) -> anyhow::Result<u16> {
        let request = json!({
            "start": 1,
            "end": 4_294_000_000_u32,
            "queries": [{"aggregator": "none", "metric": metric}],
        });
        Ok(self.oxtsdb.http().post("/api/query", &request).await?.status)
    }
}

/// `docs/design/points.md` and `--help` define the result of writing a point again.
#[tokio::test(flavor = "multi_thread")]
async fn a_corrected_point_is_read_as_documented() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let tables = rig.create_tables("corrections").await?;
    let auto = serve(&rig, &tables, "auto", &[]).await?;
    let appends = serve(&rig, &tables, "appends", &[]).await?;
    let (second, new) = (|n: i64| n * 1000, Number::Int(99));
    // An hour that cannot end during this test.
    let ahead_ms = (now_seconds()? / 3600 + 2) * 3_600_000;
    let group = |hour_ms: i64| {
        vec![1, 2, 3]
            .into_iter()
            .map(move |n| (hour_ms + second(n), Number::Int(n)))
    };
    let corrected = |hour_ms: i64| -> Vec<(i64, Number)> {
        let mut points: Vec<_> = group(hour_ms).collect();
        points[1].1 = new;
        points
    };
    for (writer, metric, hour_ms) in [
        (&auto, "ahead", ahead_ms),
        (&auto, "past", HOUR_MS),
        (&appends, "appended", HOUR_MS),
    ] {
        let points: Vec<_> = group(hour_ms).collect();
        write(writer, &sent(metric, "a", &points), false).await?;
        write(writer, &sent(metric, "a", &[(hour_ms + second(2), new)]), false).await?;
    }
    // A single point of a request is an ordinary cell in any hour.
    for points in [vec![(HOUR_MS, Number::Int(1))], vec![(HOUR_MS, new)]] {
        write(&auto, &sent("alone", "a", &points), false).await?;
    }
    // Repeated values change nothing, in any grouping.
    let points: Vec<_> = group(HOUR_MS).collect();
    for points in [&points[..], &points[1..], &points[..1]] {
        write(&auto, &sent("again", "a", points), false).await?;
    }
    let readers = Readers {
        strict: rig.opentsdb(&tables, &[NO_COMPACTION]).await?,
        fixing: rig.opentsdb(&tables, &[NO_COMPACTION, FIX_DUPLICATES]).await?,
        oxtsdb: auto,
    };
    readers.all_read("ahead", &corrected(ahead_ms)).await?;
    readers.all_read("appended", &corrected(HOUR_MS)).await?;
    readers.all_read("alone", &[(HOUR_MS, new)]).await?;
    readers.all_read("again", &points).await?;
    readers.some_read("past", &corrected(HOUR_MS)).await
}

/// `tsd.storage.use_otsdb_timestamp`: cells have the timestamps of their points.
#[tokio::test(flavor = "multi_thread")]
async fn cells_have_the_timestamps_that_opentsdb_gives_them() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let (theirs, ours) = (
        rig.create_tables("theirs").await?,
        rig.create_tables("ours").await?,
    );
    let opentsdb = rig
        .opentsdb(&theirs, &["tsd.storage.use_otsdb_timestamp=true"])
        .await?;
    let oxtsdb = serve(&rig, &ours, "auto", &["--use-otsdb-timestamp"]).await?;
    // Seconds: of mixed cells OpenTSDB changes the last byte with each reading, with this setting.
    let instants = [0, 1_000, 2_000, 3_599_000];
    // A single point, and a row that OpenTSDB compacts when it is queried.
    let next_hour = vec![(HOUR_MS + 3_600_000, Number::Int(5))];
    for points in [ints(instants), next_hour] {
        let points = sent("timestamps", "a", &points);
        let points: Vec<&Sent> = points.iter().collect();
        writers::put(opentsdb.http(), &points).await?;
        writers::put(oxtsdb.http(), &points).await?;
    }
    let stored = Stored::connect(&rig).await?;
    let ours = stored.timed_cells(&ours.data).await?;
    let timestamps: Vec<i64> = ours.values().map(|(timestamp_ms, _)| *timestamp_ms).collect();
    ensure!(
        timestamps == [HOUR_MS + 3_599_000, HOUR_MS + 3_600_000],
        "{timestamps:?}"
    );
    until("OpenTSDB has the same cells", || async {
        opentsdb.series_of("timestamps").await?;
        let theirs = stored.timed_cells(&theirs.data).await?;
        ensure!(theirs == ours, "OpenTSDB has {theirs:02x?}, OxTSDB {ours:02x?}");
        Ok(())
    })
    .await
}
