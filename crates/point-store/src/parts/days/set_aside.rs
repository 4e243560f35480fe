//! Damaged files: each is kept in folder `set-aside/` with a record of the losses, and the rest of the store goes on.
//!
//! ```text
//!   set-aside/2026-11-22_0000000017-0000000031.part          the file
//!             2026-11-22_0000000017-0000000031.part.record   text, one `key value` a line:
//!
//!     first_ms 1795305600000
//!     last_ms 1795309199999
//!     detail page at 8 has a wrong checksum
//!     lost 0 17 0 42 1795305600000 1795309199999     metric and series, from and to; first and last instant
//! ```
//!
//! A file that is missing has a record only; for a missing folder of a day it is `2026-11-22_folder.record`.
//!
//! Metrics and series are numbers. Without a line `lost`, points of any series are lost.
//!
//! The record is durable before the file is linked here, and the link before the day's file is replaced by one with its
//! intact pages, or removed. So a power loss leaves a record without its file, which is removed when the store is
//! opened, unless the file is absent from its day, too; or the damaged file in its day, which is found again. A file
//! that is damaged once more adds to its record; the first file has all pages of the later ones. Removing a record and
//! its file by hand clears the report.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::name::DayNumber;
use crate::parts::part::{Lost, MetricNumber, SeriesKey};
use crate::{DamagedPart, PointStoreError, SeriesNumber, TimeRange};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{create_dir_durably, read_all, replace};

const RECORD: &str = ".record";
/// Longer details are cut, and longer records not read.
const MAX_DETAIL_CHARS: usize = 1 << 10;
const MAX_RECORD_BYTES: u64 = 128 << 10;
/// More ranges of a file are recorded as one.
const MAX_RANGES: usize = 512;

/// The folder of damaged files.
#[derive(Debug)]
pub(super) struct SetAside {
    folder: PathBuf,
    files: Vec<Damage>,
}

/// A damaged file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) part: DamagedPart,
    /// The lost points, at least one range.
    pub(super) lost: Vec<Lost>,
}

impl SetAside {
    /// Reads the records. `days` is the folder of the days.
    pub(super) fn open(disk: &dyn Disk, folder: PathBuf, days: &Path) -> Result<Self, PointStoreError> {
        let io_error = |error| PointStoreError::io(folder.display(), &error);
        let entries = match disk.list(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            entries => entries.map_err(io_error)?,
        };
        let has = |name: &str| entries.iter().any(|entry| entry.name == name);
        let mut files = Vec::new();
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            let path = folder.join(&entry.name);
            if entry.name.ends_with(".tmp") {
                disk.remove(&path).map_err(io_error)?;
            } else if let Some(name) = entry.name.strip_suffix(RECORD) {
                let original = name.split_once('_').map(|(day, file)| days.join(day).join(file));
                if !has(name) && original.is_some_and(|original| disk.open(&original).is_ok()) {
                    disk.remove(&path).map_err(io_error)?;
                    continue;
                }
                let text = read_all(disk, &path, MAX_RECORD_BYTES);
                files.push(parse(
                    folder.join(name),
                    &String::from_utf8_lossy(&text.unwrap_or_default()),
                ));
            } else if !has(&format!("{}{RECORD}", entry.name)) {
                files.push(parse(path, ""));
            }
        }
        for DamagedPart { path, range, detail } in files.iter().map(|damage| &damage.part) {
            let (file, first_ms, last_ms) = (path.display(), range.first_ms, range.last_ms);
            tracing::warn!(%file, first_ms, last_ms, %detail, "a damaged file was set aside; points are lost");
        }
        Ok(Self { folder, files })
    }

    /// Records the damage of a file of a day and the lost points, and links the file here. The caller replaces or
    /// removes the day's file. A file that is missing is recorded only.
    pub(super) fn add(
        &mut self,
        disk: &dyn Disk,
        file: &Path,
        day: DayNumber,
        lost: Vec<Lost>,
        detail: &str,
    ) -> Result<(), PointStoreError> {
        let io_error = |error| PointStoreError::io(self.folder.display(), &error);
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let path = self.folder.join(format!("{day}_{name}"));
        let known = self.files.iter().find(|damage| damage.part.path == path);
        let damage = Damage::new(path, lost, one_line(detail), known);
        create_dir_durably(disk, &self.folder).map_err(io_error)?;
        let record = self.folder.join(format!("{day}_{name}{RECORD}"));
        replace(disk, &record, damage.record().as_bytes()).map_err(io_error)?;
        match disk.link(file, &damage.part.path) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {
                return Err(io_error(error));
            }
            _ => disk.sync_dir(&self.folder).map_err(io_error)?,
        }
        self.files.retain(|known| known.part.path != damage.part.path);
        self.files.push(damage);
        Ok(())
    }

    /// Whether there is a record of a file of a day.
    pub(super) fn knows(&self, file: &Path, day: DayNumber) -> bool {
        self.has(file, day, &[])
    }

    /// Whether it is recorded already that a file of a day is lost with all of these points.
    pub(super) fn has(&self, file: &Path, day: DayNumber, lost: &[Lost]) -> bool {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let path = self.folder.join(format!("{day}_{name}"));
        let known = self.files.iter().find(|damage| damage.part.path == path);
        known.is_some_and(|known| {
            lost.iter()
                .all(|lost| known.lost.iter().any(|known| known.contains(lost)))
        })
    }

    /// All damaged files.
    pub(super) fn files(&self) -> &[Damage] {
        &self.files
    }

    /// The names of all files without the day.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let name = |file: &Damage| {
            file.part
                .path
                .file_name()?
                .to_str()?
                .split_once('_')
                .map(|(_, name)| name.to_owned())
        };
        self.files.iter().filter_map(name)
    }
}

impl Damage {
    /// Damage of a file, added to its known damage.
    fn new(path: PathBuf, lost: Vec<Lost>, detail: String, known: Option<&Self>) -> Self {
        let mut all: Vec<Lost> = known.map_or(Vec::new(), |known| known.lost.clone());
        let new: Vec<Lost> = lost.into_iter().filter(|lost| !all.contains(lost)).collect();
        all.extend(new);
        let first_ms = all.iter().map(|lost| lost.range.first_ms).min().unwrap_or(0);
        let last_ms = all.iter().map(|lost| lost.range.last_ms).max().unwrap_or(-1);
        let range = TimeRange { first_ms, last_ms };
        if all.len() > MAX_RANGES {
            all = vec![Lost::all(range)];
        }
        let part = DamagedPart { path, range, detail };
        Self { part, lost: all }
    }

    fn record(&self) -> String {
        let DamagedPart { range, detail, .. } = &self.part;
        let mut record = format!(
            "first_ms {}\nlast_ms {}\ndetail {detail}\n",
            range.first_ms, range.last_ms
        );
        for lost in self.lost.iter().filter(|lost| **lost != Lost::all(lost.range)) {
            let (first, last, range) = (lost.first, lost.last, lost.range);
            let keys = [first.metric.0, first.series.0, last.metric.0, last.series.0];
            let keys = keys.map(|number| number.to_string()).join(" ");
            record.push_str(&format!("lost {keys} {} {}\n", range.first_ms, range.last_ms));
        }
        record
    }
}

/// Parses a record; absent keys are unknown.
fn parse(path: PathBuf, record: &str) -> Damage {
    let value = |key: &str| {
        record
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
    };
    let day = path.file_name().and_then(|name| name.to_str()?.split_once('_'));
    let day = day.and_then(|(day, _)| DayNumber::parse(day));
    let all = day.map_or(TimeRange::ALL, DayNumber::range);
    let instant = |key, unknown| value(key).and_then(|value| value.parse().ok()).unwrap_or(unknown);
    let range = TimeRange {
        first_ms: instant("first_ms", all.first_ms),
        last_ms: instant("last_ms", all.last_ms),
    };
    let lines = record.lines().filter_map(|line| line.strip_prefix("lost "));
    let lost: Option<Vec<Lost>> = lines.map(parse_lost).collect();
    Damage {
        lost: lost
            .filter(|lost| !lost.is_empty())
            .unwrap_or_else(|| vec![Lost::all(range)]),
        part: DamagedPart {
            range,
            detail: value("detail").unwrap_or("has no record").to_owned(),
            path,
        },
    }
}

fn parse_lost(line: &str) -> Option<Lost> {
    let numbers: Vec<i64> = line
        .split(' ')
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let [
        first_metric,
        first_series,
        last_metric,
        last_series,
        first_ms,
        last_ms,
    ] = numbers[..]
    else {
        return None;
    };
    let key = |metric: i64, series: i64| {
        Some(SeriesKey {
            metric: MetricNumber(metric.try_into().ok()?),
            series: SeriesNumber(series.try_into().ok()?),
        })
    };
    Some(Lost {
        first: key(first_metric, first_series)?,
        last: key(last_metric, last_series)?,
        range: TimeRange { first_ms, last_ms },
    })
}

fn one_line(detail: &str) -> String {
    let printable = detail.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(MAX_DETAIL_CHARS).collect()
}
