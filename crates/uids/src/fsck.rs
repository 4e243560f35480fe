//! Checks table `tsdb-uid` while it is in use, and repairs it step by step.
//!
//! ```text
//!   scan names ─► scan UIDs ─► scan around suspects ─► counters
//!        │             │               │                  │
//!        └─────────────┴───── findings ┴──────────────────┴─► report: confirmed by a second read
//! ```
//!
//! Forward and reverse mappings lie in different orders, so they cannot be merged. Instead, each scan looks up the
//! mapping in the other direction, in batches (`scan`). A UID that is not confirmed becomes a suspect: one bit
//! (`suspects`). If there are suspects, another scan collects all names of their UIDs (`collect`); with these,
//! each suspect is read again and classified (`evaluate`, `classify`). A UID has all of its findings in one
//! place, so that two names of one UID are found as such, not as two unrelated mismatches.
//!
//! Memory is bounded for a table of any size and any damage: 2 MiB of bits for each kind (16 MiB for UIDs of more
//! than 3 bytes) and for names, 48 MiB of collected names, 32 MiB of findings that wait for confirmation.
//!
//! A check writes nothing. A finding carries its repairs as conditional changes of cells; [`repair`] applies them.
//!
//! Source of the findings: OpenTSDB 2.4, `UidManager.fsck`. Its check holds the table in memory, needs writers to
//! stop, and aborts at a UID of another width.

mod cells;
mod classify;
mod collect;
mod counters;
mod duplicates;
mod evaluate;
mod facts;
mod finding;
mod metadata;
mod operator;
pub mod repair;
mod report;
mod scan;
mod suspects;
mod text;

use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use oxtsdb_schema::{PerKind, UidKind};

use self::collect::Collected;
pub use self::finding::{CellChange, Finding, FindingType, Repair, Severity, label};
pub use self::operator::Fsck;
use self::report::Report;
pub use self::report::{Event, Progress, Stage, Summary};
use self::scan::{FirstScans, Totals};
use self::suspects::Suspects;
use crate::error::UidServiceError;
use crate::reclaim::record::Records;
use crate::table::UidTable;

/// Parameters of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsckOptions {
    /// The kinds to check. Unknown cells have no kind, and are always reported.
    pub kinds: Vec<UidKind>,
    /// Mappings are left alone while one of their cells is younger than this.
    pub grace: Duration,
    /// The time of the start, in milliseconds since the epoch, by the store's clock.
    pub started_ms: i64,
}

/// Checks a table. Dropping the stream ends the check; the last event is [`Event::Summary`].
///
/// An error ends the stream: the store failed.
pub fn check(table: UidTable, options: FsckOptions) -> BoxStream<'static, Result<Event, UidServiceError>> {
    check_except(table, None, options)
}

/// As [`check`], except for UIDs that are being reclaimed.
pub(crate) fn check_except(
    table: UidTable,
    reclaimed: Option<Records>,
    options: FsckOptions,
) -> BoxStream<'static, Result<Event, UidServiceError>> {
    let (sender, events) = mpsc::channel(0);
    let check = run(table, reclaimed, options, sender);
    let errors = stream::once(check).filter_map(|ended| std::future::ready(ended.err().map(Err)));
    stream::select(events.map(Ok), errors).boxed()
}

async fn run(
    table: UidTable,
    reclaimed: Option<Records>,
    options: FsckOptions,
    events: mpsc::Sender<Event>,
) -> Result<(), UidServiceError> {
    let FsckOptions {
        kinds,
        grace,
        started_ms,
    } = options;
    let mut report = Report::new(table.clone(), reclaimed, events, grace, started_ms);
    let mut suspects = Suspects::new(table.layout());
    let totals = FirstScans {
        table: &table,
        kinds: &kinds,
        suspects: &mut suspects,
        totals: PerKind::<Totals>::default(),
        report: &mut report,
    };
    let mut totals = totals.run().await?;
    if !suspects.is_empty() {
        report.begin(Stage::Suspects);
        let mut from = None;
        loop {
            let collected = Collected::read(&table, &kinds, &suspects, from, &mut report).await?;
            evaluate::evaluate(&table, &collected, &mut totals, &mut report).await?;
            from = collected.rest;
            if from.is_none() {
                break;
            }
        }
    }
    for kind in kinds {
        if let Some(finding) = counters::check(&table, kind, *totals.get(kind)).await? {
            report.push(finding).await?;
        }
    }
    report.finish().await
}
