//! The memory of fetched rows, from the thread of their connection until the scan returns them.
//!
//! Several fetches of a scan run at a time, and their rows wait for a caller that is slower than HBase.

use std::fmt;
use std::sync::Arc;

use crate::{FetchMemory, Row, Scan};

/// Counts the rows of a scan, if the scan wants it.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory(Option<Arc<dyn FetchMemory>>);

impl Memory {
    /// The memory of a scan.
    pub(super) fn from_scan(scan: &Scan) -> Self {
        Self(scan.memory.clone())
    }

    /// Counts rows until the guard is dropped.
    pub(super) fn hold<'r>(&self, rows: impl IntoIterator<Item = &'r Row>) -> Held {
        let Some(memory) = &self.0 else {
            return Held::default();
        };
        let bytes = rows.into_iter().map(Row::byte_len).sum::<usize>() as u64;
        memory.fetched(bytes);
        Held(vec![(Arc::clone(memory), bytes)])
    }
}

/// Counted rows.
#[derive(Default)]
#[must_use = "dropping it ends the count"]
pub(super) struct Held(Vec<(Arc<dyn FetchMemory>, u64)>);

impl Held {
    /// Takes in other rows.
    pub(super) fn merge(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (memory, bytes) in self.0.drain(..) {
            memory.returned(bytes);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Held").field(&self.0.len()).finish()
    }
}

/// Fetched rows, which are counted.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) rows: Vec<Row>,
    pub(super) held: Held,
}
