//! A file system over another one that keeps all changes in memory and discards them when dropped.
//!
//! ```text
//!   read  ──► changes ──► the disk below
//!   write ──► changes
//! ```
//!
//! It shows the changes that a store would make to its folder. Locks are taken on the disk below, so that no process
//! has the folder meanwhile, unless the folder is absent. Directories cannot be renamed.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Disk, Entry, FileLock, ReadFile, WriteFile};

/// A disk with changes in memory.
#[derive(Debug)]
pub struct OverlayDisk {
    below: Arc<dyn Disk>,
    changes: Mutex<BTreeMap<PathBuf, Node>>,
}

/// A path that was changed.
#[derive(Clone, Debug)]
enum Node {
    Absent,
    Folder,
    /// A file of the disk below, under this name or another one.
    Below(PathBuf),
    File(Content),
}

type Content = Arc<Mutex<Vec<u8>>>;

impl OverlayDisk {
    /// A disk without changes.
    pub fn new(below: Arc<dyn Disk>) -> Self {
        Self {
            below,
            changes: Mutex::default(),
        }
    }

    fn changed(&self, path: &Path) -> Option<Node> {
        self.changes.lock().get(path).cloned()
    }

    fn change(&self, path: &Path, node: Node) {
        self.changes.lock().insert(path.to_owned(), node);
    }

    /// The file at a path.
    fn file(&self, path: &Path) -> io::Result<Node> {
        match self.changed(path) {
            Some(Node::Absent) => Err(ErrorKind::NotFound.into()),
            Some(Node::Folder) => Err(ErrorKind::IsADirectory.into()),
            Some(node) => Ok(node),
            None => {
                self.below.open(path)?;
                Ok(Node::Below(path.to_owned()))
            }
        }
    }

    fn bytes(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        let length = usize::try_from(file.len()?).map_err(|_| ErrorKind::FileTooLarge)?;
        let mut bytes = vec![0; length];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

impl Disk for OverlayDisk {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
            match self.list(folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.change(folder, Node::Folder),
                listed => return listed.map(drop),
            }
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let changes = self.changes.lock();
        let below = match changes.get(path) {
            Some(Node::Absent) => return Err(ErrorKind::NotFound.into()),
            Some(Node::Folder) => Vec::new(),
            Some(Node::Below(_) | Node::File(_)) => return Err(ErrorKind::NotADirectory.into()),
            None => self.below.list(path)?,
        };
        let mut entries: BTreeMap<String, Entry> = below
            .into_iter()
            .map(|entry| (entry.name.clone(), entry))
            .collect();
        for (changed, node) in changes
            .iter()
            .filter(|(changed, _)| changed.parent() == Some(path))
        {
            let name = changed.file_name().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            let (is_dir, len) = match node {
                Node::Absent => {
                    entries.remove(&name);
                    continue;
                }
                Node::Folder => (true, 0),
                Node::Below(file) => (false, self.below.open(file)?.len()?),
                Node::File(content) => (false, content.lock().len() as u64),
            };
            let entry = Entry {
                name: name.clone(),
                is_dir,
                len,
            };
            entries.insert(name, entry);
        }
        Ok(entries.into_values().collect())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        if self.file(path).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let content = Content::default();
        self.change(path, Node::File(Arc::clone(&content)));
        Ok(Box::new(Written(content)))
    }

    fn append(&self, path: &Path, len: u64) -> io::Result<Box<dyn WriteFile>> {
        let mut bytes = self.bytes(path)?;
        match usize::try_from(len) {
            Ok(len) if len <= bytes.len() => bytes.truncate(len),
            _ => return Err(ErrorKind::UnexpectedEof.into()),
        }
        let content = Arc::new(Mutex::new(bytes));
        self.change(path, Node::File(Arc::clone(&content)));
        Ok(Box::new(Written(content)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        match self.file(path)? {
            Node::Below(file) => self.below.open(&file),
            Node::File(content) => Ok(Arc::new(Written(content))),
            Node::Absent | Node::Folder => Err(ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.list(from).is_ok() {
            return Err(ErrorKind::Unsupported.into());
        }
        self.link_over(from, to)?;
        self.change(from, Node::Absent);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        if self.file(to).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.link_over(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.change(path, Node::Absent);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        for entry in self.list(path)? {
            let path = path.join(&entry.name);
            match entry.is_dir {
                true => self.remove_dir(&path)?,
                false => self.change(&path, Node::Absent),
            }
        }
        self.change(path, Node::Absent);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.list(path).map(drop)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        match self.below.lock(path) {
            // No process has a folder that is not there.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Box::new(NoLock)),
            locked => locked,
        }
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let mut free = self.below.free_bytes(path);
        for folder in path.ancestors().skip(1) {
            if !matches!(&free, Err(error) if error.kind() == ErrorKind::NotFound) {
                break;
            }
            free = self.below.free_bytes(folder);
        }
        free
    }
}

impl OverlayDisk {
    fn link_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.file(from)?;
        self.change(to, node);
        Ok(())
    }
}

/// A file in memory.
#[derive(Debug)]
struct Written(Content);

impl WriteFile for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ReadFile for Written {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.0.lock();
        let start = usize::try_from(offset).map_err(|_| ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(buffer.len());
        let bytes = end.and_then(|end| content.get(start..end));
        buffer.copy_from_slice(bytes.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[derive(Debug)]
struct NoLock;

impl FileLock for NoLock {}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::disk::real::RealDisk;
    use crate::folder::{read_all, replace};

    #[test]
    fn changes_are_visible_and_leave_the_disk_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("kept"), "kept").unwrap();
        fs::write(path("replaced"), "old").unwrap();
        fs::create_dir(path("folder")).unwrap();
        fs::write(path("folder/file"), "file").unwrap();
        let disk = OverlayDisk::new(Arc::new(RealDisk));
        let read = |name: &str| read_all(&disk, &path(name), 100).map_err(|error| error.kind());

        replace(&disk, &path("replaced"), b"new").unwrap();
        disk.link(&path("kept"), &path("linked")).unwrap();
        disk.append(&path("kept"), 2).unwrap().write(b"y").unwrap();
        disk.create_dir(&path("new/below")).unwrap();
        disk.create(&path("new/below/file")).unwrap().write(b"x").unwrap();
        disk.remove_dir(&path("folder")).unwrap();
        assert_eq!(read("replaced").unwrap(), b"new");
        assert_eq!(read("linked").unwrap(), b"kept");
        assert_eq!(read("kept").unwrap(), b"key");
        assert_eq!(read("new/below/file").unwrap(), b"x");
        assert_eq!(read("folder/file").unwrap_err(), ErrorKind::NotFound);
        let names = |name: &str| {
            let entries = disk.list(&path(name)).unwrap();
            entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["kept", "linked", "new", "replaced"]);
        assert_eq!(names("new"), ["below"]);
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(disk.sync_dir(&path("folder"))), ErrorKind::NotFound);
        assert_eq!(
            kind(disk.create(&path("kept")).map(drop)),
            ErrorKind::AlreadyExists
        );
        assert_eq!(
            kind(disk.link(&path("linked"), &path("kept"))),
            ErrorKind::AlreadyExists
        );
        assert_eq!(
            kind(disk.append(&path("kept"), 9).map(drop)),
            ErrorKind::UnexpectedEof
        );
        assert!(disk.free_bytes(&path("new/below")).unwrap() > 0);

        assert_eq!(fs::read(path("replaced")).unwrap(), b"old");
        assert_eq!(fs::read(path("kept")).unwrap(), b"kept");
        assert_eq!(fs::read(path("folder/file")).unwrap(), b"file");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn locks_folders_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let disk = OverlayDisk::new(Arc::new(RealDisk));
        let held = RealDisk.lock(&folder.path().join("LOCK")).unwrap();
        let error = disk.lock(&folder.path().join("LOCK")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        drop(held);
        disk.lock(&folder.path().join("LOCK")).unwrap();
        disk.lock(&folder.path().join("absent/LOCK")).unwrap();
    }
}
