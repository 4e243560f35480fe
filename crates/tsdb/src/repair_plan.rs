//! Plans of repairs, and records of how to undo them: files of JSON lines that `tsdb fsck` and `tsdb uid fsck` write and
//! apply.
//!
//! ```text
//!   --plan PLAN                findings of the server ──► PLAN
//!   --apply PLAN --undo UNDO   PLAN ──► inverse repairs to UNDO, synced ──► repairs to the server; a batch at a time
//!   --apply UNDO               UNDO, from its end ──► repairs to the server
//! ```
//!
//! The two commands differ in what a repair changes and how a line has it: [`Repair`], which the repairs of rows and of
//! UIDs implement. Files, order, undo and report are the same.

mod apply;
mod file;
mod findings;
mod plan;
mod rejected;
mod repair;
mod undo;

pub(crate) use apply::apply;
pub(crate) use file::Hex;
pub(crate) use findings::{left_alone, table, type_name};
pub(crate) use plan::PlanWriter;
pub(crate) use repair::{Applied, Repair, value_bytes};
#[cfg(test)]
pub(crate) use undo::tests::assert_read_from_its_end;
