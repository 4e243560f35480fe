use serde_json::json;
use uid_service::UidSettings;

use super::*;
use crate::settings::DataSettings;
use crate::test_stack::service::Service;
use crate::test_stack::{self, TestStack};

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
        );
        let rules = JobRules {
            every: Duration::from_secs(1),
            delay: Duration::from_secs(600),
            look_back: Duration::from_secs(2 * HOUR),
        };
        let table = stack.settings.tables.rollup_state_table_name().unwrap();
        let jobs = RollupJobs::new(builder, Arc::clone(&service.store), table, rules);
        Self {
            jobs,
            http: Service::of(stack).await,
        }
    }

    async fn put(&self, seconds: u64) {
        let body = json!({"metric": "m", "timestamp": seconds, "value": 1, "tags": {"host": "a"}});
        assert_eq!(self.http.post("/api/put", body.to_string()).await.status, 204);
    }

    /// A pass at an instant: cells written, or `None` without a build.
    async fn pass(&self, seconds: u64) -> Option<u64> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let built = self.jobs.pass(now).await.unwrap();
        built.map(|built| built.cells.written)
    }

    async fn hours(&self) -> usize {
        test_stack::cells(&*self.jobs.store, "r1h").await.len()
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
