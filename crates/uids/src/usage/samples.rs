//! Hourly samples of each kind's usage, in table `tsdb-uid-state`.
//!
//! ```text
//!   row: u | kind (1) | slot (2)        s:v   time, ms (8) | used (8)
//! ```
//!
//! The slot is the hour modulo [`SLOTS`], so that the table never holds more samples than a month has hours. Replicas
//! sample independently; the first of an hour writes, later ones find its sample. Two that write at once write the
//! same slot.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt as _;
use oxtsdb_row_store::{ColumnSelection, Row, Scan, StoreError, WriteBatch};
use oxtsdb_schema::UidKind;

use crate::state::{STATE_FAMILY, StateTable, kind_byte};

const PREFIX: u8 = b'u';
const VALUE: &[u8] = b"v";
const HOUR_MS: u64 = 3_600_000;

/// The hours of 30 days.
const SLOTS: u64 = 720;

/// A kind's usage at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// When it was read.
    pub(super) time: SystemTime,
    /// The highest reserved number, or the count of names.
    pub(super) used: u64,
}

/// Stores each sample, unless its kind has one of the same hour.
pub(super) async fn add(state: &StateTable, samples: &[(UidKind, Sample)]) -> Result<(), StoreError> {
    let rows: Vec<Vec<u8>> = samples
        .iter()
        .map(|(kind, sample)| row(*kind, sample.time))
        .collect();
    let present = state
        .store()
        .get_rows(state.name(), &rows, &ColumnSelection::All, None)
        .await?;
    let mut batch = WriteBatch::new(state.name().clone());
    let family = batch.family(STATE_FAMILY);
    for (((_, sample), row), present) in samples.iter().zip(&rows).zip(present) {
        let in_slot = present.as_ref().and_then(decode);
        if in_slot.is_none_or(|other| hour(other.time) != hour(sample.time)) {
            let value = [millis(sample.time).to_be_bytes(), sample.used.to_be_bytes()].concat();
            batch.row(row).put(family, VALUE, &value);
        }
    }
    if batch.is_empty() {
        return Ok(());
    }
    state.store().write(batch).await
}

/// Reads the samples of a kind, in no order.
pub(super) async fn read(state: &StateTable, kind: UidKind) -> Result<Vec<Sample>, StoreError> {
    let mut scan = Scan::prefix(&[PREFIX, kind_byte(kind)]);
    scan.batch_rows = 256;
    let mut rows = state.store().scan(state.name(), scan).await?;
    let mut samples = Vec::new();
    while let Some(batch) = rows.try_next().await? {
        samples.extend(batch.iter().filter_map(decode));
    }
    Ok(samples)
}

/// The hour of a time, since the epoch.
pub(super) fn hour(time: SystemTime) -> u64 {
    millis(time) / HOUR_MS
}

fn row(kind: UidKind, time: SystemTime) -> Vec<u8> {
    let slot = hour(time) % SLOTS;
    let slot = u16::try_from(slot).unwrap_or_default();
    [&[PREFIX, kind_byte(kind)][..], &slot.to_be_bytes()].concat()
}

fn decode(row: &Row) -> Option<Sample> {
    let value = row.get(STATE_FAMILY, VALUE)?.value;
    let (time, used) = value.split_first_chunk()?;
    Some(Sample {
        time: UNIX_EPOCH.checked_add(Duration::from_millis(u64::from_be_bytes(*time)))?,
        used: u64::from_be_bytes(used.try_into().ok()?),
    })
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
