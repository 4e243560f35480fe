//! Circles of source files: files of one crate that use each other's items, directly or through others.
//!
//! ```text
//!   tokens    the words of a file, without comments and texts
//!   modules   the modules of a crate: files, items, imports, without tests
//!   uses      the items that a module uses, and the files that define them
//!   graph     the circles of the files
//! ```
//!
//! An edge leads from a file to another that defines an item it uses, by an import or by a path in its code. Imports
//! are followed through modules that only pass items on: `pub use` is no use of the item, unless the file's own code has its
//! name, and a child that imports `super::X` uses the file that defines `X`.
//!
//! A file and the files below it are one module in Rust: a parent composes its private children, and they share its
//! types. So a circle does not count if all its files are below one of them; that file is left out, and the search
//! repeats on the others. Every circle that is returned therefore has two files in different branches of the tree of modules.
//!
//! Methods are not resolved; a type is a use where it is named. Names that macros make are not resolved either, and
//! items for tests are left out.

mod graph;
mod modules;
mod tokens;
mod uses;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use self::modules::Modules;

/// A use of items of one file in another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The file that uses items.
    pub from: PathBuf,
    /// The file that defines them.
    pub to: PathBuf,
    /// The items with the lines of `from` that name them.
    pub items: BTreeSet<(String, usize)>,
}

/// Files that use each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    /// The edges between its files; the edges of the shortest circle come first.
    pub edges: Vec<Edge>,
}

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for edge in &self.edges {
            let items: Vec<String> = edge
                .items
                .iter()
                .map(|(item, line)| format!("{item} (line {line})"))
                .collect();
            let (from, to) = (edge.from.display(), edge.to.display());
            writeln!(f, "  {from} -> {to}: {}", items.join(", "))?;
        }
        Ok(())
    }
}

/// Returns the edges of a crate. `roots` are the files of its library and its programs, `read` returns the text of a file
/// if it exists.
///
/// # Errors
///
/// A root or the file of a module does not exist.
pub fn edges(roots: &[PathBuf], read: &dyn Fn(&Path) -> Option<String>) -> anyhow::Result<Vec<Edge>> {
    let modules = Modules::parse(roots, read)?;
    Ok(uses::edges(&modules))
}

/// Returns the circles of a crate's edges.
pub fn circles(edges: &[Edge]) -> Vec<Circle> {
    graph::circles(edges)
}

#[cfg(test)]
mod tests;
