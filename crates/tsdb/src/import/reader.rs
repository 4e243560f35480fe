//! Files become batches.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use super::batch::{Batch, Batcher};
use super::line::LineError;
use super::lines::{Found, Lines, MAX_LINE};
use super::report::Report;

/// Reads files and hands their batches on; on a thread of its own, because reading blocks.
pub(super) struct FileReader {
    /// The files, in their order.
    pub(super) files: Vec<PathBuf>,
    /// Rejected lines go here.
    pub(super) report: Arc<Mutex<Report>>,
    /// The most series that a stream may declare.
    pub(super) max_series: usize,
    /// The most points of a batch.
    pub(super) max_points: usize,
    /// Where batches go.
    pub(super) batches: mpsc::Sender<Batch>,
    /// Called with bytes of files as they are read.
    pub(super) progress: Arc<dyn Fn(u64) + Send + Sync>,
}

/// Nobody takes batches any more.
struct Stopped;

impl FileReader {
    /// Reads all files. Ends early if nobody takes the batches.
    pub(super) fn run(self) {
        let mut batcher = Batcher::new(self.max_series, self.max_points);
        for file in 0..self.files.len() {
            // The first batch of a file says so.
            batcher.begin(file);
            if self.read(file, &mut batcher).is_err() || self.send(&mut batcher, file).is_err() {
                return;
            }
        }
    }

    fn read(&self, file: usize, batcher: &mut Batcher) -> Result<(), Stopped> {
        let mut number = 0;
        let progress = Arc::clone(&self.progress);
        let broken = |number: u64, error: io::Error| self.report().broken_file(file, number, &error);
        let mut lines = match Lines::open(&self.files[file], move |bytes| progress(bytes)) {
            Ok(lines) => lines,
            Err(error) => {
                broken(0, error);
                return Ok(());
            }
        };
        loop {
            let added = match lines.next_line() {
                Ok(None) => return Ok(()),
                Ok(Some(Found::Line(text))) => batcher.add(text, number + 1),
                Ok(Some(Found::TooLong)) => Err(LineError::TooLong { limit: MAX_LINE }),
                Err(error) => {
                    broken(number, error);
                    return Ok(());
                }
            };
            number += 1;
            if let Err(error) = added {
                self.report().reject(file, number, &error);
            }
            if batcher.is_full() {
                self.send(batcher, file)?;
            }
        }
    }

    fn send(&self, batcher: &mut Batcher, file: usize) -> Result<(), Stopped> {
        if batcher.is_empty() {
            return Ok(());
        }
        let batch = batcher.take(file);
        self.batches.blocking_send(batch).map_err(|_| Stopped)
    }

    fn report(&self) -> std::sync::MutexGuard<'_, Report> {
        // Counts stay right even if another thread panicked.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_to_their_end_and_what_is_wrong_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("good.txt");
        std::fs::write(&good, "m 1 1 a=b\nbad\nm 2 2 a=b\n").unwrap();
        let files = vec![folder.path().join("missing.txt"), good];
        let report = Arc::new(Mutex::new(Report::new(files.clone(), None).unwrap()));
        let (batches, mut taken) = mpsc::channel(4);
        FileReader {
            files,
            report: Arc::clone(&report),
            max_series: 10,
            max_points: 4096,
            batches,
            progress: Arc::new(|_| ()),
        }
        .run();
        let batch = taken.try_recv().unwrap();
        assert_eq!((batch.file, batch.points(), batch.line(1)), (1, 2, Some(3)));
        assert!(taken.try_recv().is_err());
        let mut report = report.lock().unwrap();
        assert_eq!((report.broken_files, report.rejected), (1, 1));
        assert!(report.rejected_lines().contains("good.txt:2: has 1 words"));
    }
}
