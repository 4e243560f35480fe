//! Running queries: operators list and cancel them. The last that ended are kept for statistics.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::context::budget::Usage;

/// Queries that ended and are kept.
const KEPT: usize = 128;

/// Sub-queries that are kept of a query that ended, and characters of each and of its error.
const KEPT_SUB_QUERIES: usize = 16;
const KEPT_CHARACTERS: usize = 256;

/// The running queries of an engine, including queries that wait for admission. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RunningQueries {
    list: Arc<Mutex<List>>,
    /// This handle adds and shows the queries of this caller; `None`: it adds the server's own queries, and shows all
    /// queries.
    caller: Option<Arc<str>>,
}

#[derive(Debug, Default)]
struct List {
    last_id: u64,
    queries: BTreeMap<u64, Entry>,
    /// The last that ended, the oldest first; at most [`KEPT`].
    completed: VecDeque<(Option<Arc<str>>, CompletedQuery)>,
}

#[derive(Debug)]
struct Entry {
    caller: Option<Arc<str>>,
    description: QueryDescription,
    started_at: SystemTime,
    started: Instant,
    usage: Arc<Usage>,
    cancellation: CancellationToken,
    error: Option<String>,
}

/// A query as the list of running queries shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryDescription {
    /// Its sub-queries as text.
    pub sub_queries: Vec<String>,
    /// First and last instant of its range, milliseconds since the epoch.
    pub range_ms: (i64, i64),
}

impl QueryDescription {
    /// A request that reads no points, and so has no range.
    pub fn without_range(what: impl Into<String>) -> Self {
        Self {
            sub_queries: vec![what.into()],
            range_ms: (0, 0),
        }
    }
}

/// A running query.
#[derive(Clone, Debug)]
pub struct RunningQuery {
    /// Its number, from 1 since the server started.
    pub id: u64,
    /// The metrics and the range that it reads.
    pub description: QueryDescription,
    /// When it was registered.
    pub started_at: SystemTime,
    /// Time since then.
    pub elapsed: Duration,
    /// Its usage so far.
    pub usage: Arc<Usage>,
}

/// A query that ended.
#[derive(Clone, Debug)]
pub struct CompletedQuery {
    /// Its last state; long texts are shortened.
    pub query: RunningQuery,
    /// Its error; `None`: it returned its result, or its client disconnected.
    pub error: Option<String>,
}

impl QueryDescription {
    /// The first sub-queries, each shortened.
    fn shortened(self) -> Self {
        let mut sub_queries = self.sub_queries;
        sub_queries.truncate(KEPT_SUB_QUERIES);
        sub_queries.iter_mut().for_each(shorten);
        sub_queries.shrink_to_fit();
        Self { sub_queries, ..self }
    }
}

/// Keeps [`KEPT_CHARACTERS`] of a text.
fn shorten(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(KEPT_CHARACTERS) {
        text.truncate(end);
        text.shrink_to_fit();
    }
}

/// Keeps a query in the list until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    queries: RunningQueries,
    id: u64,
    cancellation: CancellationToken,
}

impl RunningQueries {
    /// Returns the same list for a caller that sees its own queries only.
    pub(crate) fn for_caller(&self, name: &Arc<str>) -> Self {
        Self {
            list: Arc::clone(&self.list),
            caller: Some(Arc::clone(name)),
        }
    }

    fn shows(&self, caller: Option<&Arc<str>>) -> bool {
        self.caller.is_none() || self.caller.as_ref() == caller
    }

    /// Adds a query.
    pub(crate) fn register(&self, description: QueryDescription, usage: Arc<Usage>) -> Registration {
        let cancellation = CancellationToken::new();
        let entry = Entry {
            caller: self.caller.clone(),
            description,
            started_at: SystemTime::now(),
            started: Instant::now(),
            usage,
            cancellation: cancellation.clone(),
            error: None,
        };
        let mut list = self.list.lock();
        list.last_id += 1;
        let id = list.last_id;
        list.queries.insert(id, entry);
        Registration {
            queries: self.clone(),
            id,
            cancellation,
        }
    }

    /// All of them, the oldest first.
    pub fn list(&self) -> Vec<RunningQuery> {
        let list = self.list.lock();
        let queries = list.queries.iter();
        queries
            .filter(|(_, entry)| self.shows(entry.caller.as_ref()))
            .map(|(id, entry)| entry.state(*id, entry.description.clone()))
            .collect()
    }

    /// The last that ended, the oldest first.
    pub fn completed(&self) -> Vec<CompletedQuery> {
        let list = self.list.lock();
        let completed = list.completed.iter();
        completed
            .filter(|(caller, _)| self.shows(caller.as_ref()))
            .map(|(_, query)| query.clone())
            .collect()
    }

    /// Cancels a query: its client receives [`crate::QueryError::Cancelled`]. `false` if no query has this
    /// number.
    pub fn cancel(&self, id: u64) -> bool {
        let list = self.list.lock();
        let query = list.queries.get(&id);
        query.inspect(|query| query.cancellation.cancel()).is_some()
    }
}

impl Entry {
    fn state(&self, id: u64, description: QueryDescription) -> RunningQuery {
        RunningQuery {
            id,
            description,
            started_at: self.started_at,
            elapsed: self.started.elapsed(),
            usage: Arc::clone(&self.usage),
        }
    }
}

impl Registration {
    /// Notes the error of the query, shortened; the first one stays.
    pub(crate) fn failed(&self, error: &dyn std::fmt::Display) {
        let mut list = self.queries.list.lock();
        if let Some(entry) = list.queries.get_mut(&self.id) {
            entry.error.get_or_insert_with(|| {
                // An error may contain names that the client sent.
                let mut text = error.to_string();
                shorten(&mut text);
                text
            });
        }
    }

    /// Shows another usage from now on: the query has started again.
    pub(crate) fn set_usage(&self, usage: Arc<Usage>) {
        let mut list = self.queries.list.lock();
        if let Some(entry) = list.queries.get_mut(&self.id) {
            entry.usage = usage;
        }
    }

    /// Cancelled when an operator cancels the query.
    pub(crate) const fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut list = self.queries.list.lock();
        let Some(mut entry) = list.queries.remove(&self.id) else {
            return;
        };
        let description = std::mem::take(&mut entry.description).shortened();
        if list.completed.len() == KEPT {
            list.completed.pop_front();
        }
        let completed = CompletedQuery {
            query: entry.state(self.id, description),
            error: entry.error,
        };
        list.completed.push_back((entry.caller, completed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_sees_its_own_queries() {
        let all = RunningQueries::default();
        let [one, other] = ["sub:one", "sub:other"].map(|name| all.for_caller(&name.into()));
        let _running = one.register(QueryDescription::without_range("one"), Arc::default());
        drop(one.register(QueryDescription::without_range("ended"), Arc::default()));
        let _local = all.register(QueryDescription::without_range("local"), Arc::default());
        let counts = |queries: &RunningQueries| (queries.list().len(), queries.completed().len());
        assert_eq!(counts(&one), (1, 1));
        assert_eq!(counts(&other), (0, 0));
        assert_eq!(counts(&all), (2, 1));
    }

    #[test]
    fn keeps_the_last_queries_that_ended() {
        let queries = RunningQueries::default();
        let description = || QueryDescription {
            sub_queries: vec!["é".repeat(1000); 100],
            range_ms: (1, 2),
        };
        for number in 0..KEPT + 2 {
            let registration = queries.register(description(), Arc::default());
            if number == KEPT + 1 {
                registration.failed(&"é".repeat(1000));
                registration.failed(&"second");
            }
        }
        assert!(queries.list().is_empty());
        let completed = queries.completed();
        assert_eq!((completed.len(), completed[0].query.id), (KEPT, 3));
        let last = completed.last().unwrap();
        assert_eq!(last.error, Some("é".repeat(KEPT_CHARACTERS)));
        assert_eq!(completed[0].error, None);
        let kept = &last.query.description;
        assert_eq!(kept.sub_queries.len(), KEPT_SUB_QUERIES);
        assert_eq!(kept.sub_queries[0].chars().count(), KEPT_CHARACTERS);
        assert_eq!(kept.range_ms, (1, 2));
    }
}
