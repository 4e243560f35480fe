use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_point_store::TimeRange;
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::Service;
use serde_json::json;
use uid_service::UidSettings;

use super::super::build::RollupShared;
use super::*;

const CONFIG: &str = r#"{
    "aggregationIds": {"count": 1},
    "intervals": [
        {"table": "r1h", "preAggregationTable": "r1h-agg", "interval": "1h", "rowSpan": "1d"},
        {"table": "r1d", "preAggregationTable": "r1d-agg", "interval": "1d", "rowSpan": "1n"}
    ]}"#;

/// 2013-01-30 00:00 UTC.
const T: u64 = 1_359_504_000;
const HOUR: u64 = 3600;

struct Fixture {
    jobs: RollupJobs,
    http: Service,
    /// The folder of points in columns.
    points: Option<PathBuf>,
}

impl Fixture {
    async fn start(in_columns: bool) -> Self {
        let mut settings = DataSettings::default();
        settings.rollups.rollups_config = Some(CONFIG.to_owned());
        settings.rollups.rollup_jobs = true;
        let stack = match in_columns {
            true => TestStack::with_points_and(settings).await,
            false => TestStack::with(settings, UidSettings::default()).await,
        };
        let service = &stack.service;
        let builder = RollupBuilder::new(
            service.engine.clone(),
            service.uids.clone(),
            stack.shutdown.clone(),
            RollupShared::default(),
        );
        let rules = JobRules {
            every: Duration::from_secs(1),
            delay: Duration::from_secs(600),
            look_back: Duration::from_secs(2 * HOUR),
        };
        let points = stack.points_folder.as_ref();
        let points = points.map(|folder| folder.path().join("data/points"));
        let table = stack.settings.tables.rollup_state_table_name().unwrap();
        let jobs = RollupJobs::new(builder, Arc::clone(&service.store), table, rules);
        Self {
            jobs,
            points,
            http: Service::from_stack(stack).await,
        }
    }

    async fn put(&self, seconds: u64) {
        self.put_to("m", seconds).await;
    }

    async fn put_to(&self, metric: &str, seconds: u64) {
        let body = json!({"metric": metric, "timestamp": seconds, "value": 1, "tags": {"host": "a"}});
        assert_eq!(self.http.post("/api/put", body.to_string()).await.status, 204);
    }

    /// A pass at an instant: cells written, or `None` without a build.
    async fn pass(&self, seconds: u64) -> Option<u64> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let built = self.jobs.pass(now).await.unwrap();
        built.map(|built| built.cells.written)
    }

    async fn hours(&self) -> usize {
        oxtsdb_test_stack::cells(&*self.jobs.store, "r1h").await.len()
    }
}

#[tokio::test]
async fn passes_build_intervals_that_have_ended() {
    for in_columns in [false, true] {
        let fixture = Fixture::start(in_columns).await;
        for hour in 0..30 {
            fixture.put(T + hour * HOUR + 5).await;
        }
        // The first pass has no position: its look-back begins two hours before, and at a full day.
        assert_eq!(
            fixture.pass(T + 3 * HOUR + 599).await,
            Some(2),
            "the third hour has its delay"
        );
        assert_eq!(fixture.pass(T + 3 * HOUR + 600).await, Some(1));
        assert_eq!(fixture.pass(T + 3 * HOUR + 700).await, Some(0));
        // A pause of the server: all hours since the position, and the day.
        assert_eq!(fixture.pass(T + 29 * HOUR + 600).await, Some(26 + 1));
        assert_eq!(fixture.hours().await, 29);
    }
}

#[tokio::test]
async fn late_points_within_the_look_back_are_built() {
    for in_columns in [false, true] {
        let fixture = Fixture::start(in_columns).await;
        for hour in 0..30 {
            fixture.put(T + hour * HOUR + 5).await;
        }
        assert_eq!(
            fixture.pass(T + 30 * HOUR + 600).await,
            Some(6),
            "hours since midnight"
        );
        fixture.put(T + 29 * HOUR + 7).await;
        assert_eq!(fixture.pass(T + 30 * HOUR + 700).await, Some(1));
        // The day before is not in the look-back.
        fixture.put(T + 3 * HOUR + 7).await;
        assert_eq!(fixture.pass(T + 30 * HOUR + 800).await, Some(0));
    }
}

/// The row of metric `m` of an hour gets a cell that cannot be decoded.
async fn damage_row(fixture: &Fixture, seconds: u64) {
    let seconds = u32::try_from(seconds).unwrap();
    let key = [&[0, 0, 1], &seconds.to_be_bytes()[..], &[0, 0, 1, 0, 0, 1]].concat();
    let mut batch = WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    // Flags of 4 bytes, in the resolution that has trusted flags; the value has 2.
    batch.row(&key).put(family, &[0xf0, 0, 0, 0x03], &[1, 2]);
    fixture.jobs.store.write(batch).await.unwrap();
}

#[tokio::test]
async fn a_row_that_cannot_be_decoded_leaves_out_its_intervals_only() {
    let fixture = Fixture::start(false).await;
    for hour in 0..25 {
        // The job comes to `n` after `m`.
        for metric in ["m", "n"] {
            fixture.put_to(metric, T + hour * HOUR + 5).await;
        }
    }
    damage_row(&fixture, T + 3 * HOUR).await;
    assert_eq!(
        fixture.pass(T + 25 * HOUR + 600).await,
        Some(24 + 25 + 1),
        "hours of both, and the day of `n`"
    );
    let skipped = &fixture.jobs.builder.shared().skipped;
    assert_eq!(skipped.load(Ordering::Relaxed), 1);
    assert_eq!(
        fixture.jobs.position().await.unwrap(),
        u32::try_from(T + 25 * HOUR).ok()
    );
}

#[tokio::test]
async fn damaged_files_leave_out_their_intervals_only() {
    let fixture = Fixture::start(true).await;
    for hour in 0..48 {
        for metric in ["m", "n"] {
            fixture.put_to(metric, T + hour * HOUR + 5).await;
        }
    }
    let points = fixture.jobs.builder.points().unwrap();
    let series = points.metric_series(&[0, 0, 2]);
    // A delete finds all earlier points in files.
    let none = TimeRange {
        first_ms: 0,
        last_ms: 1,
    };
    points.delete(&series, none).await.unwrap();
    let day = fixture.points.as_ref().unwrap().join("2013-01-30");
    let part = std::fs::read_dir(&day)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let part = part
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "part"));
    let mut file = OpenOptions::new().write(true).open(part.unwrap()).unwrap();
    let length = file.metadata().unwrap().len();
    file.write_all(&vec![0xff; usize::try_from(length).unwrap()])
        .unwrap();
    drop(file);
    fixture
        .jobs
        .set_position(u32::try_from(T).unwrap())
        .await
        .unwrap();
    assert_eq!(
        fixture.pass(T + 48 * HOUR + 600).await,
        Some(2 * (24 + 1)),
        "all of the second day"
    );
    assert!(fixture.jobs.builder.shared().skipped.load(Ordering::Relaxed) > 0);
}

#[tokio::test]
async fn damaged_positions_are_none() {
    let fixture = Fixture::start(true).await;
    fixture.put(T + 5).await;
    let mut batch = WriteBatch::new(fixture.jobs.table.clone());
    let family = batch.family(FAMILY);
    batch.row(ROW).put(family, COLUMN, b"yesterday");
    fixture.jobs.store.write(batch).await.unwrap();
    assert_eq!(fixture.pass(T + HOUR + 600).await, Some(1));
    assert_eq!(
        fixture.jobs.position().await.unwrap(),
        u32::try_from(T + HOUR).ok()
    );
}

#[tokio::test]
async fn a_drain_ends_the_job() {
    let fixture = Fixture::start(true).await;
    let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
    let running = tokio::spawn(fixture.jobs.run(shutdown));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!running.is_finished());
    trigger.shut_down().await;
    tokio::time::timeout(Duration::from_secs(5), running)
        .await
        .unwrap()
        .unwrap();
}
