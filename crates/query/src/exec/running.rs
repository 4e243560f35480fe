//! Queries that are being answered: they can be listed, and ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::exec::budget::Usage;
use crate::spec::QuerySpec;

/// The queries of an engine that are being answered. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RunningQueries(Arc<Mutex<List>>);

#[derive(Debug, Default)]
struct List {
    last_id: u64,
    queries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    questions: Vec<String>,
    range_ms: (i64, i64),
    started_at: SystemTime,
    started: Instant,
    usage: Arc<Usage>,
    ended: CancellationToken,
}

/// A query that is being answered.
#[derive(Clone, Debug)]
pub struct RunningQuery {
    /// Its number, from 1 since the server started.
    pub id: u64,
    /// Its questions.
    pub questions: Vec<String>,
    /// First and last instant of its range, milliseconds since the epoch.
    pub range_ms: (i64, i64),
    /// When it began.
    pub started_at: SystemTime,
    /// For how long it has been answered.
    pub elapsed: Duration,
    /// What it has used so far.
    pub usage: Arc<Usage>,
}

/// Keeps a query in the list until it is dropped.
#[derive(Debug)]
pub struct Registration {
    queries: RunningQueries,
    id: u64,
    /// Cancelled when somebody ends the query.
    pub ended: CancellationToken,
}

impl RunningQueries {
    /// Adds a query.
    pub fn register(&self, query: &QuerySpec, usage: Arc<Usage>) -> Registration {
        let ended = CancellationToken::new();
        let entry = Entry {
            questions: query.sub_queries.iter().map(ToString::to_string).collect(),
            range_ms: (query.start_ms, query.end_ms),
            started_at: SystemTime::now(),
            started: Instant::now(),
            usage,
            ended: ended.clone(),
        };
        let mut list = self.0.lock();
        list.last_id += 1;
        let id = list.last_id;
        list.queries.insert(id, entry);
        Registration {
            queries: self.clone(),
            id,
            ended,
        }
    }

    /// All of them, the oldest first.
    pub fn list(&self) -> Vec<RunningQuery> {
        let running = |(id, entry): (&u64, &Entry)| RunningQuery {
            id: *id,
            questions: entry.questions.clone(),
            range_ms: entry.range_ms,
            started_at: entry.started_at,
            elapsed: entry.started.elapsed(),
            usage: Arc::clone(&entry.usage),
        };
        self.0.lock().queries.iter().map(running).collect()
    }

    /// Ends a query: whoever asked gets an error. `false` if there is none with this number.
    pub fn end(&self, id: u64) -> bool {
        let list = self.0.lock();
        let query = list.queries.get(&id);
        query.inspect(|query| query.ended.cancel()).is_some()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.queries.0.lock().queries.remove(&self.id);
    }
}
