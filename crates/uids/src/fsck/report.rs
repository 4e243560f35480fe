//! Findings on their way to the caller: each is confirmed by a fresh read of its cells first.
//!
//! A finding waits for [`SETTLE`] before that read, so that a rename or delete in progress is over. If one of its
//! cells has another value then, the finding is dropped. A finding that an assignment in progress can look like
//! is left alone while one of its cells is younger than the grace period.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::SinkExt as _;
use futures::channel::mpsc;
use oxtsdb_row_store::CellAddress;
use oxtsdb_schema::Uid;
use tokio::time::Instant;

use super::cells;
use super::classify::differs;
use super::finding::{Finding, FindingType};
use crate::error::UidServiceError;
use crate::reclaim::record::Records;
use crate::table::UidTable;

/// Pause between the first and the second read of a finding's cells, if there is a grace period.
const SETTLE: Duration = Duration::from_secs(1);

/// Findings of one read and of one message.
const BATCH: usize = 512;

/// Bytes of the findings of a message that has more than one.
const BATCH_BYTES: usize = 512 << 10;

/// Bytes of findings that wait.
const MAX_WAITING_BYTES: usize = 32 << 20;

/// Longest time between two messages.
const PROGRESS: Duration = Duration::from_secs(2);

/// An event of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Confirmed findings, in the order in which they were found.
    Findings(Vec<Finding>),
    /// How far it is.
    Progress(Progress),
    /// The last event.
    Summary(Summary),
}

/// The stage of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The scan of names.
    Names,
    /// The scan of UIDs.
    Uids,
    /// A scan for the cells around mappings that were not confirmed.
    Suspects,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current scan.
    pub stage: Stage,
    /// Rows read by all scans.
    pub rows: u64,
    /// Findings reported.
    pub findings: u64,
}

/// The totals of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rows read by all scans.
    pub rows: u64,
    /// Names with a UID.
    pub names: u64,
    /// Findings by type.
    pub findings: BTreeMap<FindingType, u64>,
    /// Findings of cells that are younger than the grace period, or of UIDs that are being reclaimed: not reported.
    pub left_alone: u64,
}

/// The outgoing events.
#[derive(Debug)]
pub(super) struct Report {
    table: UidTable,
    reclaimed: Option<Records>,
    events: mpsc::Sender<Event>,
    /// Cells that are newer than this are left alone.
    young_from_ms: i64,
    settle: Duration,
    waiting: VecDeque<(Instant, Finding)>,
    waiting_bytes: usize,
    summary: Summary,
    stage: Stage,
    sent: Instant,
}

impl Report {
    pub(super) fn new(
        table: UidTable,
        reclaimed: Option<Records>,
        events: mpsc::Sender<Event>,
        grace: Duration,
        started_ms: i64,
    ) -> Self {
        let grace_ms = i64::try_from(grace.as_millis()).unwrap_or(i64::MAX);
        Self {
            table,
            reclaimed,
            events,
            young_from_ms: started_ms.saturating_sub(grace_ms),
            settle: SETTLE.min(grace),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            summary: Summary::default(),
            stage: Stage::Names,
            sent: Instant::now(),
        }
    }

    pub(super) fn begin(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// Counts rows, and reports the progress from time to time.
    pub(super) async fn progress(&mut self, rows: usize) -> Result<(), UidServiceError> {
        self.summary.rows += rows as u64;
        if self.sent.elapsed() >= PROGRESS {
            let progress = Progress {
                stage: self.stage,
                rows: self.summary.rows,
                findings: self.summary.findings.values().sum(),
            };
            self.send(Event::Progress(progress)).await?;
        }
        Ok(())
    }

    pub(super) fn count_names(&mut self, names: u64) {
        self.summary.names += names;
    }

    /// Whether a finding concerns a UID in quarantine: its reverse mapping stays although its name has no UID, or another
    /// one.
    async fn is_reclaimed(&self, finding: &Finding) -> Result<bool, UidServiceError> {
        let (Some(records), Some(kind), Some(uid)) = (&self.reclaimed, finding.kind, &finding.uid) else {
            return Ok(false);
        };
        let is_of_quarantine = matches!(
            finding.finding,
            FindingType::MissingForward | FindingType::DuplicateReverse
        );
        match Uid::from_bytes(uid) {
            Ok(uid) if is_of_quarantine => Ok(records.is_reclaimed(kind, uid).await?),
            _ => Ok(false),
        }
    }

    /// Adds a finding.
    pub(super) async fn push(&mut self, finding: Finding) -> Result<(), UidServiceError> {
        if self.is_reclaimed(&finding).await? {
            self.summary.left_alone += 1;
            return Ok(());
        }
        self.waiting_bytes += finding.byte_len();
        self.waiting.push_back((Instant::now(), finding));
        while self.waiting.len() >= BATCH {
            let is_settled = self
                .waiting
                .get(BATCH - 1)
                .is_some_and(|(since, _)| since.elapsed() >= self.settle);
            if !is_settled && self.waiting_bytes < MAX_WAITING_BYTES {
                break;
            }
            self.confirm_batch().await?;
        }
        // A few findings with long names.
        while self.waiting_bytes >= MAX_WAITING_BYTES {
            self.confirm_batch().await?;
        }
        Ok(())
    }

    /// Confirms all findings that wait, and ends the report.
    pub(super) async fn finish(mut self) -> Result<(), UidServiceError> {
        while !self.waiting.is_empty() {
            self.confirm_batch().await?;
        }
        let summary = std::mem::take(&mut self.summary);
        self.send(Event::Summary(summary)).await
    }

    async fn confirm_batch(&mut self) -> Result<(), UidServiceError> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut latest = Instant::now();
        while batch.len() < BATCH
            && let Some((since, finding)) = self.waiting.pop_front()
        {
            let length = finding.byte_len();
            if bytes + length > BATCH_BYTES && !batch.is_empty() {
                self.waiting.push_front((since, finding));
                break;
            }
            bytes += length;
            latest = since;
            batch.push(finding);
        }
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
        tokio::time::sleep_until(latest + self.settle).await;
        let addresses: Vec<CellAddress> = batch
            .iter()
            .flat_map(|finding| finding.evidence.iter().map(|(cell, _)| cell.clone()))
            .collect();
        let stored = cells::read(&self.table, &addresses).await?;
        let mut stored = stored.iter();
        let mut confirmed = Vec::with_capacity(batch.len());
        for finding in batch {
            let now: Vec<_> = stored.by_ref().take(finding.evidence.len()).collect();
            let mut pairs = now.iter().zip(&finding.evidence);
            if pairs.any(|(now, (_, expected))| differs(now.as_ref(), expected.as_deref())) {
                continue;
            }
            let is_young = |cell: &cells::StoredCell| cell.timestamp_ms > self.young_from_ms;
            if finding.finding.may_be_in_progress() && now.iter().copied().flatten().any(is_young) {
                self.summary.left_alone += 1;
                continue;
            }
            *self.summary.findings.entry(finding.finding).or_default() += 1;
            confirmed.push(finding);
        }
        if !confirmed.is_empty() {
            self.send(Event::Findings(confirmed)).await?;
        }
        Ok(())
    }

    async fn send(&mut self, event: Event) -> Result<(), UidServiceError> {
        self.sent = Instant::now();
        // The receiver is polled together with the check, so that it exists.
        self.events
            .send(event)
            .await
            .map_err(|_| UidServiceError::Interrupted)
    }
}
