//! Recorded responses of a real OpenTSDB, and their comparison with ours.
//!
//! ```text
//!   record ─► a section of tests/testdata/recorded/*.jsonl: settings, requests, responses, cells
//!   replay ─► starts `tsdb serve` with these settings, sends the requests
//!          ─► exchange    one request
//!          ─► json        compares values, in the order of their keys where OpenTSDB has one
//!          ─► cells       compares the stored cells, byte for byte
//! ```
//!
//! `tests/hbase/record.sh` makes the files; `tests/hbase/record/recorder.py` describes their form and the markers in them.

mod cells;
mod exchange;
mod json;
mod record;
mod replay;

pub use record::{Section, sections};
pub use replay::{Difference, replay};
