//! Counts of points and rejected lines.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;

/// Rejected lines to print; all are counted, and `--errors` writes all.
const SHOWN: usize = 100;

/// Counts points and rejected lines, and remembers the first of the latter.
#[derive(Debug)]
pub(super) struct Report {
    files: Vec<PathBuf>,
    errors_file: Option<BufWriter<File>>,
    write_error: Option<io::Error>,
    /// Points and rollups that the server stored.
    pub(super) written: u64,
    /// Lines that were rejected, here or by the server.
    pub(super) rejected: u64,
    /// Files that could not be read to their end.
    pub(super) broken_files: u64,
    shown: Vec<(usize, u64, String)>,
}

impl Report {
    /// A report about `files`. All rejected lines go to `errors`, if given.
    ///
    /// # Errors
    ///
    /// If that file cannot be made.
    pub(super) fn new(files: Vec<PathBuf>, errors: Option<&PathBuf>) -> anyhow::Result<Self> {
        let errors_file = errors
            .map(|path| {
                File::create(path)
                    .map(BufWriter::new)
                    .with_context(|| format!("create {}", path.display()))
            })
            .transpose()?;
        Ok(Self {
            files,
            errors_file,
            write_error: None,
            written: 0,
            rejected: 0,
            broken_files: 0,
            shown: Vec::new(),
        })
    }

    /// A line was rejected. `line` is its number from 1.
    pub(super) fn reject(&mut self, file: usize, line: u64, reason: &dyn Display) {
        self.rejected += 1;
        if self.shown.len() >= SHOWN && self.errors_file.is_none() {
            return;
        }
        let reason = reason.to_string();
        if let Some(errors) = &mut self.errors_file {
            let written = writeln!(errors, "{}:{line}: {reason}", self.files[file].display());
            self.write_error = self.write_error.take().or(written.err());
        }
        if self.shown.len() < SHOWN {
            self.shown.push((file, line, reason));
        }
    }

    /// A file could not be opened, or could not be read beyond this line.
    pub(super) fn broken_file(&mut self, file: usize, after_line: u64, error: &io::Error) {
        self.broken_files += 1;
        let text = format!("not read after line {after_line}: {error}");
        if let Some(errors) = &mut self.errors_file {
            let written = writeln!(errors, "{}: {text}", self.files[file].display());
            self.write_error = self.write_error.take().or(written.err());
        }
        eprintln!("{}: {text}", self.files[file].display());
    }

    /// The origin of a point: `FILE:LINE`.
    pub(super) fn place(&self, file: usize, line: u64) -> String {
        format!("{}:{line}", self.files[file].display())
    }

    /// The first rejected lines, in the order of files and lines, one a line of text.
    pub(super) fn rejected_lines(&mut self) -> String {
        self.shown.sort_unstable_by_key(|(file, line, _)| (*file, *line));
        let mut text = String::new();
        for (file, line, reason) in &self.shown {
            text += &format!("{}:{line}: {reason}\n", self.files[*file].display());
        }
        let more = self.rejected - self.shown.len() as u64;
        if more > 0 {
            text += &format!("... and {more} more\n");
        }
        text
    }

    /// Finishes the file of errors.
    ///
    /// # Errors
    ///
    /// If it could not be written.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if let Some(errors) = &mut self.errors_file {
            errors.flush()?;
        }
        self.write_error.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_first_lines_and_writes_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("errors.txt");
        let mut report = Report::new(vec!["a.txt".into(), "b.txt".into()], Some(&path)).unwrap();
        report.reject(1, 1, &"wrong");
        for line in (1..=150).rev() {
            report.reject(0, line, &"bad");
        }
        report.finish().unwrap();
        assert_eq!(report.rejected, 151);
        let shown = report.rejected_lines();
        assert!(shown.starts_with("a.txt:52: bad\na.txt:53: bad\n"), "{shown}");
        assert!(shown.ends_with("b.txt:1: wrong\n... and 51 more\n"), "{shown}");
        let all = std::fs::read_to_string(path).unwrap();
        assert_eq!(all.lines().count(), 151);
        assert!(all.starts_with("b.txt:1: wrong\n"));
    }
}
