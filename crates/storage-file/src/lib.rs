//! Files of the embedded stores: what makes bytes durable, and how lost or damaged files are noticed.
//!
//! | Module | Content |
//! |---|---|
//! | [`disk`] | the file system as a trait, so that tests can lose power between any two operations |
//! | [`folder`] | the folder of a store: format, lock, atomic replacement of files |
//! | [`journal`] | committed frames that are in no other file yet, and their recovery |
//! | [`varint`] | variable-length integers |
//!
//! A store is a folder with a journal and immutable files. A commit is one frame of the journal and one sync. A file's
//! name has the first and last number of the commits that it holds; renaming it into place makes it count. Files that
//! another one covers are obsolete.

pub mod disk;
mod error;
pub mod folder;
pub mod journal;
pub mod varint;

pub use error::StorageError;
