//! Copies of all tables: `tsdb export`, `tsdb import --into` and `tsdb compare`.
//!
//! ```text
//!   store ── scan ──► rows ──► segments, manifest ──► rows ── put ──► store        each store: HBase or embedded
//!                      └──────────────── compare ──────┴───────────────┘
//! ```
//!
//! These commands open stores themselves and call no server. The format is described in `docs/export.md`.

pub mod compare;
pub mod export;
mod hbase_place;
mod import;
mod manifest;
mod place;
mod roles;
mod rollups;
mod segment;
mod source;

pub(crate) use import::{IntoArgs, run as run_import};
