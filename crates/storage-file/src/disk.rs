//! The file system as a trait: the engine does no I/O but through [`Disk`].
//!
//! | Module | Content |
//! |---|---|
//! | [`real`] | the system's files |
//! | [`overlay`] | changes that are kept in memory, over the files of another disk |
//! | `simulated` | a file system in memory that loses power, fails at any operation and flips bits, for tests |

pub mod overlay;
pub mod real;
#[cfg(any(test, feature = "testing"))]
pub mod simulated;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file system. Paths are absolute or relative to the process, as the engine was given them.
///
/// A created, renamed, linked or removed name is durable after [`Disk::sync_dir`] of its directory; the content of a
/// file is durable after [`WriteFile::sync`].
#[expect(clippy::missing_errors_doc, reason = "all errors are those of the system")]
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a directory (mode 0700) and its parents; no error if it exists.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// The entries of a directory, in any order.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

    /// Creates a file (mode 0600) to append to; an error if it exists.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Opens an existing file to append to after its first `len` bytes and removes the bytes behind them, which is
    /// durable after [`WriteFile::sync`]; [`io::ErrorKind::UnexpectedEof`] if the file is shorter.
    fn append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>>;

    /// Opens a file to read.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Renames a file or directory, replacing a file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// A second name for a file.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with all its content.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names of a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Locks a file, which is created if it is absent, until the result is dropped or the process ends. The file's
    /// content becomes the process id as text; [`io::ErrorKind::WouldBlock`] if the file is locked already, also by
    /// this process.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Bytes that are free for this process on the file system of a path.
    fn free_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name within the directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Bytes of a file; 0 for a directory.
    pub len: u64,
}

/// A locked file; dropping it releases the lock.
pub trait FileLock: Send + Sync + fmt::Debug {}

/// A file that is being written, at its end only.
#[expect(clippy::missing_errors_doc, reason = "all errors are those of the system")]
pub trait WriteFile: Send + fmt::Debug {
    /// Appends bytes. After an error the file's end is unknown.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything that was written durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that is read at any place, from any number of threads.
pub trait ReadFile: Send + Sync + fmt::Debug {
    /// Bytes of the file.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    ///
    /// Errors of the system.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` from a place.
    ///
    /// # Errors
    ///
    /// Errors of the system; [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

#[cfg(test)]
mod tests;
