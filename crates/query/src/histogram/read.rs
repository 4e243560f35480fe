//! Reads histograms from rows, and sums the histograms of each window.
//!
//! OpenTSDB takes the cells of a row in stored order, by qualifier. Stored order is not the order of time in a row with
//! seconds and milliseconds: all in milliseconds come before the cells in seconds from the 55th second on. A window
//! then also takes the earlier histograms that follow it, and a window of the whole range ends at the first one behind
//! it. Without this quirk cells are taken in order of time, and of two at one instant the newer one.
//!
//! Source: OpenTSDB 2.4, `HistogramSpan`, `HistogramDownsampler`, `Internal.decodeHistogramDataPoint`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_row_store::Row;
use oxtsdb_schema::histogram;
use oxtsdb_schema::{Annotation, CellKind, Histogram, HistogramCodecs, RowKeyLayout, RowKeyRef, Tsuid};
use tracing::warn;

use super::merge::Timed;
use crate::annotation::annotation_cells;
use crate::context::budget::{Budget, Held};
use crate::error::QueryError;
use crate::exec::series_points::SeriesAnnotations;
use crate::exec::statistics::{DamagedRow, MAX_DAMAGED_ROWS, Statistics};
use crate::function::downsample::{WindowLayout, Windows};

/// How histograms are read.
#[derive(Clone, Debug)]
pub(super) struct ReadOptions {
    pub(super) layout: RowKeyLayout,
    /// `None`: none are configured, and no cell can be decoded.
    pub(super) codecs: Option<HistogramCodecs>,
    /// Windows that sum their histograms; `None`: each is kept.
    pub(super) windows: Option<Windows>,
    /// Whether cells are taken in stored order, as OpenTSDB does.
    pub(super) in_stored_order: bool,
    /// Whether to collect annotations.
    pub(super) annotations: bool,
}

/// The histograms of a series.
#[derive(Debug, Default)]
pub(super) struct SeriesHistograms {
    /// In the order of reading.
    pub(super) histograms: Vec<Timed>,
    pub(super) annotations: Option<Box<SeriesAnnotations>>,
    /// The first histogram that was read, whether it is in a window or not.
    pub(super) first_ms: Option<i64>,
    /// The window of the last one: its start, and the start of the next.
    window: Option<(i64, i64)>,
    /// Whether a histogram behind the whole range was read.
    is_over: bool,
}

/// Collects the histograms of rows by series.
#[derive(Debug)]
pub(super) struct Reader {
    options: ReadOptions,
    budget: Budget,
    /// The memory of all histograms.
    pub(super) held: Held,
    pub(super) series: BTreeMap<Tsuid, SeriesHistograms>,
    pub(super) statistics: Statistics,
}

impl Reader {
    pub(super) fn new(options: ReadOptions, budget: Budget) -> Result<Self, QueryError> {
        Ok(Self {
            options,
            held: budget.hold(0)?,
            budget,
            series: BTreeMap::new(),
            statistics: Statistics::default(),
        })
    }

    /// Adds the histograms of matching rows; a series' histograms come in order of time.
    pub(super) fn add(&mut self, rows: &[Row]) -> Result<(), QueryError> {
        for row in rows {
            self.add_row(row)?;
        }
        Ok(())
    }

    fn add_row(&mut self, row: &Row) -> Result<(), QueryError> {
        let mut histograms = Vec::new();
        let is_histogram = |qualifier: &[u8]| CellKind::from_qualifier(qualifier) == CellKind::Histogram;
        if !row.cells().any(|cell| is_histogram(cell.qualifier)) {
            return Ok(());
        }
        let key = RowKeyRef::decode(row.key(), &self.options.layout)
            .map_err(|error| QueryError::row_key(row.key(), &error))?;
        let mut bytes = Vec::new();
        key.tsuid_bytes(&mut bytes);
        let tsuid = Tsuid::from_bytes(&bytes, &self.options.layout.widths)
            .map_err(|error| QueryError::row_series(row.key(), &error))?;
        let base_ms = key.base_time().millis();
        for cell in row.cells().filter(|cell| is_histogram(cell.qualifier)) {
            match self.decode(cell.qualifier, cell.value) {
                Ok((offset_ms, histogram)) => {
                    histograms.push((
                        base_ms + i64::from(offset_ms),
                        Reverse(cell.timestamp_ms),
                        histogram,
                    ));
                }
                Err(reason) => {
                    let qualifier = hex::encode_upper(cell.qualifier);
                    self.add_damaged(
                        row,
                        &tsuid,
                        base_ms,
                        &format!("cell with qualifier `{qualifier}`: {reason}"),
                    );
                }
            }
        }
        if !self.options.in_stored_order {
            histograms.sort_by_key(|(time_ms, newest, _)| (*time_ms, *newest));
            let before = histograms.len();
            histograms.dedup_by_key(|(time_ms, ..)| *time_ms);
            self.statistics.duplicates += (before - histograms.len()) as u64;
        }
        if histograms.is_empty() {
            return Ok(());
        }
        self.budget.use_points(histograms.len() as u64)?;
        self.statistics.points += histograms.len() as u64;
        if !self.series.contains_key(&tsuid) {
            self.budget.use_series(1)?;
        }
        let series = self.series.entry(tsuid).or_default();
        if self.options.annotations {
            let decoded = annotation_cells(row).filter_map(|cell| Annotation::decode(cell.value).ok());
            for annotation in decoded {
                self.held.grow(annotation.held_bytes())?;
                series
                    .annotations
                    .get_or_insert_default()
                    .push(Arc::new(annotation));
            }
        }
        for (time_ms, _, histogram) in histograms {
            let held = series.push(time_ms, histogram, self.options.windows.as_ref());
            self.held.grow(held)?;
        }
        Ok(())
    }

    fn decode(&self, qualifier: &[u8], value: &[u8]) -> Result<(u32, Histogram), String> {
        let Some(codecs) = &self.options.codecs else {
            return Err("no codec is configured (--histograms-config)".to_owned());
        };
        let offset_ms = histogram::offset_ms(qualifier).map_err(|error| error.to_string())?;
        let histogram = codecs.decode_cell(value).map_err(|error| error.to_string())?;
        Ok((offset_ms, histogram))
    }

    fn add_damaged(&mut self, row: &Row, tsuid: &Tsuid, base_ms: i64, reason: &str) {
        if self.statistics.damaged_rows == 0 {
            let row_key = hex::encode_upper(row.key());
            warn!(
                row_key,
                reason, "histogram left out; further ones of the query are only counted"
            );
        }
        self.statistics.skipped_cells += 1;
        self.statistics.damaged_rows += 1;
        if self.statistics.damaged.len() < MAX_DAMAGED_ROWS {
            let damaged = DamagedRow::new(tsuid.clone(), base_ms, reason.to_owned());
            self.statistics.damaged.push(damaged);
        }
    }
}

impl SeriesHistograms {
    /// Adds a histogram, and returns the memory that it takes.
    fn push(&mut self, time_ms: i64, histogram: Histogram, windows: Option<&Windows>) -> u64 {
        self.first_ms.get_or_insert(time_ms);
        let start_ms = match windows {
            None => time_ms,
            Some(windows) => match self.window_of(time_ms, windows) {
                Some((start_ms, true)) => start_ms,
                Some((_, false)) => return self.add_to_last(&histogram),
                None => return 0,
            },
        };
        let bytes = held_bytes(&histogram);
        self.histograms.push((start_ms, histogram));
        bytes
    }

    /// The start of the window that takes a histogram, and whether it is a new one; `None`: none takes it.
    fn window_of(&mut self, time_ms: i64, windows: &Windows) -> Option<(i64, bool)> {
        let layout = &windows.layout;
        let start_ms = match (layout, self.window) {
            (WindowLayout::Whole { start_ms, stop_ms }, window) => {
                self.is_over |= time_ms >= *stop_ms;
                if time_ms < *start_ms || self.is_over {
                    return None;
                }
                if window.is_some() {
                    return Some((*start_ms, false));
                }
                *start_ms
            }
            (_, None) if time_ms < windows.from_ms => return None,
            (_, Some((start_ms, stop_ms))) if time_ms < stop_ms => return Some((start_ms, false)),
            (_, None) => layout.floor(time_ms),
            (_, Some((start_ms, _))) => layout.advance(start_ms, time_ms),
        };
        self.window = Some((start_ms, layout.next(start_ms)));
        Some((start_ms, true))
    }

    fn add_to_last(&mut self, histogram: &Histogram) -> u64 {
        let Some((_, last)) = self.histograms.last_mut() else {
            return 0;
        };
        let before = held_bytes(last);
        last.add(histogram);
        held_bytes(last).saturating_sub(before)
    }
}

/// Memory of a histogram with its instant, in bytes.
pub(super) fn held_bytes(histogram: &Histogram) -> u64 {
    (size_of::<Timed>() + size_of_val(histogram.buckets())) as u64
}

#[cfg(test)]
mod tests;
