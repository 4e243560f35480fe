//! Finds renames and deletes by other programs, which report none: a scan of the reverse mappings at intervals, compared
//! with the scan before.
//!
//! A scan keeps a digest of the mappings of each range of numbers, [`MAX_RANGES`] at most for a kind: a range is one UID
//! while a kind has half a million, and more when it has more. If the digest of a range has changed, all UIDs of the
//! range are reported. UIDs with the name that this service has given them, and UIDs that were assigned after the last
//! scan began, are left out. With more than [`MAX_CHANGES`], any mapping may have changed.
//!
//! Random UIDs of more than 3 bytes are not scanned: nearly all numbers of a range are not in use, and it has up to half
//! a billion. Cached mappings have an age limit for these, too.
//!
//! Changes that a program makes before the first scan of this process are not found; cached mappings have an age limit
//! for that.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use futures::TryStreamExt as _;
use oxtsdb_row_store::{Scan, StoreError};
use oxtsdb_schema::{Name, PerKind, Uid, UidKind};
use parking_lot::Mutex;

use crate::error::UidServiceError;
use crate::table::{KindUid, NAME, UidTable, column, value};

/// Ranges of a kind: 4 MiB of digests.
const MAX_RANGES: u64 = 1 << 19;

/// The low bits of a range of random UIDs at most.
const MAX_RANDOM_SHIFT: u32 = 5;

/// UIDs that this service has changed between two scans. With more, they are reported as if others had.
const MAX_OWN: usize = 65_536;

/// Changes of one scan that are reported one by one, and UIDs that are read at once.
const MAX_CHANGES: usize = 4096;

/// A mapping that another program has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ForeignChange {
    pub(crate) uid: KindUid,
    /// The name now; `None`: it has none.
    pub(crate) name: Option<Name>,
}

/// Scans the table.
#[derive(Debug)]
pub(crate) struct ForeignScan {
    table: UidTable,
    last: tokio::sync::Mutex<PerKind<Option<Digests>>>,
    /// The digests of the mappings that this service has changed since the last scan of their kind began.
    own: Mutex<HashMap<KindUid, u64>>,
}

/// The digest of no mapping.
const ABSENT: u64 = 0;

/// The digests of one kind.
#[derive(Debug)]
struct Digests {
    /// Numbers are in one range if they are equal without these low bits.
    shift: u32,
    ranges: Vec<u64>,
    /// The counter when the scan began: later numbers may be missing. With random UIDs the largest number.
    counter: u64,
}

impl Digests {
    fn new(shift: u32, counter: u64) -> Self {
        Self {
            shift,
            ranges: Vec::new(),
            counter,
        }
    }

    fn add(&mut self, uid: Uid, name: &[u8]) {
        let Ok(range) = usize::try_from(uid.number() >> self.shift) else {
            return;
        };
        // Numbers beyond the counter are damage, and would need memory.
        if uid.number() > self.counter {
            return;
        }
        if self.ranges.len() <= range {
            self.ranges.resize(range + 1, ABSENT);
        }
        if let Some(digest) = self.ranges.get_mut(range) {
            *digest ^= digest_of(uid, name);
        }
    }

    /// The digest of a range of `shift` low bits; `shift` is at least `self.shift`.
    fn range_digest(&self, range: u64, shift: u32) -> u64 {
        let parts = 1_u64 << (shift - self.shift);
        (range * parts..(range + 1) * parts)
            .filter_map(|part| self.ranges.get(usize::try_from(part).ok()?))
            .fold(0, |all, part| all ^ part)
    }
}

fn digest_of(uid: Uid, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (uid.as_bytes(), name).hash(&mut hasher);
    hasher.finish().max(ABSENT + 1)
}

fn digest_of_mapping(uid: Uid, name: Option<&Name>) -> u64 {
    name.map_or(ABSENT, |name| digest_of(uid, name.as_bytes()))
}

impl ForeignScan {
    pub(crate) fn new(table: UidTable) -> Self {
        Self {
            table,
            last: tokio::sync::Mutex::default(),
            own: Mutex::default(),
        }
    }

    /// Notes that this service has given a UID this name; `None`: has deleted it.
    pub(crate) fn changed_by_service(&self, uid: KindUid, name: Option<&Name>) {
        let mut own = self.own.lock();
        if own.len() < MAX_OWN || own.contains_key(&uid) {
            own.insert(uid, digest_of_mapping(uid.1, name));
        }
    }

    /// Scans the mappings of a kind; returns those that another program has changed since the last scan. `None`: more
    /// than [`MAX_CHANGES`].
    pub(crate) async fn scan(&self, kind: UidKind) -> Result<Option<Vec<ForeignChange>>, UidServiceError> {
        let mut last = self.last.lock().await;
        let own: HashMap<KindUid, u64> = self.own.lock().extract_if(|uid, _| uid.0 == kind).collect();
        let layout = self.table.layout();
        let counter = if layout.kinds.get(kind).random {
            layout.width(kind).max_number()
        } else {
            self.table.counter(kind).await?.number
        };
        let shift = shift_of(counter);
        if layout.kinds.get(kind).random && shift > MAX_RANDOM_SHIFT {
            return Ok(Some(Vec::new()));
        }
        let mut digests = Digests::new(shift, counter);
        self.read(kind, &mut digests).await?;
        let mut changes = Vec::new();
        if let Some(before) = last.get(kind) {
            let ranges = (before.counter >> shift) + 1;
            // The counter of the scan before may be in the middle of a range.
            let whole = |range: u64| (range + 1) << shift <= before.counter + 1 || before.counter == counter;
            let is_changed = |range: &u64| {
                whole(*range)
                    && before.shift <= shift
                    && before.range_digest(*range, shift) != digests.range_digest(*range, shift)
            };
            let width = layout.width(kind);
            let mut uids = (0..ranges)
                .filter(is_changed)
                .flat_map(|range| range << shift..(range + 1) << shift)
                .filter_map(|number| Some((kind, Uid::from_number(number, width).ok()?)));
            while changes.len() <= MAX_CHANGES {
                let next: Vec<KindUid> = uids.by_ref().take(MAX_CHANGES).collect();
                if next.is_empty() {
                    break;
                }
                self.report(&next, &own, &mut changes).await?;
            }
        }
        *last.get_mut(kind) = Some(digests);
        Ok((changes.len() <= MAX_CHANGES).then_some(changes))
    }

    async fn read(&self, kind: UidKind, digests: &mut Digests) -> Result<(), StoreError> {
        let width = self.table.layout().width(kind);
        let mut scan = Scan::range([], []);
        scan.columns = column(NAME, kind);
        scan.batch_rows = 1024;
        let mut rows = self.table.store().scan(self.table.name(), scan).await?;
        while let Some(batch) = rows.try_next().await? {
            for row in &batch {
                let uid = Uid::from_bytes(row.key()).ok().filter(|uid| uid.width() == width);
                if let (Some(uid), Some(name)) = (uid, value(row, NAME, kind)) {
                    digests.add(uid, name);
                }
            }
        }
        Ok(())
    }

    /// Adds the mappings of some UIDs, except for those that are as this service has changed them.
    async fn report(
        &self,
        uids: &[KindUid],
        own: &HashMap<KindUid, u64>,
        changes: &mut Vec<ForeignChange>,
    ) -> Result<(), UidServiceError> {
        for (uid, name) in uids.iter().zip(self.table.names(uids).await) {
            let name = name?;
            let digest = digest_of_mapping(uid.1, name.as_ref());
            let is_own = |own: &HashMap<KindUid, u64>| own.get(uid) == Some(&digest);
            if !is_own(own) && !is_own(&self.own.lock()) {
                changes.push(ForeignChange { uid: *uid, name });
            }
        }
        Ok(())
    }
}

/// The low bits of numbers in one range, for numbers up to this one.
fn shift_of(largest: u64) -> u32 {
    let mut shift = 0;
    while largest >> shift >= MAX_RANGES {
        shift += 1;
    }
    shift
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oxtsdb_row_store::memory::MemoryStore;
    use oxtsdb_row_store::{CellAddress, RowStore as _, TableName, WriteBatch};
    use oxtsdb_schema::UidWidth;

    use super::*;
    use crate::layout::UidLayout;
    use crate::table::ID;

    async fn scan_of(naming: impl FnOnce(&mut UidLayout)) -> (MemoryStore, TableName, ForeignScan) {
        let mut layout = UidLayout::default();
        naming(&mut layout);
        let name: TableName = "tsdb-uid".parse().unwrap();
        let store = MemoryStore::new();
        let definition = UidTable::definition(name.clone());
        store.create_table(&definition).await.unwrap();
        let table = UidTable::new(Arc::new(store.clone()), name.clone(), layout);
        (store, name, ForeignScan::new(table))
    }

    async fn put(store: &MemoryStore, table: &TableName, uid: &[u8], name: &[u8]) {
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family(NAME);
        batch.row(uid).put(family, UidKind::Metric.qualifier(), name);
        store.write(batch).await.unwrap();
    }

    #[tokio::test]
    async fn a_change_after_one_of_this_service_is_found() {
        let (store, table, scan) = scan_of(|_| {}).await;
        let uid = (UidKind::Metric, Uid::from_bytes(&[0, 0, 1]).unwrap());
        let counter = CellAddress::new(vec![0], ID, UidKind::Metric.qualifier());
        store.increment(&table, &counter, 1).await.unwrap();
        put(&store, &table, &[0, 0, 1], b"first").await;
        assert_eq!(scan.scan(UidKind::Metric).await.unwrap(), Some(vec![]));
        let [second, third] = ["second", "third"].map(|name| Name::from_stored(name.as_bytes()).unwrap());
        scan.changed_by_service(uid, Some(&second));
        put(&store, &table, &[0, 0, 1], b"third").await;
        let change = ForeignChange {
            uid,
            name: Some(third.clone()),
        };
        assert_eq!(scan.scan(UidKind::Metric).await.unwrap(), Some(vec![change]));
        scan.changed_by_service(uid, Some(&second));
        put(&store, &table, &[0, 0, 1], b"second").await;
        assert_eq!(scan.scan(UidKind::Metric).await.unwrap(), Some(vec![]));
    }

    #[tokio::test]
    async fn numbers_that_are_not_in_use_are_no_changes_of_long_random_uids() {
        let (store, table, scan) = scan_of(|layout| {
            layout.kinds.metric.width = UidWidth::new(4).unwrap();
            layout.kinds.metric.random = true;
        })
        .await;
        assert_eq!(scan.scan(UidKind::Metric).await.unwrap(), Some(vec![]));
        put(&store, &table, &[7; 4], b"assigned").await;
        let changes = scan.scan(UidKind::Metric).await.unwrap();
        assert_eq!(changes, Some(vec![]));
    }

    #[tokio::test]
    async fn many_changes_are_not_reported_one_by_one() {
        let (store, table, scan) = scan_of(|_| {}).await;
        let counter = CellAddress::new(vec![0], ID, UidKind::Metric.qualifier());
        store.increment(&table, &counter, 10_000).await.unwrap();
        let rename = async |names: &str, count: usize| {
            for number in 1..=u32::try_from(count).unwrap() {
                let name = format!("{names}.{number}");
                put(&store, &table, &number.to_be_bytes()[1..], name.as_bytes()).await;
            }
        };
        rename("first", MAX_CHANGES + 1).await;
        assert_eq!(scan.scan(UidKind::Metric).await.unwrap(), Some(vec![]));
        rename("second", MAX_CHANGES + 1).await;
        assert_eq!(scan.scan(UidKind::Metric).await.unwrap(), None);
        rename("third", MAX_CHANGES).await;
        let changes = scan.scan(UidKind::Metric).await.unwrap().unwrap();
        assert_eq!(changes.len(), MAX_CHANGES);
    }
}
