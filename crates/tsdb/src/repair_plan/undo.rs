//! Records of how to make changes back.
//!
//! ```text
//!   {"format":"oxtsdb-uid-undo","version":1}
//!   {"number":1,"undo":{"label":"restore","changes":[...]}}       written and synced before the change is made
//!   {"not_applied":1}                                             the change was rejected
//! ```
//!
//! A record is applied from its end: later changes may be of the same cells.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::file;
use super::repair::Repair;

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line<S> {
    Undo { number: u64, undo: S },
    NotApplied { not_applied: u64 },
}

/// Writes a record.
#[derive(Debug)]
pub(super) struct UndoWriter {
    file: BufWriter<File>,
    next: u64,
}

impl UndoWriter {
    /// Creates the record of repairs of a kind.
    ///
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub(super) fn create<R: Repair>(path: &Path) -> anyhow::Result<Self> {
        let mut record = Self {
            file: file::create(path, R::UNDO)?,
            next: 1,
        };
        record.sync()?;
        // The name of the file must survive a crash as well.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).context("open the folder of the record")?;
        folder.sync_all().context("write the folder of the record")?;
        Ok(record)
    }

    /// Records repairs that are about to be made, durably. Returns the number of the first one.
    ///
    /// # Errors
    ///
    /// The file cannot be written: the repairs must not be made.
    pub(super) fn record<R: Repair>(&mut self, repairs: &[R]) -> anyhow::Result<u64> {
        let first = self.next;
        for repair in repairs {
            let line = Line::Undo {
                number: self.next,
                undo: R::Stored::from(repair.inverse()),
            };
            file::write_line(&mut self.file, &line)?;
            self.next += 1;
        }
        self.sync()?;
        Ok(first)
    }

    /// Records that a repair was rejected.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn not_applied(&mut self, number: u64) -> anyhow::Result<()> {
        let line = Line::<()>::NotApplied { not_applied: number };
        file::write_line(&mut self.file, &line)
    }

    /// Writes what is buffered.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub(super) fn sync(&mut self) -> anyhow::Result<()> {
        self.file.flush().context("write the record")?;
        self.file.get_ref().sync_data().context("write the record")
    }
}

/// Opens a record, and returns its repairs, the last one first, without those that were not applied.
///
/// # Errors
///
/// The file cannot be read.
pub(super) fn repairs<R: Repair>(
    path: &Path,
) -> anyhow::Result<impl Iterator<Item = anyhow::Result<R::Stored>> + Send + use<R>> {
    let mut record = Record::open(path)?;
    Ok(std::iter::from_fn(move || record.previous()))
}

/// A record that is read from its end.
#[derive(Debug)]
struct Record {
    file: BufReader<File>,
    /// Where the lines begin that are left.
    lines: Vec<u64>,
    not_applied: HashSet<u64>,
    name: String,
}

impl Record {
    /// Opens a record. A last line without its end is one that was being written in a crash: its change was not made.
    fn open(path: &Path) -> anyhow::Result<Self> {
        let mut file = file::open(path)?;
        let mut lines = Vec::new();
        let mut start = 0;
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = file.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            lines.push(start);
            start += length as u64;
        }
        // The header.
        lines.drain(..lines.len().min(1));
        Ok(Self {
            file,
            lines,
            not_applied: HashSet::new(),
            name: path.display().to_string(),
        })
    }

    /// The repair before those that were returned.
    fn previous<S: DeserializeOwned>(&mut self) -> Option<anyhow::Result<S>> {
        loop {
            let start = self.lines.pop()?;
            // Behind the header, from 1.
            let number = self.lines.len() + 2;
            match self
                .line(start)
                .with_context(|| format!("{} line {number}", self.name))
            {
                Ok(Line::NotApplied { not_applied }) => drop(self.not_applied.insert(not_applied)),
                Ok(Line::Undo { number, .. }) if self.not_applied.remove(&number) => {}
                Ok(Line::Undo { undo, .. }) => return Some(Ok(undo)),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn line<S: DeserializeOwned>(&mut self, start: u64) -> anyhow::Result<Line<S>> {
        let mut line = String::new();
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that a record of repairs of a kind is read from its end without the rejected repair. `cut_off` is the begin of a
    /// line.
    pub(crate) fn assert_read_from_its_end<R: Repair + PartialEq + std::fmt::Debug>(
        repairs: &[R; 3],
        cut_off: &str,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("undo");
        let mut writer = UndoWriter::create::<R>(&path).unwrap();
        let [first, rejected, last] = repairs;
        assert_eq!(writer.record(&[first.clone(), rejected.clone()]).unwrap(), 1);
        writer.not_applied(2).unwrap();
        assert_eq!(writer.record(std::slice::from_ref(last)).unwrap(), 3);
        assert!(
            UndoWriter::create::<R>(&path).is_err(),
            "an existing record is kept"
        );
        // A line that was being written in a crash.
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(cut_off.as_bytes()).unwrap();

        let read = super::repairs::<R>(&path).unwrap();
        let read: Vec<R> = read.map(|repair| R::checked(repair, &path).unwrap()).collect();
        assert_eq!(read, [last.inverse(), first.inverse()]);
    }
}
