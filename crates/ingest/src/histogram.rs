//! Writes histograms: cells of table `tsdb`, beside the points of their series.
//!
//! ```text
//!   histograms ──► series (as of points) ──► cells ──► store, with the series' rows of `tsdb-meta` ──► acknowledged
//! ```
//!
//! The bytes are OpenTSDB's ([`oxtsdb_schema::histogram`]). As in OpenTSDB, a histogram counts as a point of its series
//! in table `tsdb-meta`, and one of the same instant and resolution is replaced. Cells have the store's timestamp, also
//! with `tsd.storage.use_otsdb_timestamp`.
//!
//! Source: OpenTSDB 2.4, `TSDB.addHistogramPoint`, `TSDB.storeIntoDB`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use oxtsdb_metadata::uids::series::{Requested, SeriesRef};
use oxtsdb_row_store::WriteBatch;
use oxtsdb_schema::data_table::FAMILY;
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{Timestamp, histogram};

use super::{PointError, PointErrorReason, WriteError, WriteOutcome, Writer};

/// Bytes of a cell in a batch besides key, qualifier and value, roughly.
const CELL_BYTES: usize = 64;

/// A histogram to write.
#[derive(Clone, Debug)]
pub struct NewHistogram<'a> {
    /// Its series.
    pub series: SeriesRef<'a>,
    /// When; its resolution decides the qualifier.
    pub timestamp: Timestamp,
    /// The value of its cell, with the codec id.
    pub value: &'a [u8],
}

impl Writer {
    /// Writes histograms, in their order. `Ok` means that all that are not among the errors are in the store's log.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub async fn write_histograms(
        &self,
        histograms: &[NewHistogram<'_>],
        deadline: Option<Instant>,
    ) -> Result<WriteOutcome, WriteError> {
        if histograms.is_empty() {
            return Ok(WriteOutcome::default());
        }
        let requested = histograms
            .iter()
            .map(|histogram| Requested::Series(histogram.series));
        let series = self.resolve_points(requested, deadline).await?;
        let values = histograms
            .iter()
            .map(|histogram| histogram.value.len() + CELL_BYTES);
        let keys: usize = series.iter().flatten().map(|series| series.tsuid().len()).sum();
        let _permit = self
            .permit_of_bytes(values.sum::<usize>() + keys, deadline)
            .await?;
        let inner = &self.0;
        let edge_ms = inner.points.retention_edge_ms().unwrap_or(i64::MIN);
        let mut outcome = WriteOutcome::default();
        let mut untracked = inner.tracker.untracked();
        let mut batch = WriteBatch::new(inner.data_table.clone());
        let family = batch.family(&String::from_utf8_lossy(FAMILY));
        let mut key = Vec::new();
        for (index, (histogram, series)) in histograms.iter().zip(&series).enumerate() {
            let timestamp_ms = histogram.timestamp.as_millis();
            let series = match series {
                Ok(_) if timestamp_ms < edge_ms => {
                    inner.too_old.fetch_add(1, Ordering::Relaxed);
                    Err(Arc::new(PointErrorReason::BeforeRetention {
                        timestamp_ms,
                        edge_ms,
                    }))
                }
                series => series.as_ref().map_err(Arc::clone),
            };
            match series {
                Ok(series) => {
                    key.clear();
                    let hour = histogram.timestamp.base_time();
                    write_row_key(self.uids().layout(), series.tsuid(), hour, &mut key);
                    let qualifier = histogram::qualifier(histogram.timestamp);
                    batch.row(&key).put(family, &qualifier, histogram.value);
                    untracked.observe(series);
                    outcome.written += 1;
                }
                Err(reason) => outcome.errors.push(PointError { index, reason }),
            }
        }
        if outcome.written == 0 {
            return Ok(outcome);
        }
        let stored = async {
            // Side by side, since the embedded store then has one sync for both.
            let tracked = async {
                match untracked.is_empty() {
                    true => Ok(()),
                    false => inner.tracker.track(untracked).await,
                }
            };
            let (tracked, stored) = futures::future::join(tracked, inner.store.write(batch)).await;
            stored.and(tracked)
        };
        match deadline {
            None => stored.await?,
            Some(deadline) => {
                let stored = tokio::time::timeout_at(deadline.into(), stored).await;
                stored.map_err(|_elapsed| WriteError::DeadlineExceeded)??;
            }
        }
        Ok(outcome)
    }
}
