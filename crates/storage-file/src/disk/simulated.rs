//! A file system in memory for tests: loses power, fails at any operation, flips bits.
//!
//! It tracks which names and which bytes are durable. [`SimulatedDisk::power_loss`] returns the disk as a machine
//! finds it after an outage; [`SimulatedDisk::kill`] as a process finds it after its predecessor was killed. The
//! original disk continues independently.
//!
//! Rules, stricter than common file systems where POSIX allows it:
//!
//! - A change of names (create, rename, link, remove) is atomic, and durable once a directory that it touches is
//!   synced. Changes that are not durable survive in any combination.
//! - Bytes that are not synced survive as any prefix, with zeros behind it, or as any subset of sectors.
//! - After a failed sync the bytes that it covered never become durable, although later syncs succeed: systems
//!   consider such pages clean.
//! - A write that fails has written some of its bytes.
//!
//! [`Fault`] has the other ways in which an operation fails.

mod contents;
mod random;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, Entry, FileLock, ReadFile, WriteFile};
use random::Random;
use state::State;

/// The effect of an operation that reports an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation has no effect. Bytes that a sync covers can still be made durable by a later one.
    Before,
    /// The operation is performed.
    After,
    /// A write appends half of its bytes. The bytes that a sync covers can be read, but never become durable. Other
    /// operations have no effect.
    Torn,
    /// As [`Fault::Torn`], but the bytes that a sync covers read as zeros from then on, because the system dropped its
    /// pages.
    Dropped,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Before, Self::After, Self::Torn, Self::Dropped];
}

/// A file system in memory; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

impl SimulatedDisk {
    /// An empty file system.
    pub fn new() -> Self {
        Self::default()
    }

    /// The disk after a power loss that only durable names and bytes survive.
    #[must_use]
    pub fn power_loss(&self) -> Self {
        self.surviving(None)
    }

    /// The disk after a power loss that some names and bytes survive which were not durable, chosen by `seed`.
    #[must_use]
    pub fn power_loss_seeded(&self, seed: u64) -> Self {
        self.surviving(Some(Random::new(seed)))
    }

    fn surviving(&self, random: Option<Random>) -> Self {
        let state = self.state.lock().after_power_loss(random);
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The disk after the process was killed: all names and bytes are present, and names and bytes that were not
    /// durable are still not.
    #[must_use]
    pub fn kill(&self) -> Self {
        let state = self.state.lock().after_kill();
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Lets `count` more operations succeed and fails all later ones, as if the process was killed then.
    pub fn fail_after(&self, count: u64) {
        self.state.lock().faults.fail_after(count);
    }

    /// Fails one operation after `count` more have succeeded; e.g. with [`ErrorKind::StorageFull`]. Its effect is
    /// [`Fault::Torn`].
    pub fn fail_operation(&self, count: u64, error: ErrorKind) {
        self.inject(count, Fault::Torn, error);
    }

    /// Lets one operation report an error after `count` more have succeeded. `fault` is its effect.
    pub fn inject(&self, count: u64, fault: Fault, error: ErrorKind) {
        self.state.lock().faults.inject(count, fault, error);
    }

    /// The operation that [`SimulatedDisk::inject`] has failed, if it was reached: the name of the trait's function, and
    /// the path (for a rename or link, the new path).
    pub fn injected(&self) -> Option<(String, String)> {
        self.state.lock().faults.hit()
    }

    /// Fails the first operation that is a certain step, or with `after` the operation behind it, and all later ones,
    /// as if the process was killed there. `is_step` gets the name of the trait's function, and the path (for a rename
    /// or link, the new path).
    pub fn crash_at(&self, is_step: fn(&str, &str) -> bool, after: bool) {
        self.state.lock().faults.crash_at(is_step, after);
    }

    /// Whether an operation has failed since the process was killed.
    pub fn has_crashed(&self) -> bool {
        self.state.lock().faults.is_stopped()
    }

    /// Lets all operations succeed again.
    pub fn repair(&self) {
        self.state.lock().faults.clear();
    }

    /// Operations so far, failed ones included: each call of a trait's function, and each entry that
    /// [`Disk::remove_dir`] removes.
    pub fn operations(&self) -> u64 {
        self.state.lock().faults.operations()
    }

    /// Bytes written so far by file extension.
    pub fn written(&self) -> BTreeMap<String, u64> {
        self.state.lock().written.clone()
    }

    /// Sets the bytes that are free. Writes take from them and fail with [`ErrorKind::StorageFull`] when none are
    /// left; removing the last name of a file gives its bytes back.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.state.lock().free = bytes;
    }

    /// Flips a bit of a file, durably. Returns `false` if the file has fewer bits.
    ///
    /// # Errors
    ///
    /// If there is no such file.
    pub fn flip_bit(&self, path: &Path, bit: u64) -> io::Result<bool> {
        let mut state = self.state.lock();
        let file = state.file(path)?;
        Ok(state.files[file].flip_bit(bit))
    }

    /// All files with their lengths, by path.
    pub fn files(&self) -> BTreeMap<String, u64> {
        self.state.lock().all_files()
    }

    fn opened(&self, file: usize, path: &Path) -> OpenFile {
        OpenFile {
            disk: self.clone(),
            file,
            path: path.to_owned(),
        }
    }

    /// Performs an operation unless a fault is due.
    fn run<T>(
        &self,
        name: &str,
        path: &Path,
        operation: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        match state.faults.step(name, path) {
            Ok(()) => operation(&mut state),
            Err(failure) => {
                if failure.is_performed() {
                    operation(&mut state)?;
                }
                Err(failure.error)
            }
        }
    }
}

impl Disk for SimulatedDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.run("create_dir", path, |state| state.create_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.run("list", path, |state| state.list(path))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.run("create", path, |state| state.create(path))?;
        Ok(Box::new(self.opened(file, path)))
    }

    fn append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        let file = self.run("append", path, |state| {
            let file = state.file(path)?;
            let removed = state.files[file].cut(len)?;
            state.free = state.free.saturating_add(removed);
            Ok(file)
        })?;
        Ok(Box::new(self.opened(file, path)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let file = self.run("open", path, |state| state.file(path))?;
        Ok(Arc::new(self.opened(file, path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.run("rename", to, |state| state.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.run("link", to, |state| state.link(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.run("remove", path, |state| state.remove(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        for entry in self.list(path)? {
            let path = path.join(&entry.name);
            if entry.is_dir {
                self.remove_dir(&path)?;
            } else {
                self.remove(&path)?;
            }
        }
        self.run("remove_dir", path, |state| state.remove_empty_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.run("sync_dir", path, |state| state.sync_dir(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = self.run("lock", path, |state| state.lock(path))?;
        Ok(Box::new(Locked {
            disk: self.clone(),
            file,
        }))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.run("free_bytes", path, |state| Ok(state.free))
    }
}

#[derive(Debug)]
struct Locked {
    disk: SimulatedDisk,
    file: usize,
}

impl FileLock for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        self.disk.state.lock().locked.remove(&self.file);
    }
}

/// An open file.
#[derive(Debug)]
struct OpenFile {
    disk: SimulatedDisk,
    file: usize,
    /// Its name when it was opened.
    path: PathBuf,
}

impl WriteFile for OpenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let result = state.faults.step("write", &self.path);
        let mut length = match result.as_ref().map_err(|failure| failure.fault) {
            Ok(()) | Err(Fault::After) => bytes.len(),
            Err(Fault::Torn | Fault::Dropped) => bytes.len() / 2,
            Err(Fault::Before) => 0,
        };
        length = length.min(usize::try_from(state.free).unwrap_or(usize::MAX));
        if state.faults.is_stopped() {
            // A killed process writes nothing.
            length = 0;
        }
        state.files[self.file].write(&bytes[..length]);
        state.free -= length as u64;
        let extension = self.path.extension().unwrap_or_default().to_string_lossy();
        *state.written.entry(extension.into_owned()).or_default() += length as u64;
        result.map_err(|failure| failure.error)?;
        if length < bytes.len() {
            return Err(ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let result = state.faults.step("sync", &self.path);
        let file = &mut state.files[self.file];
        match result.as_ref().map_err(|failure| failure.fault) {
            Ok(()) | Err(Fault::After) => file.sync(),
            Err(Fault::Torn) => file.lose_unsynced(),
            Err(Fault::Dropped) => file.drop_unsynced(),
            Err(Fault::Before) => {}
        }
        result.map_err(|failure| failure.error)
    }
}

impl ReadFile for OpenFile {
    fn len(&self) -> io::Result<u64> {
        self.disk.run("len", &self.path, |state| {
            Ok(state.files[self.file].bytes().len() as u64)
        })
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.run("read_at", &self.path, |state| {
            let bytes = usize::try_from(offset)
                .ok()
                .and_then(|offset| state.files[self.file].bytes().get(offset..)?.get(..buffer.len()))
                .ok_or(ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(bytes);
            Ok(())
        })
    }
}
