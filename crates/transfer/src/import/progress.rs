//! From acknowledgements back to lines.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oxtsdb_client::{Acknowledged, FailedPoint, WriteReport};

use super::points::Batch;
use super::report::Report;

/// The reason of points behind those that the service describes.
const UNDESCRIBED: &str = "rejected by the service, which describes only the first errors of a frame";

/// The lines of points in flight, and what became of those before. Clones share the state.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    report: Report,
    /// Where points come from that are not acknowledged yet, by their index.
    in_flight: VecDeque<Lines>,
}

/// The lines of consecutive points.
#[derive(Debug)]
struct Lines {
    first_index: u64,
    file: usize,
    lines: Vec<u64>,
}

impl Progress {
    /// Nothing is in flight.
    pub(super) fn new(report: Report) -> Self {
        Self(Arc::new(Mutex::new(State {
            report,
            in_flight: VecDeque::new(),
        })))
    }

    /// The points of a batch are about to be sent; the first has this index.
    pub(super) fn sending(&self, batch: &Batch, first_index: u64) {
        self.lock().in_flight.push_back(Lines {
            first_index,
            file: batch.file,
            lines: batch.lines.clone(),
        });
    }

    /// The service rejected a point.
    pub(super) fn failed(&self, point: &FailedPoint) {
        let mut state = self.lock();
        if let Some((file, line)) = state.line(point.index) {
            let rejection = point.rejection.as_ref();
            let reason = rejection.map_or(UNDESCRIBED, |rejection| &rejection.message);
            state.report.reject(file, line, &reason);
        }
    }

    /// The service has stored rollups of a batch, or rejected some.
    pub(super) fn rollups_written(&self, batch: &Batch, written: &WriteReport) {
        let report = &mut self.lock().report;
        report.written += written.written;
        for failed in &written.failures {
            let place = usize::try_from(failed.index).unwrap_or(usize::MAX);
            if let Some(line) = batch.rollup_lines.get(place) {
                let rejection = failed.rejection.as_ref();
                let reason = rejection.map_or(UNDESCRIBED, |rejection| &rejection.message);
                report.reject(batch.file, *line, &reason);
            }
        }
    }

    /// The service has acknowledged points.
    pub(super) fn acknowledged(&self, points: Acknowledged) {
        let mut state = self.lock();
        state.report.written += points.written;
        let end = points.first_index + points.points;
        while let Some(lines) = state.in_flight.front()
            && lines.first_index + lines.lines.len() as u64 <= end
        {
            state.in_flight.pop_front();
        }
    }

    /// Where a point in flight comes from, as `FILE:LINE`.
    pub(super) fn place(&self, index: u64) -> Option<String> {
        let state = self.lock();
        let (file, line) = state.line(index)?;
        Some(state.report.place(file, line))
    }

    /// Calls a function with the report.
    pub(super) fn with_report<T>(&self, call: impl FnOnce(&mut Report) -> T) -> T {
        call(&mut self.lock().report)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts stay right even if another thread panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// File and line of a point in flight.
    fn line(&self, index: u64) -> Option<(usize, u64)> {
        let position = self
            .in_flight
            .partition_point(|lines| lines.first_index <= index)
            .checked_sub(1)?;
        let lines = self.in_flight.get(position)?;
        let offset = usize::try_from(index - lines.first_index).ok()?;
        Some((lines.file, *lines.lines.get(offset)?))
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::{SeriesName, Timestamp};

    use super::super::points::Batcher;
    use super::*;

    #[test]
    fn indexes_lead_to_lines_until_they_are_acknowledged() {
        let report = Report::new(vec!["a.txt".into(), "b.txt".into()], None).unwrap();
        let progress = Progress::new(report);
        let mut batcher = Batcher::default();
        for (file, first_index) in [(0, 0), (1, 2)] {
            batcher.begin(file);
            batcher.add(b"m 1 1 a=b", 1).unwrap();
            batcher.add(b"m 2 1 a=b", 3).unwrap();
            progress.sending(&batcher.take().unwrap(), first_index);
        }
        assert_eq!(progress.place(1).as_deref(), Some("a.txt:3"));
        assert_eq!(progress.place(2).as_deref(), Some("b.txt:1"));
        assert_eq!(progress.place(4), None);
        progress.failed(&FailedPoint {
            index: 1,
            series: SeriesName::new("m", [("a", "b")]),
            timestamp: Timestamp::from_seconds(2),
            retryable: false,
            rejection: None,
        });
        progress.acknowledged(Acknowledged {
            first_index: 0,
            points: 3,
            written: 2,
            failed: 1,
        });
        assert_eq!(progress.place(1), None, "released");
        assert_eq!(progress.place(3).as_deref(), Some("b.txt:3"));
        let counts = progress.with_report(|report| (report.written, report.rejected));
        assert_eq!(counts, (2, 1));
        let lines = progress.with_report(Report::rejected_lines);
        assert_eq!(lines, format!("a.txt:3: {UNDESCRIBED}\n"));
    }
}
