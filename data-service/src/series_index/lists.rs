//! The lists that are in memory, by metric, and what becomes of a series that is written meanwhile.
//!
//! A list is begun before its rows are read, and every series whose row was stored since is added to it:
//!
//! ```text
//!   begin(metric)      rows of the metric are read     ready(list)
//!   ───┬───────────────────────────────────────────────────┬────────►
//!      │   add(series): kept aside until the list is ready │ add(series): merged when the list is requested
//! ```
//!
//! A series whose row was there before `begin` is found by reading; of one whose row came later the
//! writer calls [`Lists::add`] after `begin`. So none is missed.
//!
//! Writers need the lock for each new series, so that nothing is done under it that takes as long as a list:
//! added series are frozen, merged with the list by the query that wants it, and the result is put in its
//! place unless another query was faster.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use oxtsdb_query::SeriesList;
use oxtsdb_schema::MetricUid;
use parking_lot::Mutex;
use tokio::sync::watch;

/// What a series that was added takes in memory beside its tags, in bytes; an estimate.
const ADDED_BYTES: usize = 48;

/// A list that was too large is read again after so many times the greatest age of a list.
const TOO_LARGE_AGES: u32 = 10;

/// How far the reading of a list is.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// It has just begun.
    Begun,
    /// Series are collected from points, which takes longer than a query should wait.
    Collecting,
    /// So does a long list.
    Long,
    /// It has ended; without a list if there is none.
    Ended(Option<Arc<SeriesList>>),
}

/// What there is for a metric.
#[derive(Debug)]
pub(super) enum Found {
    /// Its list.
    Ready(Arc<SeriesList>),
    /// Its list, and series to merge with it: see [`Lists::merge`].
    Added(Merge),
    /// It is being read.
    Loading(watch::Receiver<Progress>),
    /// It does not fit into memory.
    TooLarge,
    /// Not cached. The caller must load the list and report progress through this channel.
    Begin(watch::Sender<Progress>),
}

type Added = BTreeSet<Box<[u8]>>;

/// A list and the series that were added to it.
#[derive(Debug)]
pub(super) struct Merge {
    metric: MetricUid,
    list: Arc<SeriesList>,
    frozen: Vec<Arc<Added>>,
}

impl Merge {
    /// How many series the result has, about.
    pub(super) fn len(&self) -> usize {
        self.list.len() + self.frozen.iter().map(|added| added.len()).sum::<usize>()
    }
}

/// Lists by metric. The least recently used are evicted when they do not fit.
#[derive(Debug)]
pub(super) struct Lists {
    limit_bytes: usize,
    /// A list that is older is read again; `None`: never.
    max_age: Option<Duration>,
    /// One that was too large is read again after so long.
    too_large_for: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    metrics: HashMap<MetricUid, Entry>,
    /// Goes on with each request.
    now: u64,
    /// Bytes of all entries.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// When it was requested last.
    used: u64,
    /// When reading it began, or it turned out to be too large.
    since: Instant,
    list: List,
    /// Series that are not in the list, and are being merged with it.
    frozen: Vec<Arc<Added>>,
    /// Series that came since.
    added: Added,
    /// Of `frozen` and `added`.
    added_bytes: usize,
}

#[derive(Debug)]
enum List {
    Loading(watch::Receiver<Progress>),
    Ready(Arc<SeriesList>),
    TooLarge,
}

impl Entry {
    fn byte_len(&self) -> usize {
        let list = match &self.list {
            List::Ready(list) => list.byte_len(),
            List::Loading(_) | List::TooLarge => 0,
        };
        list + self.added_bytes
    }

    /// Its list with what was added, if it is ready.
    fn found(&mut self, metric: MetricUid) -> Option<Found> {
        let List::Ready(list) = &self.list else {
            return None;
        };
        let list = Arc::clone(list);
        if !self.added.is_empty() {
            self.frozen.push(Arc::new(std::mem::take(&mut self.added)));
        }
        if self.frozen.is_empty() {
            return Some(Found::Ready(list));
        }
        let frozen = self.frozen.clone();
        Some(Found::Added(Merge { metric, list, frozen }))
    }

    fn give_up(&mut self) {
        self.list = List::TooLarge;
        self.since = Instant::now();
        self.frozen.clear();
        self.added.clear();
        self.added_bytes = 0;
    }
}

impl Lists {
    /// No lists yet. A list that was too large is tried again some time after: ten times `age`.
    pub(super) fn new(limit_bytes: usize, max_age: Option<Duration>, age: Duration) -> Self {
        Self {
            limit_bytes,
            max_age,
            too_large_for: age * TOO_LARGE_AGES,
            state: Mutex::default(),
        }
    }

    /// What a list may take, in bytes.
    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// What there is for a metric.
    pub(super) fn find(&self, metric: MetricUid) -> Found {
        let mut state = self.state.lock();
        state.now += 1;
        let now = state.now;
        if let Some(entry) = state.metrics.get_mut(&metric) {
            entry.used = now;
            let age = entry.since.elapsed();
            match &entry.list {
                List::TooLarge if age < self.too_large_for => return Found::TooLarge,
                // If the sender is gone, so is the task that reads.
                List::Loading(progress) if progress.has_changed().is_ok() => {
                    return Found::Loading(progress.clone());
                }
                List::Ready(_) if self.max_age.is_none_or(|max_age| age < max_age) => {
                    if let Some(found) = entry.found(metric) {
                        return found;
                    }
                }
                List::TooLarge | List::Loading(_) | List::Ready(_) => {}
            }
        }
        let (sender, receiver) = watch::channel(Progress::Begun);
        let entry = Entry {
            used: now,
            since: Instant::now(),
            list: List::Loading(receiver),
            frozen: Vec::new(),
            added: BTreeSet::new(),
            added_bytes: 0,
        };
        let replaced = state.metrics.insert(metric, entry);
        state.bytes -= replaced.as_ref().map_or(0, Entry::byte_len);
        drop(state);
        // Outside of the lock: a list may be large.
        drop(replaced);
        Found::Begin(sender)
    }

    /// Merges a list with what was added to it, and keeps the result. Takes as long as a list is.
    pub(super) fn merge(&self, merge: Merge) -> Arc<SeriesList> {
        let Merge { metric, list, frozen } = merge;
        let merged = Arc::new(list.with(frozen.iter().map(|added| &**added)));
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(entry) = state.metrics.get_mut(&metric) else {
            return merged;
        };
        let is_current = match &entry.list {
            List::Ready(current) => Arc::ptr_eq(current, &list),
            List::Loading(_) | List::TooLarge => false,
        };
        if is_current {
            let before = entry.byte_len();
            entry.list = List::Ready(Arc::clone(&merged));
            // Others may have frozen more behind these.
            for added in entry.frozen.drain(..frozen.len()) {
                entry.added_bytes -= bytes_of(&added);
            }
            state.bytes = state.bytes - before + entry.byte_len();
            state.make_room(self.limit_bytes, metric);
        }
        merged
    }

    /// The list of a metric was read; returns it with what was added meanwhile, unless that was too much.
    pub(super) fn ready(&self, metric: MetricUid, list: SeriesList) -> Option<Arc<SeriesList>> {
        let found = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let entry = state.metrics.get_mut(&metric)?;
            if !matches!(entry.list, List::Loading(_)) {
                return None;
            }
            state.bytes += list.byte_len();
            entry.list = List::Ready(Arc::new(list));
            let found = entry.found(metric);
            state.make_room(self.limit_bytes, metric);
            found?
        };
        match found {
            Found::Ready(list) => Some(list),
            Found::Added(merge) => Some(self.merge(merge)),
            Found::Loading(_) | Found::TooLarge | Found::Begin(_) => None,
        }
    }

    /// The list of a metric does not fit into memory.
    pub(super) fn too_large(&self, metric: MetricUid) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(entry) = state.metrics.get_mut(&metric) {
            state.bytes -= entry.byte_len();
            entry.give_up();
        }
    }

    /// The list of a metric could not be read.
    pub(super) fn failed(&self, metric: MetricUid) {
        let mut state = self.state.lock();
        if let Some(entry) = state.metrics.remove(&metric) {
            state.bytes -= entry.byte_len();
        }
    }

    /// A series of a metric has its row.
    pub(super) fn add(&self, metric: MetricUid, tags: &[u8]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(entry) = state.metrics.get_mut(&metric) else {
            return;
        };
        let is_known = match &entry.list {
            List::TooLarge => true,
            List::Loading(_) => false,
            List::Ready(list) => list.contains(tags) || entry.frozen.iter().any(|added| added.contains(tags)),
        };
        if is_known || !entry.added.insert(tags.into()) {
            return;
        }
        let bytes = tags.len() + ADDED_BYTES;
        entry.added_bytes += bytes;
        state.bytes += bytes;
        state.make_room(self.limit_bytes, metric);
    }
}

/// What a set of added series takes.
fn bytes_of(added: &Added) -> usize {
    added.iter().map(|tags| tags.len() + ADDED_BYTES).sum()
}

impl State {
    /// Evicts lists until all that are left fit; the one of `kept` goes last.
    fn make_room(&mut self, limit_bytes: usize, kept: MetricUid) {
        while self.bytes > limit_bytes {
            let evictable = self
                .metrics
                .iter()
                .filter(|(metric, entry)| **metric != kept && matches!(entry.list, List::Ready(_)));
            let oldest = evictable
                .min_by_key(|(_, entry)| entry.used)
                .map(|(metric, _)| *metric);
            match oldest.and_then(|metric| self.metrics.remove(&metric)) {
                Some(entry) => self.bytes -= entry.byte_len(),
                None => {
                    if let Some(entry) = self.metrics.get_mut(&kept) {
                        self.bytes -= entry.byte_len();
                        entry.give_up();
                    }
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidth;

    use super::*;

    const AGE: Duration = Duration::from_secs(60);

    fn metric(number: u64) -> MetricUid {
        MetricUid::from_number(number, UidWidth::DEFAULT).unwrap()
    }

    fn list(series: &[u8]) -> SeriesList {
        let mut list = SeriesList::default();
        series.iter().for_each(|tags| list.push(&[*tags]));
        list
    }

    fn begin(lists: &Lists, number: u64) -> watch::Sender<Progress> {
        match lists.find(metric(number)) {
            Found::Begin(sender) => sender,
            other => panic!("{other:?}"),
        }
    }

    fn ready(lists: &Lists, number: u64) -> Arc<SeriesList> {
        match lists.find(metric(number)) {
            Found::Ready(list) => list,
            Found::Added(merge) => lists.merge(merge),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_series_that_comes_at_any_time_after_the_beginning_is_in_the_list() {
        let lists = Lists::new(1 << 20, None, AGE);
        lists.add(metric(1), &[9]);
        let sender = begin(&lists, 1);
        lists.add(metric(1), &[2]);
        lists.add(metric(1), &[4]);
        lists.add(metric(2), &[8]);
        assert!(matches!(lists.find(metric(1)), Found::Loading(_)));
        // It had the row of 2 as well when it was read.
        let read = lists.ready(metric(1), list(&[1, 2, 3])).unwrap();
        assert_eq!(*read, list(&[1, 2, 3, 4]));
        drop(sender);
        lists.add(metric(1), &[0]);
        lists.add(metric(1), &[3]);
        assert_eq!(*ready(&lists, 1), list(&[0, 1, 2, 3, 4]));
        lists.add(metric(1), &[5]);
        assert_eq!(*ready(&lists, 1), list(&[0, 1, 2, 3, 4, 5]));
    }

    #[test]
    fn a_reader_that_is_gone_is_replaced() {
        let lists = Lists::new(1 << 20, None, AGE);
        drop(begin(&lists, 1));
        begin(&lists, 1);
        lists.failed(metric(1));
        begin(&lists, 1);
    }

    #[test]
    fn what_is_too_old_is_read_again() {
        let lists = Lists::new(1 << 20, Some(Duration::ZERO), AGE);
        let _sender = begin(&lists, 1);
        lists.ready(metric(1), list(&[1]));
        begin(&lists, 1);
    }

    #[test]
    fn memory_is_bounded_and_what_was_asked_for_stays() {
        let long = |number: u8| {
            let mut list = SeriesList::default();
            list.push(&[number; 1000]);
            list
        };
        let lists = Lists::new(2500, None, AGE);
        for number in [1, 2, 3] {
            let _sender = begin(&lists, u64::from(number));
            lists.ready(metric(number.into()), long(number));
            if number == 2 {
                ready(&lists, 1);
            }
        }
        ready(&lists, 1);
        ready(&lists, 3);
        let _sender = begin(&lists, 2);
        // One alone that does not fit is not kept, however it grew.
        let _sender = begin(&lists, 4);
        lists.ready(metric(4), list(&[1]));
        for number in 0..100 {
            lists.add(metric(4), &[number, 0]);
        }
        assert!(matches!(lists.find(metric(4)), Found::TooLarge));
        lists.add(metric(4), &[1]);
        let _sender = begin(&lists, 5);
        lists.too_large(metric(5));
        assert!(matches!(lists.find(metric(5)), Found::TooLarge));
    }

    #[test]
    fn writers_add_while_lists_are_merged() {
        let lists = Lists::new(1 << 20, None, AGE);
        let _sender = begin(&lists, 1);
        lists.ready(metric(1), list(&[1, 5]));
        lists.add(metric(1), &[2]);
        let Found::Added(first) = lists.find(metric(1)) else {
            panic!("not to be merged")
        };
        // Neither writers nor other queries wait for the first one.
        lists.add(metric(1), &[2]);
        lists.add(metric(1), &[3]);
        let Found::Added(second) = lists.find(metric(1)) else {
            panic!("not to be merged")
        };
        lists.add(metric(1), &[4]);
        assert_eq!(*lists.merge(first), list(&[1, 2, 5]));
        assert_eq!(
            *lists.merge(second),
            list(&[1, 2, 3, 5]),
            "its own, though not kept"
        );
        assert_eq!(*ready(&lists, 1), list(&[1, 2, 3, 4, 5]));
        assert!(
            matches!(lists.find(metric(1)), Found::Ready(_)),
            "nothing is left to merge"
        );
        let state = lists.state.lock();
        let bytes: usize = state.metrics.values().map(Entry::byte_len).sum();
        assert_eq!(state.bytes, bytes);
    }

    #[test]
    fn a_list_that_was_too_large_is_tried_again() {
        let lists = Lists::new(100, None, Duration::ZERO);
        let _sender = begin(&lists, 1);
        lists.too_large(metric(1));
        let _sender = begin(&lists, 1);
        lists.ready(metric(1), list(&[1]));
        assert_eq!(*ready(&lists, 1), list(&[1]));
    }
}
