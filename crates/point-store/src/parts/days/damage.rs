//! What happens to a part that is damaged: its intact blocks are written to a part that takes its place, and the damaged
//! file is set aside.
//!
//! ```text
//!   17-31.part  damaged  ─► intact blocks ─► *.tmp, durable
//!                        ─► record and link in set-aside/, durable
//!                        ─► *.tmp becomes 17-31.part; removed if no block is intact
//! ```

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::day::{DayList, DayPart, OwnedFile};
use super::{Days, io_error};
use crate::parts::part::Lost;
use crate::parts::series::SeriesKey;
use crate::{DamagedPart, PointStoreError, TimeRange};

impl Days {
    /// Replaces a part of a list that an error says is damaged, or that is missing. Reads go on with what is intact.
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
                Err(PointStoreError::Full(place)) => {
                    tracing::error!(part = %path.display(), %place, "cannot repair a damaged part");
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
        let replaced = match &intact {
            Some(file) => shared.disk.rename(file.path(), path),
            None => match shared.disk.remove(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
                removed => removed,
            },
        };
        replaced.map_err(|error| io_error(path, &error))?;
        let opened = intact.map(|_| self.open_part(path, part.sequences, list.day.range(), u32::MAX));
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
        drop(changes);
        opened.and(self.sync_day(list.day))
    }

    /// Writes the intact blocks of a part to a file, `None` if there are none, and returns what is lost.
    fn salvage(
        &self,
        list: &DayList,
        part: &DayPart,
    ) -> Result<(Option<OwnedFile>, Vec<Lost>), PointStoreError> {
        let shared = &*self.0;
        let whole = Lost::all(part.range().unwrap_or(list.day.range()));
        match shared.disk.open(part.path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok((None, vec![whole])),
            opened => opened.map_err(|error| io_error(part.path(), &error))?,
        };
        let free = shared.disk.free_bytes(&shared.folder);
        let free = free.map_err(|error| io_error(&shared.folder, &error))?;
        if free / 2 < part.bytes() {
            let message = format!(
                "{free} bytes are free, too few to repair {}",
                part.path().display()
            );
            return Err(PointStoreError::Full(message));
        }
        let mut new = self.new_part(list.day)?;
        let lost = part.part().salvage(new.writer())?;
        if new.writer().is_empty() {
            return Ok((None, vec![whole]));
        }
        let (_, file) = new.finish()?;
        Ok((Some(file), lost))
    }

    /// The files that were set aside.
    pub fn damage(&self) -> Vec<DamagedPart> {
        let changes = self.0.changes.lock();
        let files = changes.set_aside.files().iter();
        files.map(|damage| damage.part.clone()).collect()
    }

    /// Those that may have had points in a range of some series, which are listed only if there is damage.
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

/// The file that an error says is damaged, and what is wrong. The folder's format decides whether this version reads its
/// files: one of another version is a damaged one.
pub(super) fn damage_of(error: &PointStoreError) -> Option<(PathBuf, String)> {
    match error {
        PointStoreError::Damaged { path, detail } => Some((path.clone(), detail.clone())),
        PointStoreError::Format { path, .. } => Some((path.clone(), error.to_string())),
        _ => None,
    }
}
