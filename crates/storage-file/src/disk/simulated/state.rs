//! Names, files and faults of a simulated disk.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

use super::super::Entry;
use super::Fault;
use super::contents::Contents;
use super::random::Random;

/// A directory's number.
type Dir = usize;
/// A directory and a name in it.
type Name = (Dir, String);

const ROOT: Dir = 0;

/// The target of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(usize),
    Dir(Dir),
}

/// Names that get another meaning, or lose it, at once.
type Change = Vec<(Name, Option<Node>)>;

#[derive(Clone, Debug)]
pub(super) struct State {
    names: BTreeMap<Name, Node>,
    durable: BTreeMap<Name, Node>,
    /// Changes that are in `names` but not in `durable`, in order.
    pending: Vec<Change>,
    pub(super) files: Vec<Contents>,
    last_dir: Dir,
    pub(super) locked: HashSet<usize>,
    pub(super) faults: Faults,
    pub(super) free: u64,
    pub(super) written: BTreeMap<String, u64>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            names: BTreeMap::new(),
            durable: BTreeMap::new(),
            pending: Vec::new(),
            files: Vec::new(),
            last_dir: ROOT,
            locked: HashSet::new(),
            faults: Faults::default(),
            free: 1 << 40,
            written: BTreeMap::new(),
        }
    }
}

impl State {
    pub(super) fn after_kill(&self) -> Self {
        let mut state = self.clone();
        state.locked.clear();
        state.faults.clear();
        state
    }

    pub(super) fn after_power_loss(&self, mut random: Option<Random>) -> Self {
        let mut state = self.after_kill();
        for change in std::mem::take(&mut state.pending) {
            if random.as_mut().is_some_and(Random::coin) {
                apply(&mut state.durable, &change);
            }
        }
        state.names = state.durable.clone();
        for contents in &mut state.files {
            *contents = contents.surviving(random.as_mut());
        }
        state
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.names, &change);
        self.pending.push(change);
    }

    fn node(&self, path: &Path) -> io::Result<Node> {
        let mut node = Node::Dir(ROOT);
        for component in components(path)? {
            let Node::Dir(dir) = node else {
                return Err(ErrorKind::NotADirectory.into());
            };
            let name = (dir, component);
            node = *self.names.get(&name).ok_or(ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    /// The number of a file.
    pub(super) fn file(&self, path: &Path) -> io::Result<usize> {
        match self.node(path)? {
            Node::File(file) => Ok(file),
            Node::Dir(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn dir(&self, path: &Path) -> io::Result<Dir> {
        match self.node(path)? {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// The directory of a path and the name in it.
    fn name(&self, path: &Path) -> io::Result<Name> {
        let name = components(path)?.pop().ok_or(ErrorKind::InvalidInput)?;
        Ok((self.dir(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// A name that is free.
    fn new_name(&self, path: &Path) -> io::Result<Name> {
        let name = self.name(path)?;
        if self.names.contains_key(&name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(name)
    }

    fn entries(&self, dir: Dir) -> impl Iterator<Item = (&str, Node)> {
        self.names
            .range((dir, String::new())..(dir + 1, String::new()))
            .map(|((_, name), node)| (name.as_str(), *node))
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let mut dir = ROOT;
        for component in components(path)? {
            let name = (dir, component);
            dir = match self.names.get(&name) {
                Some(Node::Dir(dir)) => *dir,
                Some(Node::File(_)) => return Err(ErrorKind::AlreadyExists.into()),
                None => {
                    self.last_dir += 1;
                    self.change(vec![(name, Some(Node::Dir(self.last_dir)))]);
                    self.last_dir
                }
            };
        }
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let entries = self.entries(self.dir(path)?);
        Ok(entries
            .map(|(name, node)| Entry {
                name: name.to_owned(),
                is_dir: matches!(node, Node::Dir(_)),
                len: self.len(node),
            })
            .collect())
    }

    fn len(&self, node: Node) -> u64 {
        match node {
            Node::File(file) => self.files[file].bytes().len() as u64,
            Node::Dir(_) => 0,
        }
    }

    pub(super) fn all_files(&self) -> BTreeMap<String, u64> {
        let mut files = BTreeMap::new();
        let mut dirs = vec![(String::new(), ROOT)];
        while let Some((path, dir)) = dirs.pop() {
            for (name, node) in self.entries(dir) {
                let path = format!("{path}/{name}");
                match node {
                    Node::File(_) => drop(files.insert(path, self.len(node))),
                    Node::Dir(dir) => dirs.push((path, dir)),
                }
            }
        }
        files
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<usize> {
        let name = self.new_name(path)?;
        let file = self.files.len();
        self.files.push(Contents::default());
        self.change(vec![(name, Some(Node::File(file)))]);
        Ok(file)
    }

    pub(super) fn lock(&mut self, path: &Path) -> io::Result<usize> {
        let file = match self.file(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.create(path)?,
            file => file?,
        };
        if !self.locked.insert(file) {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.files[file].cut(0)?;
        self.files[file].write(format!("{}\n", std::process::id()).as_bytes());
        Ok(file)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.node(from)?;
        let (from, to) = (self.name(from)?, self.name(to)?);
        let replaced = self.names.get(&to).copied();
        match (node, replaced) {
            _ if replaced == Some(node) => return Ok(()),
            (Node::File(_), Some(Node::Dir(_))) => return Err(ErrorKind::IsADirectory.into()),
            (Node::Dir(_), Some(Node::File(_))) => return Err(ErrorKind::NotADirectory.into()),
            (Node::Dir(_), Some(Node::Dir(dir))) if self.entries(dir).next().is_some() => {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            _ => {}
        }
        self.change(vec![(from, None), (to, Some(node))]);
        self.release(replaced);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?;
        let name = self.new_name(to)?;
        self.change(vec![(name, Some(Node::File(file)))]);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let file = self.file(path)?;
        let name = self.name(path)?;
        self.change(vec![(name, None)]);
        self.release(Some(Node::File(file)));
        Ok(())
    }

    /// Gives the bytes of a node back that has lost its last name.
    fn release(&mut self, node: Option<Node>) {
        if let Some(node) = node
            && !self.names.values().any(|named_node| *named_node == node)
        {
            self.free = self.free.saturating_add(self.len(node));
        }
    }

    pub(super) fn remove_empty_dir(&mut self, path: &Path) -> io::Result<()> {
        if self.entries(self.dir(path)?).next().is_some() {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        let name = self.name(path)?;
        self.change(vec![(name, None)]);
        Ok(())
    }

    /// Makes the changes durable that touch a directory, and the earlier changes of the same names.
    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let dir = self.dir(path)?;
        let mut names: HashSet<Name> = HashSet::new();
        let mut synced = Vec::new();
        let mut pending = Vec::new();
        for change in std::mem::take(&mut self.pending).into_iter().rev() {
            if change
                .iter()
                .any(|(name, _)| name.0 == dir || names.contains(name))
            {
                names.extend(change.iter().map(|(name, _)| name.clone()));
                synced.push(change);
            } else {
                pending.push(change);
            }
        }
        for change in synced.iter().rev() {
            apply(&mut self.durable, change);
        }
        pending.reverse();
        self.pending = pending;
        Ok(())
    }
}

fn apply(names: &mut BTreeMap<Name, Node>, change: &Change) {
    for (name, node) in change {
        match node {
            Some(node) => names.insert(name.clone(), *node),
            None => names.remove(name),
        };
    }
}

fn components(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Ok(names)
}

/// Whether an operation, by its name and path, is a certain step.
pub(super) type IsStep = fn(&str, &str) -> bool;

/// The failure of an operation: its error, and its effect nevertheless.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) fault: Fault,
    pub(super) error: io::Error,
}

impl Failure {
    /// Whether the operation is performed.
    pub(super) const fn is_performed(&self) -> bool {
        matches!(self.fault, Fault::After)
    }
}

/// An operation that fails.
#[derive(Clone, Debug)]
struct Injected {
    number: u64,
    fault: Fault,
    error: ErrorKind,
}

/// The operations that fail.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    /// The number of the next operation.
    next: u64,
    /// Operations from this one on fail.
    stop: Option<u64>,
    /// One operation that fails.
    injected: Option<Injected>,
    /// The last operation that failed because of [`Faults::injected`]: its name and path.
    hit: Option<(String, String)>,
    /// The step at which operations begin to fail, and whether the step itself succeeds.
    crash: Option<(IsStep, bool)>,
}

impl Faults {
    pub(super) fn fail_after(&mut self, count: u64) {
        self.stop = Some(self.next + count);
    }

    pub(super) fn inject(&mut self, count: u64, fault: Fault, error: ErrorKind) {
        self.injected = Some(Injected {
            number: self.next + count,
            fault,
            error,
        });
        self.hit = None;
    }

    pub(super) fn hit(&self) -> Option<(String, String)> {
        self.hit.clone()
    }

    pub(super) fn crash_at(&mut self, is_step: IsStep, after: bool) {
        self.crash = Some((is_step, after));
    }

    pub(super) fn clear(&mut self) {
        (self.stop, self.injected, self.hit, self.crash) = (None, None, None, None);
    }

    pub(super) const fn operations(&self) -> u64 {
        self.next
    }

    /// Whether the last operation found the process killed.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop < self.next)
    }

    /// Counts an operation, and decides whether it fails.
    pub(super) fn step(&mut self, name: &str, path: &Path) -> Result<(), Failure> {
        let number = self.next;
        self.next += 1;
        let path = path.to_string_lossy();
        if let Some((_, after)) = self.crash.take_if(|(is_step, _)| is_step(name, &path)) {
            self.stop = Some(number + u64::from(after));
        }
        if self.is_stopped() {
            return Err(Failure {
                fault: Fault::Torn,
                error: io::Error::other("the process was killed"),
            });
        }
        match &self.injected {
            Some(injected) if injected.number == number => {
                // A process does not keep a lock that it failed to acquire.
                let fault = if name == "lock" {
                    Fault::Before
                } else {
                    injected.fault
                };
                let error = injected.error.into();
                self.hit = Some((name.to_owned(), path.into_owned()));
                Err(Failure { fault, error })
            }
            _ => Ok(()),
        }
    }
}
