//! The lists in memory, by metric, and the series that are added to them.
//!
//! An entry is created before the rows of its metric are read, and receives every series with a row that
//! is stored since then:
//!
//! ```text
//!   Found::Begin       rows of the metric are read     ready(list)
//!   ───┬───────────────────────────────────────────────────┬────────►
//!      │   add(series): buffered until the list is ready   │ add(series): merged when the list is requested
//! ```
//!
//! Reading finds the series with rows from before the entry was created; for all later rows the writer calls
//! [`Lists::add`] afterwards. A list is therefore complete.
//!
//! Writers need the lock for each new series, so no step under the lock takes time proportional to a list: added
//! series are frozen, the query that requests the list merges them, and the result replaces the list unless another
//! query has replaced it before.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use oxtsdb_query::SeriesList;
use oxtsdb_schema::MetricUid;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Memory of an added series beside its tags, in bytes; an estimate.
const ADDED_BYTES: usize = 48;

/// A list that was too large is read again after this many times the maximum age.
const TOO_LARGE_AGES: u32 = 10;

/// The progress of loading a list.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// Begun.
    Begun,
    /// The list is long, and takes longer than a query waits.
    Long,
    /// Ended, with the list unless loading failed.
    Ended(Option<Arc<SeriesList>>),
}

/// The state of a metric's list.
#[derive(Debug)]
pub(super) enum Found {
    /// The complete list.
    Ready(Arc<SeriesList>),
    /// The list and series to merge with it; see [`Lists::merge`].
    Added(Merge),
    /// Being loaded.
    Loading(watch::Receiver<Progress>),
    /// Does not fit in memory.
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
    /// The number of series of the result, at most.
    pub(super) fn len(&self) -> usize {
        self.list.len() + self.frozen.iter().map(|added| added.len()).sum::<usize>()
    }
}

/// Lists by metric. The least recently used are evicted when they do not fit.
#[derive(Debug)]
pub(super) struct Lists {
    limit_bytes: usize,
    /// An older list is read again; `None`: never.
    max_age: Option<Duration>,
    /// A list that was too large is read again after this time.
    too_large_for: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    metrics: HashMap<MetricUid, Entry>,
    /// Advances with each request.
    now: u64,
    /// Bytes of all entries.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// The time of its last request, on the clock of [`State::now`].
    used: u64,
    /// When loading began, or when the list turned out to be too large.
    since: Instant,
    list: List,
    /// Series that are not in the list and are being merged with it.
    frozen: Vec<Arc<Added>>,
    /// Series that were added since.
    added: Added,
    /// Memory of `frozen` and `added`.
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

    /// The list and the added series, if the list is ready.
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

    fn discard(&mut self) {
        self.list = List::TooLarge;
        self.since = Instant::now();
        self.frozen.clear();
        self.added.clear();
        self.added_bytes = 0;
    }
}

impl Lists {
    /// Without lists. A list that was too large is read again after ten times `age`.
    pub(super) fn new(limit_bytes: usize, max_age: Option<Duration>, age: Duration) -> Self {
        Self {
            limit_bytes,
            max_age,
            too_large_for: age * TOO_LARGE_AGES,
            state: Mutex::default(),
        }
    }

    /// The memory limit of all lists, in bytes.
    pub(super) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// The state of a metric's list; the caller must load the list on [`Found::Begin`].
    pub(super) fn find(&self, metric: MetricUid) -> Found {
        let mut state = self.state.lock();
        state.now += 1;
        let now = state.now;
        if let Some(entry) = state.metrics.get_mut(&metric) {
            entry.used = now;
            let age = entry.since.elapsed();
            match &entry.list {
                List::TooLarge if age < self.too_large_for => return Found::TooLarge,
                // Without a sender the loading task has ended.
                List::Loading(progress) if progress.has_changed().is_ok() => {
                    return Found::Loading(progress.clone());
                }
                List::Ready(_) if self.max_age.is_none_or(|max_age| age < max_age) => {
                    if let Some(list_state) = entry.found(metric) {
                        return list_state;
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
        // Outside the lock: a list may be large.
        drop(replaced);
        Found::Begin(sender)
    }

    /// Merges a list with the added series, and caches the result. Takes time proportional to the list.
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
            // Other queries may have frozen more series since.
            for added in entry.frozen.drain(..frozen.len()) {
                entry.added_bytes -= bytes_of(&added);
            }
            state.bytes = state.bytes - before + entry.byte_len();
            state.evict(self.limit_bytes, metric);
        }
        merged
    }

    /// Caches the list of a metric that was loaded. Returns it with the series added meanwhile, unless they do not fit
    /// in memory.
    pub(super) fn ready(&self, metric: MetricUid, list: SeriesList) -> Option<Arc<SeriesList>> {
        let list_state = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let entry = state.metrics.get_mut(&metric)?;
            if !matches!(entry.list, List::Loading(_)) {
                return None;
            }
            state.bytes += list.byte_len();
            entry.list = List::Ready(Arc::new(list));
            let list_state = entry.found(metric);
            state.evict(self.limit_bytes, metric);
            list_state?
        };
        match list_state {
            Found::Ready(list) => Some(list),
            Found::Added(merge) => Some(self.merge(merge)),
            Found::Loading(_) | Found::TooLarge | Found::Begin(_) => None,
        }
    }

    /// Forgets all lists that are not being loaded.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut released = 0;
        state.metrics.retain(|_, entry| {
            let keeps = matches!(entry.list, List::Loading(_));
            if !keeps {
                released += entry.byte_len();
            }
            keeps
        });
        state.bytes -= released;
    }

    /// Records that the list of a metric does not fit in memory.
    pub(super) fn too_large(&self, metric: MetricUid) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(entry) = state.metrics.get_mut(&metric) {
            state.bytes -= entry.byte_len();
            entry.discard();
        }
    }

    /// Records that the list of a metric could not be loaded.
    pub(super) fn failed(&self, metric: MetricUid) {
        let mut state = self.state.lock();
        if let Some(entry) = state.metrics.remove(&metric) {
            state.bytes -= entry.byte_len();
        }
    }

    /// Adds a series; its row is stored.
    pub(super) fn add(&self, metric: MetricUid, tags: &[u8]) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(entry) = state.metrics.get_mut(&metric) else {
            return;
        };
        let is_listed = match &entry.list {
            List::TooLarge => true,
            List::Loading(_) => false,
            List::Ready(list) => list.contains(tags) || entry.frozen.iter().any(|added| added.contains(tags)),
        };
        if is_listed || !entry.added.insert(tags.into()) {
            return;
        }
        let bytes = tags.len() + ADDED_BYTES;
        entry.added_bytes += bytes;
        state.bytes += bytes;
        state.evict(self.limit_bytes, metric);
    }
}

/// Memory of a set of added series, in bytes.
fn bytes_of(added: &Added) -> usize {
    added.iter().map(|tags| tags.len() + ADDED_BYTES).sum()
}

impl State {
    /// Evicts lists until the rest fits in memory, `kept` last.
    fn evict(&mut self, limit_bytes: usize, kept: MetricUid) {
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
                        entry.discard();
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
    fn a_list_has_all_series_added_after_loading_began() {
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
    fn replaces_a_loader_that_ended() {
        let lists = Lists::new(1 << 20, None, AGE);
        drop(begin(&lists, 1));
        begin(&lists, 1);
        lists.failed(metric(1));
        begin(&lists, 1);
    }

    #[test]
    fn reads_an_expired_list_again() {
        let lists = Lists::new(1 << 20, Some(Duration::ZERO), AGE);
        let _sender = begin(&lists, 1);
        lists.ready(metric(1), list(&[1]));
        begin(&lists, 1);
    }

    #[test]
    fn evicts_the_least_recently_used_list() {
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
    fn a_cleared_list_is_read_again() {
        let lists = Lists::new(1 << 20, None, AGE);
        let _sender = begin(&lists, 1);
        let _loading = begin(&lists, 2);
        lists.ready(metric(1), list(&[1]));
        lists.clear();
        let _sender = begin(&lists, 1);
        assert!(matches!(lists.find(metric(2)), Found::Loading(_)));
        assert_eq!(lists.state.lock().bytes, 0);
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
