//! Running queries: operators list and cancel them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::context::budget::Usage;

/// The running queries of an engine, those that wait for admission included. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RunningQueries(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    last_id: u64,
    queries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    description: QueryDescription,
    started_at: SystemTime,
    started: Instant,
    usage: Arc<Usage>,
    cancellation: CancellationToken,
}

/// What the list of running queries shows of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryDescription {
    /// Its sub-queries as text.
    pub sub_queries: Vec<String>,
    /// First and last instant of its range, milliseconds since the epoch.
    pub range_ms: (i64, i64),
}

/// A running query.
#[derive(Clone, Debug)]
pub struct RunningQuery {
    /// Its number, from 1 since the server started.
    pub id: u64,
    /// What it reads.
    pub description: QueryDescription,
    /// When it was registered.
    pub started_at: SystemTime,
    /// Time since then.
    pub elapsed: Duration,
    /// What it has used so far.
    pub usage: Arc<Usage>,
}

/// Keeps a query in the list until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    queries: RunningQueries,
    id: u64,
    cancellation: CancellationToken,
}

impl RunningQueries {
    /// Adds a query.
    pub(crate) fn register(&self, description: QueryDescription, usage: Arc<Usage>) -> Registration {
        let cancellation = CancellationToken::new();
        let entry = Entry {
            description,
            started_at: SystemTime::now(),
            started: Instant::now(),
            usage,
            cancellation: cancellation.clone(),
        };
        let mut list = self.0.lock();
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
        let running = |(id, entry): (&u64, &Entry)| RunningQuery {
            id: *id,
            description: entry.description.clone(),
            started_at: entry.started_at,
            elapsed: entry.started.elapsed(),
            usage: Arc::clone(&entry.usage),
        };
        self.0.lock().queries.iter().map(running).collect()
    }

    /// Cancels a query: its client receives [`crate::QueryError::Cancelled`]. `false` if no query has this
    /// number.
    pub fn cancel(&self, id: u64) -> bool {
        let list = self.0.lock();
        let query = list.queries.get(&id);
        query.inspect(|query| query.cancellation.cancel()).is_some()
    }
}

impl Registration {
    /// Cancelled when an operator cancels the query.
    pub(crate) const fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.queries.0.lock().queries.remove(&self.id);
    }
}
