//! Keeps the index up to date: announced changes at once, everything else by passes over the tables.
//!
//! One task reads and writes, in batches. Changes that were announced are read after each batch of a pass, so that a
//! pass cannot replace a document by an older version. Everything that a pass did not find is removed at its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::TryStreamExt as _;
use oxtsdb_query::QueryError;
use oxtsdb_query::annotation::annotation_cells;
use oxtsdb_row_store::{ColumnSelection, DamageLog, Row, Scan};
use oxtsdb_schema::{Annotation, RowKeyLayout, RowKeyRef};
use oxtsdb_server::Shutdown;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{error, info, warn};

use super::document::Document;
use super::sources::Record;
use super::{AnnotationScan, SearchError, State, TextSearch};
use crate::annotation;
use crate::meta::changes::Subject;
use crate::uids::{UidsError, name_error};

/// Changes that wait to be read; with more, a pass finds them.
const MAX_CHANGES: usize = 65_536;

/// Changes that are read together.
const BATCH_CHANGES: usize = 256;

/// How long changes are collected before they can be searched.
const COMMIT_AFTER: Duration = Duration::from_millis(500);

/// The pause after a failure.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The pause before a pass that finds unknown changes, for example after a rename.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(60);

/// The pause after a pass is at least this many times its duration.
const PAUSE_FACTOR: u32 = 4;

/// Rows of table `tsdb` that are read together.
const BATCH_ROWS: usize = 64;

/// The task.
pub(super) struct Filler {
    search: TextSearch,
    changes: mpsc::Receiver<Subject>,
    state: State,
    pause: Duration,
    /// Something was written that cannot be searched yet, since then.
    uncommitted: Option<Instant>,
}

impl Filler {
    /// The task for an index with this state; `None` if there is one already.
    pub(super) fn new(search: TextSearch, state: State, pause: Duration) -> Option<Self> {
        let changes = search.0.sources.changes().subscribe(MAX_CHANGES)?;
        let mut state = state;
        if std::mem::replace(&mut state.is_open, true) {
            state.annotations = AnnotationScan::default();
        }
        Some(Self {
            search,
            changes,
            state,
            pause,
            uncommitted: Some(Instant::now()),
        })
    }

    /// Runs until the shutdown. While the server drains, the index is closed, and then only follows announced changes.
    pub(super) async fn run(mut self, shutdown: Shutdown) {
        let filled = tokio::select! {
            error = self.fill() => Err(error),
            () = shutdown.draining() => Ok(()),
        };
        let closed = match filled {
            Ok(()) => self.close(&shutdown).await,
            failed => failed,
        };
        if let Err(error) = closed {
            error!(%error, "text search: the index is not updated any more; restart the server");
        }
    }

    async fn close(&mut self, shutdown: &Shutdown) -> Result<(), SearchError> {
        self.state.is_open = false;
        self.apply_last_changes().await?;
        tokio::select! {
            result = self.follow_until(None, None) => result?,
            () = shutdown.stopping() => {}
        }
        self.apply_last_changes().await
    }

    async fn apply_last_changes(&mut self) -> Result<(), SearchError> {
        self.apply_changes().await?;
        self.commit().await
    }

    /// Repeats passes; returns when the index fails.
    async fn fill(&mut self) -> SearchError {
        loop {
            let began = Instant::now();
            match self.pass().await {
                Ok(()) => {}
                Err(SearchError::Query(error)) => {
                    warn!(%error, "text search: reading the tables failed; retrying");
                    sleep(RETRY_PAUSE).await;
                    continue;
                }
                Err(error) => return error,
            }
            let took = began.elapsed();
            let next = Instant::now() + self.pause.max(took * PAUSE_FACTOR);
            let soon = Instant::now() + UNKNOWN_PAUSE.max(took * PAUSE_FACTOR);
            if let Err(error) = self.follow_until(Some(next), Some(soon)).await {
                return error;
            }
        }
    }

    /// Follows announced changes until `next`, or `soon` after unknown ones; without them for ever.
    async fn follow_until(
        &mut self,
        next: Option<Instant>,
        soon: Option<Instant>,
    ) -> Result<(), SearchError> {
        let mut due = next;
        loop {
            if self.search.0.sources.changes().take_unknown() {
                due = soon.min(due);
            }
            let now = Instant::now();
            if due.is_some_and(|due| now >= due) {
                return Ok(());
            }
            let until = now + COMMIT_AFTER;
            let until = due.map_or(until, |due| due.min(until));
            let change = timeout_at(until, self.changes.recv()).await.ok().flatten();
            match self.follow(change).await {
                Err(SearchError::Query(error)) => {
                    warn!(%error, "text search: changes were not read; the next pass finds them");
                    due = soon.min(due);
                }
                result => result?,
            }
        }
    }

    async fn follow(&mut self, change: Option<Subject>) -> Result<(), SearchError> {
        if let Some(change) = change {
            self.apply(vec![change]).await?;
        }
        self.apply_changes().await?;
        self.commit_if_due().await
    }

    /// Reads all tables.
    async fn pass(&mut self) -> Result<(), SearchError> {
        let began = Instant::now();
        self.search.0.sources.changes().take_unknown();
        self.state.pass += 1;
        self.uids().await?;
        self.series().await?;
        self.annotations(true).await?;
        let pass = self.state.pass;
        self.on_index(move |search| search.0.index.remove_before(pass))
            .await?;
        self.state.has_metadata = true;
        self.commit().await?;
        let has_metadata = &self.search.0.has_metadata;
        if !has_metadata.swap(true, Ordering::AcqRel) {
            info!(
                seconds = began.elapsed().as_secs(),
                "text search: the index is built"
            );
        }
        if self.state.annotations != AnnotationScan::Complete {
            self.annotations(false).await?;
            self.state.annotations = AnnotationScan::Complete;
            self.commit().await?;
            self.search.0.has_annotations.store(true, Ordering::Release);
        }
        Ok(())
    }

    async fn uids(&mut self) -> Result<(), SearchError> {
        let mut batches = self.search.0.sources.uids.export();
        loop {
            let batch = batches.next().await.map_err(UidsError::from_client);
            let Some(mappings) = batch.map_err(|error| QueryError::from(name_error(error)))? else {
                return Ok(());
            };
            for mappings in mappings.chunks(BATCH_CHANGES * 4) {
                let uids: Vec<_> = mappings
                    .iter()
                    .map(|mapping| (mapping.kind, mapping.uid))
                    .collect();
                let metas = self.search.0.sources.uid_metas(&uids).await?;
                let records = metas.into_iter().map(|meta| meta.map(Record::Uid));
                let subjects = uids.iter().map(|(kind, uid)| Subject::Uid(*kind, *uid));
                self.put(subjects.zip(records)).await?;
            }
        }
    }

    async fn series(&mut self) -> Result<(), SearchError> {
        let sources = self.search.0.sources.clone();
        let mut documents = sources
            .meta
            .documents(Scan::prefix(&[]))
            .await
            .map_err(QueryError::from)?;
        while let Some(rows) = documents.next().await.map_err(QueryError::from)? {
            let series = documents.decode_intact(&rows);
            drop(rows);
            let mut records = Vec::with_capacity(series.len());
            for (tsuid, meta) in series {
                let record = sources.named(&tsuid, meta).await?;
                records.push((Subject::Series(tsuid), record));
            }
            self.put(records.into_iter()).await?;
        }
        Ok(())
    }

    /// Reads global annotations, or annotations of series from where the last scan stopped.
    async fn annotations(&mut self, is_global: bool) -> Result<(), SearchError> {
        let storage = self.search.0.sources.engine.storage().clone();
        let layout = storage.layout;
        let prefix = vec![0; layout.salt.width() + layout.widths.metric.bytes()];
        let mut scan = if is_global {
            Scan::prefix(&prefix)
        } else {
            Scan::prefix(&[])
        };
        if let (false, AnnotationScan::After(key)) = (is_global, &self.state.annotations)
            && !key.is_empty()
        {
            scan = scan.resume_after(key);
        }
        scan.columns = ColumnSelection::Family(annotation::FAMILY.to_owned());
        scan.batch_rows = BATCH_ROWS;
        scan.skip_damaged = Some(DamageLog::default());
        let rows = storage.store.scan(&storage.table, scan).await;
        let mut rows = rows.map_err(QueryError::from)?;
        while let Some(rows) = rows.try_next().await.map_err(QueryError::from)? {
            let subjects: Vec<Subject> = rows
                .iter()
                .flat_map(|row| annotations_of(row, &layout, prefix.len()))
                .filter(|subject| matches!(subject, Subject::Annotation(None, _)) == is_global)
                .collect();
            let last = rows.last().map(|row| row.key().to_vec());
            drop(rows);
            for subjects in subjects.chunks(BATCH_CHANGES) {
                let records = self.search.0.sources.read(subjects).await?;
                self.put(subjects.iter().cloned().zip(records)).await?;
            }
            if let (false, Some(last)) = (is_global, last) {
                self.state.annotations = AnnotationScan::After(last);
            }
            self.commit_if_due().await?;
        }
        Ok(())
    }

    /// Writes a batch of a pass, and then what was announced meanwhile.
    async fn put(
        &mut self,
        records: impl Iterator<Item = (Subject, Option<Record>)>,
    ) -> Result<(), SearchError> {
        let documents: Vec<Document> = records
            .filter_map(|(subject, record)| Some(Document::from_record(subject, &record?)))
            .collect();
        let pass = self.state.pass;
        self.on_index(move |search| search.0.index.put(&documents, pass))
            .await?;
        self.apply_changes().await?;
        self.commit_if_due().await
    }

    /// Applies all changes that wait.
    async fn apply_changes(&mut self) -> Result<(), SearchError> {
        loop {
            let mut changes = Vec::new();
            while changes.len() < BATCH_CHANGES
                && let Ok(change) = self.changes.try_recv()
            {
                changes.push(change);
            }
            if changes.is_empty() {
                return Ok(());
            }
            self.apply(changes).await?;
        }
    }

    async fn apply(&mut self, changes: Vec<Subject>) -> Result<(), SearchError> {
        let records = match self.search.0.sources.read(&changes).await {
            Ok(records) => records,
            Err(error) => {
                self.search.0.sources.changes().announce_unknown();
                return Err(error.into());
            }
        };
        let (mut documents, mut gone) = (Vec::new(), Vec::new());
        for (subject, record) in changes.into_iter().zip(records) {
            match record {
                Some(record) => documents.push(Document::from_record(subject, &record)),
                None => gone.push(subject),
            }
        }
        let pass = self.state.pass;
        self.on_index(move |search| {
            search.0.index.remove(&gone)?;
            search.0.index.put(&documents, pass)
        })
        .await
    }

    async fn commit_if_due(&mut self) -> Result<(), SearchError> {
        match self.uncommitted {
            Some(since) if since.elapsed() >= COMMIT_AFTER => self.commit().await,
            _ => Ok(()),
        }
    }

    async fn commit(&mut self) -> Result<(), SearchError> {
        let state = self.state.clone();
        self.on_index(move |search| search.0.index.commit(&state)).await?;
        self.uncommitted = None;
        Ok(())
    }

    /// Writes to the index, which computes and blocks.
    async fn on_index(
        &mut self,
        work: impl FnOnce(&TextSearch) -> Result<(), SearchError> + Send + 'static,
    ) -> Result<(), SearchError> {
        let search = self.search.clone();
        self.uncommitted.get_or_insert_with(Instant::now);
        let done = tokio::task::spawn_blocking(move || work(&search)).await;
        done.map_err(|error| SearchError::Failed {
            detail: error.to_string(),
        })?
    }
}

/// The annotations of a row.
fn annotations_of(row: &Row, layout: &RowKeyLayout, prefix: usize) -> Vec<Subject> {
    let is_global = row.key().len() == prefix + size_of::<u32>();
    let series = RowKeyRef::decode(row.key(), layout).ok();
    let series = series.and_then(|key| key.tsuid().ok());
    if series.is_none() && !is_global {
        return Vec::new();
    }
    annotation_cells(row)
        .filter_map(|cell| Annotation::decode(cell.value).ok())
        .map(|annotation| Subject::Annotation(series.clone(), annotation.start_ms()))
        .collect()
}
