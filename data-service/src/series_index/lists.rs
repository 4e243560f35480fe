//! The lists that are in memory, by metric, and what becomes of a series that is written meanwhile.
//!
//! A list is begun before its rows are read, and every series whose row was stored since is added to it:
//!
//! ```text
//!   begin(metric)      rows of the metric are read     ready(list)
//!   ───┬───────────────────────────────────────────────────┬────────►
//!      │   add(series): kept aside until the list is ready │ add(series): joined when the list is asked for
//! ```
//!
//! A series whose row was there before `begin` is found by reading; of one whose row came later the
//! writer calls [`Lists::add`] after `begin`. So none is missed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use oxtsdb_schema::MetricUid;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::list::SeriesList;

/// What a series that was added takes in memory beside its tags, in bytes; an estimate.
const ADDED_BYTES: usize = 48;

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
    /// Somebody reads it.
    Loading(watch::Receiver<Progress>),
    /// It does not fit into memory.
    TooLarge,
    /// Nothing. Whoever was told so has to read it, and to say here how far that is.
    Begin(watch::Sender<Progress>),
}

/// Lists by metric. Those that were asked for least recently go when there is no room.
#[derive(Debug)]
pub(super) struct Lists {
    limit_bytes: usize,
    /// A list that is older is read again; `None`: never.
    max_age: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    metrics: HashMap<MetricUid, Entry>,
    /// Goes on with each question.
    now: u64,
}

#[derive(Debug)]
struct Entry {
    /// When it was asked for last.
    used: u64,
    /// When reading it began.
    begun: Instant,
    list: List,
    /// Series that are not in the list.
    added: BTreeSet<Box<[u8]>>,
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
}

impl Lists {
    /// No lists yet.
    pub(super) fn new(limit_bytes: usize, max_age: Option<Duration>) -> Self {
        Self {
            limit_bytes,
            max_age,
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
            match &mut entry.list {
                List::TooLarge => return Found::TooLarge,
                List::Loading(progress) => {
                    // Whoever read it is gone without an end if the sender is.
                    if progress.has_changed().is_ok() {
                        return Found::Loading(progress.clone());
                    }
                }
                List::Ready(list) => {
                    if self.max_age.is_none_or(|max_age| entry.begun.elapsed() < max_age) {
                        let list = Arc::clone(list);
                        return Found::Ready(entry.joined(list));
                    }
                }
            }
        }
        let (sender, receiver) = watch::channel(Progress::Begun);
        let entry = Entry {
            used: now,
            begun: Instant::now(),
            list: List::Loading(receiver),
            added: BTreeSet::new(),
            added_bytes: 0,
        };
        state.metrics.insert(metric, entry);
        Found::Begin(sender)
    }

    /// The list of a metric was read; returns it with what was added meanwhile, unless that was too much.
    pub(super) fn ready(&self, metric: MetricUid, list: SeriesList) -> Option<Arc<SeriesList>> {
        let mut state = self.state.lock();
        let entry = state.metrics.get_mut(&metric)?;
        if !matches!(entry.list, List::Loading(_)) {
            return None;
        }
        let list = entry.joined(Arc::new(list));
        state.make_room(self.limit_bytes, metric);
        Some(list)
    }

    /// The list of a metric does not fit into memory.
    pub(super) fn too_large(&self, metric: MetricUid) {
        if let Some(entry) = self.state.lock().metrics.get_mut(&metric) {
            entry.give_up();
        }
    }

    /// The list of a metric could not be read.
    pub(super) fn failed(&self, metric: MetricUid) {
        self.state.lock().metrics.remove(&metric);
    }

    /// A series of a metric has its row.
    pub(super) fn add(&self, metric: MetricUid, tags: &[u8]) {
        let mut state = self.state.lock();
        let Some(entry) = state.metrics.get_mut(&metric) else {
            return;
        };
        let is_known = match &entry.list {
            List::TooLarge => true,
            List::Loading(_) => false,
            List::Ready(list) => list.contains(tags),
        };
        if is_known || !entry.added.insert(tags.into()) {
            return;
        }
        entry.added_bytes += tags.len() + ADDED_BYTES;
        state.make_room(self.limit_bytes, metric);
    }
}

impl Entry {
    /// Keeps a list, joined with what was added.
    fn joined(&mut self, list: Arc<SeriesList>) -> Arc<SeriesList> {
        let list = if self.added.is_empty() {
            list
        } else {
            Arc::new(list.with(&self.added))
        };
        self.added.clear();
        self.added_bytes = 0;
        self.list = List::Ready(Arc::clone(&list));
        list
    }

    fn give_up(&mut self) {
        self.list = List::TooLarge;
        self.added.clear();
        self.added_bytes = 0;
    }
}

impl State {
    /// Drops lists until all that are left fit; the one of `kept` goes last.
    fn make_room(&mut self, limit_bytes: usize, kept: MetricUid) {
        let mut bytes: usize = self.metrics.values().map(Entry::byte_len).sum();
        while bytes > limit_bytes {
            let droppable = self
                .metrics
                .iter()
                .filter(|(metric, entry)| **metric != kept && matches!(entry.list, List::Ready(_)));
            let oldest = droppable
                .min_by_key(|(_, entry)| entry.used)
                .map(|(metric, _)| *metric);
            match oldest.and_then(|metric| self.metrics.remove(&metric)) {
                Some(entry) => bytes -= entry.byte_len(),
                None => {
                    if let Some(entry) = self.metrics.get_mut(&kept) {
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
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_series_that_comes_at_any_time_after_the_beginning_is_in_the_list() {
        let lists = Lists::new(1 << 20, None);
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
        let lists = Lists::new(1 << 20, None);
        drop(begin(&lists, 1));
        begin(&lists, 1);
        lists.failed(metric(1));
        begin(&lists, 1);
    }

    #[test]
    fn what_is_too_old_is_read_again() {
        let lists = Lists::new(1 << 20, Some(Duration::ZERO));
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
        let lists = Lists::new(2500, None);
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
}
