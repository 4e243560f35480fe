//! The commands of `tsdb` that read or write many points: `import`, `export`, `compare`, `query` and `scan`.
//!
//! A crate of its own, as it is optimized; the other commands are not, and compile in a quarter of the time. The body of an
//! `async fn` is compiled where it is polled: a command is a pointer to its future, which is polled here.

pub mod copy;
pub mod import;
pub mod query;
pub mod scan;
