//! The system's files.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use super::{Disk, Entry, FileLock, ReadFile, WriteFile};

const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Permissions of the group and of other users.
const OTHERS: u32 = 0o077;

/// The file system of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
struct Locked(File);

impl FileLock for Locked {}

impl Drop for Locked {
    /// Closing the file does not release the lock while a forked process holds a copy of the descriptor.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "cannot release the lock of a folder");
        }
    }
}

impl Disk for RealDisk {
    /// Also removes other users' permissions from an existing directory: the umask and the directory's creator may
    /// have granted them.
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path)?;
        let mode = fs::metadata(path)?.permissions().mode();
        if mode & OTHERS != 0 {
            fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS & 0o7777))?;
            tracing::warn!(folder = %path.display(), before = format!("{:o}", mode & 0o7777), "removed other users' access to the folder");
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                is_dir: metadata.is_dir(),
                len: if metadata.is_dir() { 0 } else { metadata.len() },
            });
        }
        Ok(entries)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create_new(true).mode(FILE_MODE).open(path)?;
        Ok(Box::new(file))
    }

    fn append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        let file = OpenOptions::new().append(true).open(path)?;
        if file.metadata()?.len() < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        file.set_len(len)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(File::open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut options = OpenOptions::new();
        let mut file = options
            .create(true)
            .truncate(false)
            .write(true)
            .mode(FILE_MODE)
            .open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => ErrorKind::WouldBlock.into(),
            TryLockError::Error(error) => error,
        })?;
        file.set_len(0)?;
        // On a full disk the process id is missing; the lock is held nevertheless.
        drop(writeln!(file, "{}", std::process::id()));
        Ok(Box::new(Locked(file)))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        fs4::available_space(path)
    }
}

impl WriteFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        // Includes the length, without which the bytes could not be read.
        self.sync_data()
    }
}

impl ReadFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}
