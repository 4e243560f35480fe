//! Races of two assignments of one name, put by put: lost responses, late puts, late deletes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{
    CellAddress, Clock, Condition, MutationRef, RowStore, StoreError, WriteBatch, Writers,
};
use oxtsdb_schema::{Name, NameRules, UidKind};
use oxtsdb_uids::error::UidServiceError;
use oxtsdb_uids::table::KindName;
use oxtsdb_uids::testing::{self, cells, check_invariants, counter, table};
use oxtsdb_uids::uids::{Purpose, Uids};
use parking_lot::Mutex;

/// The outcome of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Executed; its response is lost.
    DoneUnknown,
    /// Not executed; its response is lost.
    Lost,
    /// Executed when the test triggers it; its response is lost.
    Late,
    /// Rejected as retryable.
    Refused,
    /// Executed after a rival has given the name another UID.
    Overtaken,
    /// Executed twice, as by a Thrift server that has lost the first response; the second one is returned.
    Repeated,
}

/// Applies outcomes to the first operations of one form.
#[derive(Debug)]
struct Script {
    form: fn(&Operation) -> bool,
    fates: Mutex<Vec<Fate>>,
    late: Mutex<Vec<Operation>>,
    count: AtomicUsize,
}

impl Script {
    fn new(form: fn(&Operation) -> bool, fates: &[Fate]) -> Arc<Self> {
        Arc::new(Self {
            form,
            fates: Mutex::new(fates.iter().rev().copied().collect()),
            late: Mutex::default(),
            count: AtomicUsize::new(0),
        })
    }
}

#[async_trait]
impl Intercept for Script {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if !(self.form)(&operation) {
            return operation.perform(store).await;
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        let fate = self.fates.lock().pop();
        let lost = || StoreError::Io {
            place: "gateway".to_owned(),
            detail: "connection lost".to_owned(),
        };
        match fate {
            None => operation.perform(store).await,
            Some(Fate::DoneUnknown) => operation.perform(store).await.and_then(|_| Err(lost())),
            Some(Fate::Lost) => Err(lost()),
            Some(Fate::Late) => {
                self.late.lock().push(operation);
                Err(lost())
            }
            Some(Fate::Refused) => Err(StoreError::Unavailable {
                detail: "the queue is full".to_owned(),
            }),
            Some(Fate::Overtaken) => {
                rival_takes(store).await;
                operation.perform(store).await
            }
            Some(Fate::Repeated) => {
                operation.clone().perform(store).await?;
                operation.perform(store).await
            }
        }
    }
}

fn is_increment(operation: &Operation) -> bool {
    matches!(operation, Operation::Increment { .. })
}

fn is_reverse_put(operation: &Operation) -> bool {
    matches!(operation, Operation::CheckAndPut { condition, .. } if condition.cell.family == "name")
}

fn is_forward_put(operation: &Operation) -> bool {
    matches!(operation, Operation::CheckAndPut { condition, .. } if condition.cell.family == "id")
}

fn is_put(operation: &Operation) -> bool {
    is_reverse_put(operation) || is_forward_put(operation)
}

fn is_delete(operation: &Operation) -> bool {
    matches!(operation, Operation::Write { .. })
}

const RIVAL: [u8; 3] = [0, 0, 9];

/// A rival gives `host` the UID 9, as OpenTSDB does.
async fn rival_takes(store: &dyn RowStore) {
    let put = async |row: &[u8], family: &str, value: &[u8]| {
        let condition = Condition {
            cell: CellAddress::new(row, family, UidKind::Tagk.qualifier()),
            expected: None,
        };
        store.check_and_put(&table(), &condition, value).await.unwrap()
    };
    assert!(put(&RIVAL, "name", b"host").await);
    assert!(put(b"host", "id", &RIVAL).await);
}

struct Table {
    store: MemoryStore,
    uids: Uids,
}

async fn table_with(script: &Arc<Script>) -> Table {
    let store = MemoryStore::new();
    let config = testing::config();
    testing::make_tables(&store, &config).await;
    let hook = Arc::clone(script) as Arc<dyn Intercept>;
    let intercepted = InterceptedStore::new(Arc::new(store.clone()), hook).without_atomic_commits();
    Table {
        store,
        uids: Uids::new(Arc::new(intercepted), Writers::Single, config),
    }
}

fn tagk(name: &str) -> KindName {
    (UidKind::Tagk, Name::parse(name, &NameRules::default()).unwrap())
}

/// The UID that `host` gets, or the error.
async fn assign(table: &Table) -> Result<u64, UidServiceError> {
    let mut outcomes = table.uids.get_or_create(&[tagk("host")], Purpose::Write).await;
    outcomes.remove(0).map(|assigned| assigned.uid.number())
}

#[tokio::test(start_paused = true)]
async fn detects_a_put_whose_response_was_lost() {
    use Fate::{DoneUnknown, Lost, Refused, Repeated};
    for form in [is_reverse_put, is_forward_put] {
        for fates in [
            &[DoneUnknown][..],
            &[Lost],
            &[Lost, DoneUnknown],
            &[DoneUnknown, Lost],
            &[Repeated],
            &[Lost, Repeated],
            &[Refused, Refused, DoneUnknown, Refused],
        ] {
            let table = table_with(&Script::new(form, fates)).await;
            assert_eq!(assign(&table).await.unwrap(), 1, "{fates:?}");
            let (forward, reverse) = check_invariants(&table.store).await;
            assert_eq!((forward.len(), reverse), (1, 1), "{fates:?}");
            assert!(cells(&table.store).await.contains(&counter(UidKind::Tagk, 1)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_increment_skips_its_uids() {
    let script = Script::new(is_increment, &[Fate::DoneUnknown, Fate::DoneUnknown]);
    let table = table_with(&script).await;
    assert_eq!(assign(&table).await.unwrap(), 3);
    let (forward, reverse) = check_invariants(&table.store).await;
    assert_eq!((forward.len(), reverse), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_loser_takes_the_winners_uid_and_leaves_no_orphan() {
    for form in [is_reverse_put, is_forward_put] {
        let table = table_with(&Script::new(form, &[Fate::Overtaken])).await;
        assert_eq!(assign(&table).await.unwrap(), 9);
        let (forward, reverse) = check_invariants(&table.store).await;
        assert_eq!((forward.len(), reverse), (1, 1), "only the winner's");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_a_delete_whose_response_was_lost() {
    let script = Script::new(
        |operation| is_forward_put(operation) || is_delete(operation),
        &[Fate::Overtaken, Fate::Lost, Fate::Refused, Fate::DoneUnknown],
    );
    let table = table_with(&script).await;
    assert_eq!(assign(&table).await.unwrap(), 9);
    let (forward, reverse) = check_invariants(&table.store).await;
    assert_eq!((forward.len(), reverse), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn keeps_the_reverse_cell_while_a_forward_put_may_arrive() {
    let script = Script::new(is_forward_put, &[Fate::Late, Fate::Overtaken]);
    let table = table_with(&script).await;
    assert_eq!(assign(&table).await.unwrap(), 9);
    let (forward, reverse) = check_invariants(&table.store).await;
    assert_eq!((forward.len(), reverse), (1, 2), "ours stays beside the winner's");

    // An operator deletes the name before the put arrives.
    let mut batch = WriteBatch::new(testing::table());
    let (id, name) = (batch.family("id"), batch.family("name"));
    batch.row(b"host").delete_column(id, UidKind::Tagk.qualifier());
    batch.row(&RIVAL).delete_column(name, UidKind::Tagk.qualifier());
    table.store.write(batch).await.unwrap();
    let late = script.late.lock().pop().unwrap();
    late.perform(&table.store).await.unwrap();
    let (forward, _) = check_invariants(&table.store).await;
    assert_eq!(
        forward.values().collect::<Vec<_>>(),
        [&[0, 0, 1]],
        "and it has its name"
    );
}

#[tokio::test]
async fn a_repeated_delete_spares_a_new_owner_of_the_uid() {
    let script = Script::new(
        |operation| is_forward_put(operation) || is_delete(operation),
        &[Fate::Overtaken, Fate::Late],
    );
    let table = table_with(&script).await;
    assert_eq!(assign(&table).await.unwrap(), 9, "the delete was repeated");
    let (_, reverse) = check_invariants(&table.store).await;
    assert_eq!(reverse, 1, "the reverse cell is deleted");
    let late = script.late.lock().pop().unwrap();
    let Operation::Write { batch } = &late else {
        panic!("{late:?}")
    };
    let removed: Vec<MutationRef<'_>> = batch
        .iter()
        .flat_map(|row| row.iter().collect::<Vec<_>>())
        .collect();
    let [
        MutationRef::DeleteColumn {
            up_to_ms: Some(up_to_ms),
            ..
        },
    ] = removed[..]
    else {
        panic!("{removed:?}")
    };
    // A replica with random UIDs draws the same one, later by the store's clock.
    while Clock::system().now_ms() <= up_to_ms {
        tokio::task::yield_now().await;
    }
    let condition = Condition {
        cell: CellAddress::new([0, 0, 1], "name", UidKind::Tagk.qualifier()),
        expected: None,
    };
    let drawn = table
        .store
        .check_and_put(&testing::table(), &condition, b"other")
        .await;
    assert!(drawn.unwrap());
    late.perform(&table.store).await.unwrap();
    let left = cells(&table.store).await;
    let other = testing::cell(&[0, 0, 1], "name", UidKind::Tagk, b"other");
    assert!(left.contains(&other), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_fails_soon_while_the_store_fails() {
    // More failures than retries.
    let script = Script::new(is_put, &[Fate::Lost; 10_000]);
    let table = table_with(&script).await;
    let names: Vec<KindName> = (0..2000).map(|number| tagk(&format!("name.{number}"))).collect();
    let outcomes = table.uids.get_or_create(&names, Purpose::Write).await;
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, Err(UidServiceError::Store(_))))
    );
    let tried = script.count.load(Ordering::SeqCst);
    // Three attempts of each of the 128 names that are written at a time.
    assert!(
        tried <= 3 * 128,
        "{tried} puts were tried for {} names",
        names.len()
    );
}
