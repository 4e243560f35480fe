//! Salvage: the intact blocks of a damaged part are written to a part that takes its place, and the damaged file is set
//! aside.
//!
//! ```text
//!   17-31.part  damaged  ─► intact blocks ─► *.tmp, durable
//!                        ─► record and link in set-aside/, durable
//!                        ─► manifest, with both
//!                        ─► *.tmp becomes 17-31.part; removed if no block is intact
//!                        ─► manifest, with the new one
//! ```

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::day::{DayList, DayPart, OwnedFile};
use super::manifest::PartEntry;
use super::{Changes, Days, if_present, io_error};
use crate::parts::part::{Lost, MetricSet};
use crate::parts::series::SeriesKey;
use crate::{DamagedPart, PointStoreError, TimeRange};

/// The intact blocks of a damaged part, in a file of their own.
struct Intact {
    file: OwnedFile,
    metrics: MetricSet,
}

impl Days {
    /// Replaces a part of a list if an error reports it damaged or missing. Reads go on with its intact blocks.
    ///
    /// Returns the error, which names a missing part.
    pub(super) fn set_aside(
        &self,
        list: &DayList,
        error: PointStoreError,
    ) -> Result<PointStoreError, PointStoreError> {
        let shared = &*self.0;
        let is_missing = |part: &&Arc<DayPart>| matches!(shared.disk.open(part.path()), Err(error) if error.kind() == ErrorKind::NotFound);
        let damage = damage_of(&error).or_else(|| {
            let io = matches!(error, PointStoreError::Io { .. });
            let missing = io.then(|| list.parts.iter().find(is_missing))??;
            Some((missing.path().to_owned(), "the file is missing".to_owned()))
        });
        let Some((path, detail)) = damage else {
            return Ok(error);
        };
        let Some(part) = list.parts.iter().find(|part| part.path() == path) else {
            return Ok(error);
        };
        let _one_at_a_time = shared.repair.lock();
        if self.has_part(list, part) {
            match self.repair(list, part, &detail) {
                // Reads of the damaged pages fail until there is space.
                Err(PointStoreError::Full(detail)) => {
                    tracing::error!(part = %path.display(), %detail, "cannot repair a damaged part");
                }
                repaired => repaired?,
            }
        }
        Ok(PointStoreError::Damaged { path, detail })
    }

    /// Whether a part is one of its day now.
    fn has_part(&self, list: &DayList, part: &Arc<DayPart>) -> bool {
        let days = self.0.days.read();
        let now = days.get(&list.day).map(|day| &day.list);
        now.is_some_and(|now| now.position(std::slice::from_ref(part)).is_some())
    }

    fn repair(&self, list: &DayList, part: &Arc<DayPart>, detail: &str) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let path = part.path();
        // Large parts take long: others change files meanwhile.
        let (intact, lost) = self.salvage(list, part)?;
        let mut changes = shared.changes.lock();
        if !self.has_part(list, part) {
            return Ok(());
        }
        if lost.is_empty() {
            tracing::warn!(part = %path.display(), %detail, "wrote a damaged part again; no points are lost");
        } else {
            tracing::error!(
                part = %path.display(), %detail, ranges = lost.len(), is_whole = intact.is_none(),
                "set a damaged part aside; points are lost"
            );
            changes
                .set_aside
                .add(&*shared.disk, path, list.day, lost, detail)?;
        }
        self.list_replacement(&mut changes, list, part, intact.as_ref())?;
        match &intact {
            Some(Intact { file, .. }) => self.rename_over(file, path)?,
            None => if_present(shared.disk.remove(path)).map_err(|error| io_error(path, &error))?,
        }
        let opened = intact.map(|Intact { metrics, .. }| {
            let opened = self.open_part(path, part.sequences, list.day.range(), u32::MAX)?;
            Ok::<_, PointStoreError>(DayPart { metrics, ..opened })
        });
        let (new, opened) = match opened.transpose() {
            Ok(new) => (new, Ok(())),
            // The next start finds it.
            Err(error) => (None, Err(error)),
        };
        self.change_day(list.day, |list, _| {
            if let Some(position) = list.position(std::slice::from_ref(part)) {
                list.parts.splice(position..=position, new.map(Arc::new));
            }
        });
        // If it fails, the manifest has the file, and the next start opens it.
        opened?;
        self.record_day(&mut changes, list.day)
    }

    /// Lists the replacement of a part beside it, or removes the part from the list if it has no replacement.
    fn list_replacement(
        &self,
        changes: &mut Changes,
        list: &DayList,
        part: &Arc<DayPart>,
        intact: Option<&Intact>,
    ) -> Result<(), PointStoreError> {
        self.sync_day(list.day)?;
        let mut manifest = self.manifest(changes, list.day);
        let place = manifest
            .parts
            .iter()
            .position(|entry| entry.sequences == part.sequences);
        if let Some(Intact { file, metrics }) = intact {
            let new = self.open_part(file.path(), part.sequences, list.day.range(), u32::MAX)?;
            let new = PartEntry {
                metrics: metrics.clone(),
                ..new.entry()
            };
            manifest.parts.insert(place.map_or(0, |place| place + 1), new);
        } else if let Some(place) = place {
            manifest.parts.remove(place);
        }
        let written = self.write_manifest(changes, list.day, &manifest);
        // Until the replacement is complete.
        changes.dirty.insert(list.day);
        written
    }

    /// Renames a file over another one. If that fails, and was done nevertheless, it is no error: the content of the path
    /// must be known.
    fn rename_over(&self, file: &OwnedFile, path: &Path) -> Result<(), PointStoreError> {
        let disk = &*self.0.disk;
        let Err(error) = disk.rename(file.path(), path) else {
            return Ok(());
        };
        match disk.open(file.path()) {
            Err(missing) if missing.kind() == ErrorKind::NotFound => Ok(()),
            _ => Err(io_error(path, &error)),
        }
    }

    /// Writes the intact blocks of a part to a file, `None` if there are none, and returns the losses.
    fn salvage(
        &self,
        list: &DayList,
        part: &DayPart,
    ) -> Result<(Option<Intact>, Vec<Lost>), PointStoreError> {
        let shared = &*self.0;
        let whole = part.entry().lost();
        match shared.disk.open(part.path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((None, whole)),
            opened => opened.map_err(|error| io_error(part.path(), &error))?,
        };
        let free = shared.disk.free_bytes(&shared.folder);
        let free = free.map_err(|error| io_error(&shared.folder, &error))?;
        if free / 2 < part.bytes() {
            let message = format!(
                "{free} bytes are free, too few to repair a part of {}",
                part.bytes()
            );
            return Err(PointStoreError::Full(message));
        }
        let mut new = self.new_part(list.day)?;
        let lost = part.part().salvage(new.writer())?;
        if new.writer().is_empty() {
            return Ok((None, whole));
        }
        let (_, file, metrics) = new.finish()?;
        Ok((Some(Intact { file, metrics }), lost))
    }

    /// The files that were set aside.
    pub fn damage(&self) -> Vec<DamagedPart> {
        let changes = self.0.changes.lock();
        let files = changes.set_aside.files().iter();
        files.map(|damage| damage.part.clone()).collect()
    }

    /// The lost parts that may have had points in a range of some series, which are listed only if there is damage.
    pub fn lost(&self, series: impl FnOnce() -> Vec<SeriesKey>, range: TimeRange) -> Vec<DamagedPart> {
        let mut damage = self.0.changes.lock().set_aside.files().to_vec();
        damage.retain(|damage| damage.part.range.overlaps(&range));
        if damage.is_empty() {
            return Vec::new();
        }
        let mut keys = series();
        keys.sort_unstable();
        let is_lost = |lost: &Lost| {
            let next = keys.partition_point(|key| *key < lost.first);
            lost.range.overlaps(&range) && keys.get(next).is_some_and(|key| *key <= lost.last)
        };
        damage.retain(|damage| damage.lost.iter().any(is_lost));
        damage.into_iter().map(|damage| damage.part).collect()
    }
}

/// The file that an error reports damaged, and the reason. The folder's format decides whether this version reads its
/// files: a file of another version is a damaged one.
pub(super) fn damage_of(error: &PointStoreError) -> Option<(PathBuf, String)> {
    match error {
        PointStoreError::Damaged { path, detail } => Some((path.clone(), detail.clone())),
        PointStoreError::Format { path, .. } => Some((path.clone(), error.to_string())),
        _ => None,
    }
}
