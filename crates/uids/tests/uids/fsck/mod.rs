//! A check finds each planted corruption, its repairs leave nothing to find, and their inverse restores each cell.

mod planted;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use oxtsdb_row_store::RowStore;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_schema::UidKind;
use oxtsdb_uids::fsck::repair::{self, Applied};
use oxtsdb_uids::fsck::{self, CellChange, Event, Finding, FsckOptions, Severity, Summary};
use oxtsdb_uids::table::UidTable;
use oxtsdb_uids::testing::{self, Cell, Wrapped, cells_of, table};

use planted::{CHOSEN, Expected, Planted, identity};

/// Findings with their number.
type Findings = BTreeMap<Expected, u64>;

/// A table on a store, empty.
async fn empty(store: Arc<dyn RowStore>) -> UidTable {
    let config = testing::config();
    testing::make_tables(&*store, &config).await;
    UidTable::new(store, config.table, config.layout)
}

async fn run(table: &UidTable, grace: Duration) -> (Vec<Finding>, Summary) {
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    let options = FsckOptions {
        kinds: UidKind::ALL.to_vec(),
        grace,
        started_ms: i64::try_from(now.as_millis()).unwrap(),
    };
    let events: Vec<Event> = fsck::check(table.clone(), options).try_collect().await.unwrap();
    let mut findings = Vec::new();
    let mut summary = None;
    for event in events {
        assert_eq!(summary, None, "nothing follows the summary");
        match event {
            Event::Findings(batch) => findings.extend(batch),
            Event::Progress(_) => {}
            Event::Summary(last) => summary = Some(last),
        }
    }
    (findings, summary.expect("a summary ends the check"))
}

fn bad(findings: &[Finding]) -> Vec<&Finding> {
    let is_bad = |finding: &&Finding| finding.finding.severity() != Severity::Note;
    findings.iter().filter(is_bad).collect()
}

/// The repair of a plan: the default, or a chosen alternative.
fn chosen(finding: &Finding) -> Vec<CellChange> {
    let mut alternatives = finding.alternatives.iter();
    let alternative = || alternatives.find(|repair| CHOSEN.contains(&repair.label.as_str()));
    let repair = finding.repair.as_ref().or_else(alternative);
    repair.unwrap_or_else(|| panic!("{finding:?}")).changes.clone()
}

async fn cells(store: &dyn RowStore) -> Vec<Cell> {
    cells_of(store, &table()).await
}

/// The findings of `a` that are not in `b`, or not as often.
fn without(a: &Findings, b: &Findings) -> Findings {
    let differs = |(finding, count): &(&Expected, &u64)| b.get(finding) != Some(count);
    let different = a.iter().filter(differs);
    different
        .map(|(finding, count)| (finding.clone(), *count))
        .collect()
}

/// Plants, checks, repairs, checks again, and undoes.
async fn finds_repairs_and_restores(store: Arc<dyn RowStore>, healthy: usize, corruptions: usize) {
    let table = empty(store.clone()).await;
    let planted = Planted::new(7, healthy, corruptions);
    planted.write(&*store).await;
    let before = cells(&*store).await;

    let (findings, summary) = run(&table, Duration::ZERO).await;
    assert_eq!(cells(&*store).await, before, "a check changes nothing");
    let mut finding_counts = Findings::new();
    for finding in bad(&findings) {
        *finding_counts.entry(identity(finding)).or_default() += 1;
    }
    let missed = without(&planted.expected, &finding_counts);
    let invented = without(&finding_counts, &planted.expected);
    assert!(
        missed.is_empty() && invented.is_empty(),
        "missed {missed:?}, invented {invented:?}"
    );
    assert_eq!(summary.left_alone, 0);
    assert_eq!(summary.findings.values().sum::<u64>(), findings.len() as u64);

    let plan: Vec<Vec<CellChange>> = bad(&findings).into_iter().map(chosen).collect();
    for changes in &plan {
        assert_eq!(
            repair::apply(&table, changes).await.unwrap(),
            Applied::Changed,
            "{changes:?}"
        );
    }
    for changes in &plan {
        assert_eq!(
            repair::apply(&table, changes).await.unwrap(),
            Applied::Already,
            "{changes:?}"
        );
    }
    let (rest, _) = run(&table, Duration::ZERO).await;
    assert_eq!(bad(&rest), Vec::<&Finding>::new(), "a second check is clean");

    for changes in plan.into_iter().rev() {
        let undo: Vec<CellChange> = changes.into_iter().rev().map(CellChange::inverse).collect();
        assert_eq!(
            repair::apply(&table, &undo).await.unwrap(),
            Applied::Changed,
            "{undo:?}"
        );
    }
    assert!(cells(&*store).await == before, "the undo restores each cell");
}

/// Corruptions of the large run: 100,000 with `OXTSDB_FSCK_CORRUPTIONS=100000`.
fn corruptions() -> usize {
    let set = std::env::var("OXTSDB_FSCK_CORRUPTIONS").ok();
    set.map_or(10_000, |text| text.parse().unwrap())
}

#[tokio::test]
async fn finds_and_repairs_all_planted_corruptions() {
    let corruptions = corruptions();
    finds_repairs_and_restores(Wrapped::atomic().row_store(), 2 * corruptions, corruptions).await;
}

#[tokio::test]
async fn repairs_step_by_step_without_atomic_commits() {
    finds_repairs_and_restores(Wrapped::stepwise().row_store(), 1000, 2000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finds_and_repairs_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    finds_repairs_and_restores(Arc::new(store), 500, 500).await;
}

#[tokio::test]
async fn a_healthy_table_is_clean_and_unchanged() {
    let store = Wrapped::atomic().row_store();
    let table = empty(store.clone()).await;
    Planted::new(3, 20_000, 0).write(&*store).await;
    let before = cells(&*store).await;
    let (findings, summary) = run(&table, Duration::ZERO).await;
    assert_eq!(findings, []);
    assert_eq!(summary.names, 20_000);
    assert_eq!(repair::apply(&table, &[]).await.unwrap(), Applied::Already);
    assert!(cells(&*store).await == before);
}
