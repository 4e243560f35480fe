//! Damaged files: each is moved to folder `set-aside/` with a record of what was lost, and the rest of the store goes
//! on.
//!
//! ```text
//!   set-aside/2026-11-22_0000000017-0000000031.part          the file
//!             2026-11-22_0000000017-0000000031.part.record   text, one `key value` a line:
//!
//!     first_ms 1795305600000
//!     last_ms 1795309199999
//!     detail page 7: checksum differs
//! ```
//!
//! The record is durable before the file is moved: a power loss between the two leaves a record without its file.
//! It is removed when the store is opened, unless the file is absent from its day, too. Removing a record and its file
//! by hand clears the report.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::name::DayNumber;
use crate::parts::disk::Disk;
use crate::parts::folder::{create_dir_durably, read_all, replace};
use crate::{DamagedPart, PointStoreError, TimeRange};

const RECORD: &str = ".record";
/// Longer details are cut, and longer records not read.
const MAX_DETAIL_CHARS: usize = 1 << 10;
const MAX_RECORD_BYTES: u64 = 8 << 10;

/// The folder of damaged files.
#[derive(Debug)]
pub(super) struct SetAside {
    folder: PathBuf,
    files: Vec<DamagedPart>,
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
        for DamagedPart { path, range, detail } in &files {
            let (file, first_ms, last_ms) = (path.display(), range.first_ms, range.last_ms);
            tracing::warn!(%file, first_ms, last_ms, %detail, "a damaged file was set aside; its points are not served");
        }
        Ok(Self { folder, files })
    }

    /// Moves a file of a day here and records what is wrong with it. A file that is missing is recorded only.
    pub(super) fn add(
        &mut self,
        disk: &dyn Disk,
        file: &Path,
        day: DayNumber,
        range: TimeRange,
        detail: &str,
    ) -> Result<(), PointStoreError> {
        let io_error = |error| PointStoreError::io(self.folder.display(), &error);
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let path = self.folder.join(format!("{day}_{name}"));
        let detail = one_line(detail);
        create_dir_durably(disk, &self.folder).map_err(io_error)?;
        let record = format!(
            "first_ms {}\nlast_ms {}\ndetail {detail}\n",
            range.first_ms, range.last_ms
        );
        let record_path = self.folder.join(format!("{day}_{name}{RECORD}"));
        replace(disk, &record_path, record.as_bytes()).map_err(io_error)?;
        match disk.rename(file, &path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io_error(error)),
            _ => {}
        }
        self.files.retain(|file| file.path != path);
        self.files.push(DamagedPart { path, range, detail });
        disk.sync_dir(&self.folder).map_err(io_error)?;
        let day = file.parent().unwrap_or(Path::new("."));
        disk.sync_dir(day)
            .map_err(|error| PointStoreError::io(day.display(), &error))
    }

    /// All damaged files.
    pub(super) fn files(&self) -> &[DamagedPart] {
        &self.files
    }

    /// The names of all files without the day.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let name = |file: &DamagedPart| {
            file.path
                .file_name()?
                .to_str()?
                .split_once('_')
                .map(|(_, name)| name.to_owned())
        };
        self.files.iter().filter_map(name)
    }
}

/// What a record says; what it does not say is unknown.
fn parse(path: PathBuf, record: &str) -> DamagedPart {
    let value = |key: &str| {
        record
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
    };
    let day = path.file_name().and_then(|name| name.to_str()?.split_once('_'));
    let day = day.and_then(|(day, _)| DayNumber::parse(day));
    let all = day.map_or(TimeRange::ALL, DayNumber::range);
    let instant = |key, unknown| value(key).and_then(|value| value.parse().ok()).unwrap_or(unknown);
    DamagedPart {
        range: TimeRange {
            first_ms: instant("first_ms", all.first_ms),
            last_ms: instant("last_ms", all.last_ms),
        },
        detail: value("detail").unwrap_or("has no record").to_owned(),
        path,
    }
}

fn one_line(detail: &str) -> String {
    let printable = detail.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(MAX_DETAIL_CHARS).collect()
}
