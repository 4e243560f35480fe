//! Files become batches of points.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::line::LineError;
use super::lines::{Found, Lines, MAX_LINE};
use super::points::{Batch, Batcher};
use super::progress::Progress;

/// Reads files and passes their points on; on a thread of its own, because reading blocks.
pub(super) struct FileReader {
    /// The files, in their order.
    pub(super) files: Vec<PathBuf>,
    /// Rejected lines go here.
    pub(super) progress: Progress,
    /// Where batches go.
    pub(super) batches: mpsc::Sender<Batch>,
    /// Called with bytes of files as they are read.
    pub(super) on_read: Arc<dyn Fn(u64) + Send + Sync>,
}

/// The receiver of the batches is closed.
struct Closed;

impl FileReader {
    /// Reads all files. Stops early if the receiver of the batches is closed.
    pub(super) fn run(self) {
        let mut batcher = Batcher::default();
        for file in 0..self.files.len() {
            batcher.begin(file);
            if self.read(file, &mut batcher).is_err() || self.send(&mut batcher).is_err() {
                return;
            }
        }
    }

    fn read(&self, file: usize, batcher: &mut Batcher) -> Result<(), Closed> {
        let mut number = 0;
        let on_read = Arc::clone(&self.on_read);
        let broken = |number: u64, error: io::Error| {
            self.progress
                .with_report(|report| report.broken_file(file, number, &error));
        };
        let mut lines = match Lines::open(&self.files[file], move |bytes| on_read(bytes)) {
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
                self.progress
                    .with_report(|report| report.reject(file, number, &error));
            }
            if batcher.is_full() {
                self.send(batcher)?;
            }
        }
    }

    fn send(&self, batcher: &mut Batcher) -> Result<(), Closed> {
        match batcher.take() {
            Some(batch) => self.batches.blocking_send(batch).map_err(|_| Closed),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Report;
    use super::*;

    #[test]
    fn reads_all_files_and_reports_rejected_lines() {
        let folder = tempfile::tempdir().unwrap();
        let good = folder.path().join("good.txt");
        std::fs::write(&good, "m 1 1 a=b\nbad\nm 2 2 a=b\n").unwrap();
        let files = vec![folder.path().join("missing.txt"), good];
        let progress = Progress::new(Report::new(files.clone(), None).unwrap());
        let (batches, mut taken) = mpsc::channel(4);
        FileReader {
            files,
            progress: progress.clone(),
            batches,
            on_read: Arc::new(|_| ()),
        }
        .run();
        let batch = taken.try_recv().unwrap();
        assert_eq!((batch.file, &batch.lines[..]), (1, &[1, 3][..]));
        assert!(taken.try_recv().is_err());
        progress.with_report(|report| {
            assert_eq!((report.broken_files, report.rejected), (1, 1));
            assert!(report.rejected_lines().contains("good.txt:2: has 1 words"));
        });
    }
}
