//! The commands of `tsdb` that read or write many points: `import`, `export`, `compare`, `query` and `scan`.
//!
//! A crate of its own, as it is optimized; the other commands are not, and compile in a quarter of the time. The body of an
//! `async fn` is compiled where it is polled: a command is a pointer to its future, which is polled here.

#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "help texts of commands have brackets"
)]

pub mod copy;
pub mod import;
pub mod query;
pub mod scan;
