//! The record of how to make changes back.
//!
//! ```text
//!   {"format":"oxtsdb-fsck-undo","version":1}
//!   {"number":1,"undo":{"row":"0000...","changes":[...]}}        written and synced before the change is made
//!   {"not_applied":1}                                             the change was rejected
//! ```
//!
//! It is applied from its end: later changes may be of the same cells.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::Context as _;
use oxtsdb_client::proto::data::v1::{RowCellChange, RowRepair};
use serde::{Deserialize, Serialize};

use super::plan::{Repair, header, open, write_line};

/// The format of a record.
pub(super) const UNDO: &str = "oxtsdb-fsck-undo";

/// A line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Undo { number: u64, undo: Repair },
    NotApplied { not_applied: u64 },
}

/// The repair that makes another one back.
fn inverse(repair: &RowRepair) -> RowRepair {
    let inverse = |change: &RowCellChange| RowCellChange {
        qualifier: change.qualifier.clone(),
        old_value: change.new_value.clone(),
        old_timestamp_ms: change.new_timestamp_ms,
        new_value: change.old_value.clone(),
        new_timestamp_ms: change.old_timestamp_ms,
    };
    RowRepair {
        changes: repair.changes.iter().rev().map(inverse).collect(),
        ..repair.clone()
    }
}

/// Writes a record.
#[derive(Debug)]
pub(super) struct UndoWriter {
    file: BufWriter<File>,
    next: u64,
}

impl UndoWriter {
    /// # Errors
    ///
    /// The file exists, or cannot be written.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let mut record = Self {
            file: BufWriter::new(super::create(path)?),
            next: 1,
        };
        write_line(&mut record.file, &header(UNDO))?;
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
    pub(super) fn record(&mut self, repairs: &[RowRepair]) -> anyhow::Result<u64> {
        let first = self.next;
        for repair in repairs {
            let undo = Line::Undo {
                number: self.next,
                undo: inverse(repair).into(),
            };
            write_line(&mut self.file, &undo)?;
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
        write_line(&mut self.file, &Line::NotApplied { not_applied: number })
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

/// The repairs of a record, the last one first.
#[derive(Debug)]
pub(super) struct UndoReader {
    file: BufReader<File>,
    /// Where the lines begin that are left.
    lines: Vec<u64>,
    not_applied: HashSet<u64>,
    name: String,
}

impl UndoReader {
    /// Opens a record. A last line without its end is one that was being written in a crash: its change was not made.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let mut file = open(path)?;
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

    fn line(&mut self, start: u64) -> anyhow::Result<Line> {
        let mut line = String::new();
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Iterator for UndoReader {
    type Item = anyhow::Result<RowRepair>;

    fn next(&mut self) -> Option<Self::Item> {
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
                Ok(Line::Undo { undo, .. }) => return Some(Ok(undo.into())),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair(row: u8) -> RowRepair {
        let change = |qualifier: u8, new: &'static [u8]| RowCellChange {
            qualifier: vec![qualifier].into(),
            old_value: None,
            new_value: Some(new.into()),
            old_timestamp_ms: None,
            new_timestamp_ms: Some(7),
        };
        RowRepair {
            row_key: vec![row].into(),
            changes: vec![change(1, b"a"), change(2, b"b")],
        }
    }

    #[test]
    fn a_record_is_read_from_its_end_without_what_was_not_applied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("undo");
        let mut writer = UndoWriter::create(&path).unwrap();
        assert_eq!(writer.record(&[repair(1), repair(2)]).unwrap(), 1);
        writer.not_applied(2).unwrap();
        assert_eq!(writer.record(&[repair(3)]).unwrap(), 3);
        assert!(UndoWriter::create(&path).is_err(), "an existing record is kept");
        // A line that was being written in a crash.
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"number\":4,\"undo\":{\"row\":\"00\"").unwrap();

        let read: Vec<RowRepair> = UndoReader::open(&path).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, [inverse(&repair(3)), inverse(&repair(1))]);
        assert_eq!(read[0].changes[0].old_value.as_deref(), Some(b"b".as_slice()));
        assert_eq!(
            (&read[0].changes[0].new_value, read[0].changes[0].old_timestamp_ms),
            (&None, Some(7))
        );
    }
}
