//! Free-text search over metadata: documents of UIDs and series, and annotations.
//!
//! ```text
//!   tables ──── fill: a pass, repeated ───┐
//!                                         ├─► documents ─► index, in a folder
//!   edits here ── MetaChanges ─► sources ─┘                  │
//!                                                            ▼
//!   results ◄── sources: what is stored now ◄────────── subjects of a search
//! ```
//!
//! The index has the words of documents and their keys. Results are read from the tables, so a stale entry never
//! shows old content: an entry without a document is left out, and removed from the index.
//!
//! Edits by this process are in the index within about a second. Others (OpenTSDB, further replicas, edits at the UID
//! service) are found by the next pass over the tables. Annotations of series lie among the points: passes do not
//! read them, one scan of table `tsdb` does when the index is built.
//!
//! The index is derived data: one that is missing, damaged, or of another deployment is built anew. Without the feature
//! `text-search`, `index` has no variant, and a server that is to search does not start.
//!
//! Source of the surface: OpenTSDB 2.4, `SearchRpc`, `SearchPlugin`; of the query syntax: Lucene's, which
//! Elasticsearch's query strings have.

mod document;
mod fill;
#[cfg(feature = "text-search")]
mod index;
#[cfg(not(feature = "text-search"))]
#[path = "no_index.rs"]
mod index;
mod sources;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use oxtsdb_query::{Held, QueryContext, QueryError};
use oxtsdb_server::Shutdown;
use serde::{Deserialize, Serialize};

use crate::meta::changes::Subject;
use fill::Filler;
use index::Index;
pub use sources::{Record, Sources};

/// Results of a search that can be reached by pages.
pub const MAX_WINDOW: usize = 10_000;

/// The longest search, if its caller has no deadline.
const LONGEST_SEARCH: Duration = Duration::from_secs(30);

/// Subjects in one read of records.
pub const BATCH: usize = 16;

/// A kind of subject to search for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Metadata of UIDs.
    Uids,
    /// Metadata of series.
    Series,
    /// Annotations.
    Annotations,
}

/// A search.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SearchQuery {
    /// The documents to search.
    pub kind: Kind,
    /// In Lucene's syntax.
    pub text: String,
}

/// A page of a search.
#[derive(Debug)]
pub struct Found {
    /// All that match, on other pages too.
    pub total: u64,
    /// The best first.
    pub subjects: Vec<Subject>,
}

/// Why a search fails.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SearchError {
    /// The text is no query.
    #[error("{detail}")]
    Syntax {
        /// The message of the query parser.
        detail: String,
    },
    /// The page is too far behind the first result.
    #[error("results {first} to {last} were requested, only the first {MAX_WINDOW} can be reached")]
    Window {
        /// The first requested result, from 0.
        first: usize,
        /// The end of the requested results, exclusive.
        last: usize,
    },
    /// The tables have not been read once yet.
    #[error("the index of metadata is being built")]
    NotReady,
    /// The index is damaged, or its disk is full.
    #[error("the index of metadata failed: {detail}")]
    Failed {
        /// The error of the index.
        detail: String,
    },
    /// The context ended, or documents cannot be read.
    #[error(transparent)]
    Query(#[from] QueryError),
}

/// How much of the tables an index has; stored with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// The number of the last pass over metadata of UIDs and series, and over global annotations.
    pass: u64,
    /// A pass was complete.
    has_metadata: bool,
    annotations: AnnotationScan,
    /// A process has written to the index and not closed it: announced changes may be missing.
    is_open: bool,
}

/// How much of table `tsdb` was read for annotations of series.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum AnnotationScan {
    /// Up to this row key; empty: nothing.
    After(Vec<u8>),
    Complete,
}

impl Default for AnnotationScan {
    fn default() -> Self {
        Self::After(Vec::new())
    }
}

/// The search. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct TextSearch(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    index: Index,
    sources: Sources,
    has_metadata: AtomicBool,
    has_annotations: AtomicBool,
}

impl TextSearch {
    /// Returns a check that is true once no handle and no task of the search is left, so that another one may use its folder.
    pub fn ended(&self) -> impl Fn() -> bool + use<> {
        let search = Arc::downgrade(&self.0);
        move || search.strong_count() == 0
    }

    /// Opens the index in a folder, and keeps it up to date until the shutdown.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, for example because another process uses it.
    pub async fn start(
        folder: &Path,
        pause: Duration,
        sources: Sources,
        shutdown: Shutdown,
    ) -> anyhow::Result<Self> {
        let (path, identity) = (folder.to_owned(), sources.identity());
        let widths = *sources.uids.widths();
        let opened = tokio::task::spawn_blocking(move || Index::open(&path, &identity, widths)).await?;
        let (index, state) = opened.with_context(|| format!("--text-search {}", folder.display()))?;
        let this = Self(Arc::new(Inner {
            index,
            sources,
            has_metadata: AtomicBool::new(state.has_metadata),
            has_annotations: AtomicBool::new(state.annotations == AnnotationScan::Complete),
        }));
        if let Some(filler) = Filler::new(this.clone(), state, pause) {
            tokio::spawn(filler.run(shutdown));
        }
        Ok(this)
    }

    /// Searches in the context of an admitted query: skips `start` results and returns at most `limit`.
    ///
    /// # Errors
    ///
    /// See [`SearchError`].
    pub async fn search(
        &self,
        query: SearchQuery,
        start: usize,
        limit: usize,
        context: &QueryContext,
    ) -> Result<Found, SearchError> {
        let last = start.saturating_add(limit);
        if last > MAX_WINDOW {
            return Err(SearchError::Window { first: start, last });
        }
        if !self.is_ready(query.kind) {
            return Err(SearchError::NotReady);
        }
        let cancellation = context.cancellation().clone();
        let latest = Instant::now() + LONGEST_SEARCH;
        let deadline = context.deadline().map_or(latest, |deadline| deadline.min(latest));
        let stops: Stops = Arc::new(move || cancellation.is_cancelled() || Instant::now() >= deadline);
        let search = Search {
            query,
            start,
            limit,
            stops,
        };
        let this = self.clone();
        let searched = tokio::task::spawn_blocking(move || this.0.index.search(&search));
        context
            .run(async {
                let stopped = |error: tokio::task::JoinError| SearchError::Failed {
                    detail: error.to_string(),
                };
                searched.await.map_err(stopped)?
            })
            .await
    }

    fn is_ready(&self, kind: Kind) -> bool {
        match kind {
            Kind::Uids | Kind::Series => self.0.has_metadata.load(Ordering::Acquire),
            Kind::Annotations => {
                self.0.has_metadata.load(Ordering::Acquire) && self.0.has_annotations.load(Ordering::Acquire)
            }
        }
    }

    /// The stored records of some subjects of a page, and their memory. Subjects that are gone are `None`, and leave the
    /// index.
    ///
    /// # Errors
    ///
    /// If the store or the UID service fails, and errors of the context.
    pub async fn records(
        &self,
        subjects: &[Subject],
        context: &QueryContext,
    ) -> Result<(Vec<Option<Record>>, Held), QueryError> {
        let sources = &self.0.sources;
        let records = context.run(sources.read(subjects)).await?;
        let bytes = records.iter().flatten().map(Record::bytes).sum();
        let held = context.budget().hold(bytes)?;
        for (subject, record) in subjects.iter().zip(&records) {
            if record.is_none() {
                sources.changes().announce(|| subject.clone());
            }
        }
        Ok((records, held))
    }
}

/// Whether a search must stop.
type Stops = Arc<dyn Fn() -> bool + Send + Sync>;

/// A search of the index.
#[cfg_attr(
    not(feature = "text-search"),
    expect(dead_code, reason = "the index reads its fields")
)]
struct Search {
    query: SearchQuery,
    start: usize,
    limit: usize,
    stops: Stops,
}

#[cfg(test)]
#[cfg(feature = "text-search")]
mod tests;
