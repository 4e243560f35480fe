//! Which cached mappings have changed.
//!
//! A look-up that began before a change may return the mapping of before. So it takes a [`Mark`] when it begins, and
//! what it returns is cached only if nothing has changed since. Write streams, whose series are a cache as well,
//! compare marks with each frame.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_schema::{Uid, UidKind};
use parking_lot::Mutex;

/// UIDs whose mappings have changed.
pub(crate) type UidSet = HashSet<(UidKind, Uid)>;

/// Changes whose UIDs are remembered. To a holder of an older mark, everything may have changed.
const RECENT: usize = 64;

/// A time, in changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(u64);

/// The changes so far.
#[derive(Debug, Default)]
pub(crate) struct UidChanges {
    count: AtomicU64,
    /// The last changes, with the mark after each. `None`: everything may have changed.
    recent: Mutex<VecDeque<(Mark, Option<Arc<UidSet>>)>>,
}

/// What has changed since a mark.
#[derive(Debug)]
pub(crate) enum ChangedSince {
    Nothing,
    Uids(Vec<Arc<UidSet>>),
    Everything,
}

impl UidChanges {
    /// The time now.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.count.load(Ordering::SeqCst))
    }

    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.mark().0
    }

    /// Records a change; `None`: of everything.
    pub(super) fn record(&self, uids: Option<Arc<UidSet>>) {
        let mut recent = self.recent.lock();
        let mark = Mark(self.count.load(Ordering::SeqCst) + 1);
        recent.push_back((mark, uids));
        if recent.len() > RECENT {
            recent.pop_front();
        }
        self.count.store(mark.0, Ordering::SeqCst);
    }

    /// What has changed since a mark.
    pub(crate) fn since(&self, mark: Mark) -> ChangedSince {
        let now = self.mark();
        if now == mark {
            return ChangedSince::Nothing;
        }
        let recent = self.recent.lock();
        if recent.front().is_none_or(|(first, _)| first.0 > mark.0 + 1) {
            return ChangedSince::Everything;
        }
        let after = recent.iter().filter(|(at, _)| *at > mark);
        match after.map(|(_, uids)| uids.clone()).collect() {
            Some(uids) => ChangedSince::Uids(uids),
            None => ChangedSince::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidth;

    use super::*;

    fn set(number: u64) -> Arc<UidSet> {
        let uid = Uid::from_number(number, UidWidth::DEFAULT).unwrap();
        Arc::new(UidSet::from([(UidKind::Tagk, uid)]))
    }

    #[test]
    fn changes_are_known_by_their_uids_while_they_are_recent() {
        let changes = UidChanges::default();
        let start = changes.mark();
        assert!(matches!(changes.since(start), ChangedSince::Nothing));
        changes.record(Some(set(1)));
        let middle = changes.mark();
        changes.record(Some(set(2)));
        let since = |mark| match changes.since(mark) {
            ChangedSince::Uids(sets) => sets,
            other => panic!("{other:?}"),
        };
        assert_eq!(since(start), [set(1), set(2)]);
        assert_eq!(since(middle), [set(2)]);
        for number in 0..RECENT as u64 {
            changes.record(Some(set(number)));
        }
        assert!(
            matches!(changes.since(start), ChangedSince::Everything),
            "forgotten"
        );
        let late = changes.mark();
        changes.record(None);
        assert!(matches!(changes.since(late), ChangedSince::Everything));
        assert!(matches!(changes.since(changes.mark()), ChangedSince::Nothing));
    }
}
