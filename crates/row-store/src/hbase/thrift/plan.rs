//! Splits a batch into calls that the gateway can perform.
//!
//! Within one call the gateway applies all puts before all deletes, and all of them have one timestamp. A call
//! therefore has either puts of one timestamp or deletes. The mutations of each row are collected from the
//! whole batch and divided into *steps*:
//!
//! ```text
//!   put a, put b, delete c, put d        the mutations of a row
//!   [put a, put b]  [delete c]  [put d]  its steps
//! ```
//!
//! A *round* has one step of each row, so all of its calls may run concurrently and in any order. Nearly every
//! batch is a single round of puts without a timestamp.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use rustc_hash::FxBuildHasher;

use crate::hbase::checks::timestamp_of;
use crate::{MutationRef, WriteBatch};

/// The most cells of a call, unless a single row has more.
const CELLS_PER_CALL: usize = 1_000;
/// The most bytes of a call's keys, qualifiers and values, unless a single row has more.
const BYTES_PER_CALL: usize = 1 << 20;

/// A call of the gateway.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Call<'a> {
    /// Rows, each once, with puts or deletes.
    pub(super) rows: Vec<(&'a [u8], Vec<MutationRef<'a>>)>,
    /// The timestamp of all puts or deletes; `None`: the store's time.
    pub(super) timestamp_ms: Option<i64>,
    cells: usize,
    bytes: usize,
}

/// Calls that may run concurrently.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Round<'a> {
    /// Puts and deletes of columns and families.
    pub(super) calls: Vec<Call<'a>>,
    /// Rows to delete, with one call each.
    pub(super) deleted_rows: Vec<&'a [u8]>,
}

/// Kinds of mutations that one call cannot mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Put,
    Delete,
    DeleteRow,
}

/// The mutations of one row that one round can apply.
struct Step<'a> {
    row: &'a [u8],
    kind: Kind,
    mutations: Vec<MutationRef<'a>>,
}

/// The rounds of a batch, to be run one after the other.
pub(super) fn rounds(batch: &WriteBatch) -> Vec<Round<'_>> {
    let mut rounds: Vec<Vec<Step<'_>>> = Vec::new();
    // The last step of each row: its round and its index within it.
    let mut last: HashMap<&[u8], (usize, usize), FxBuildHasher> = HashMap::default();
    for row in batch.iter() {
        for mutation in row.iter() {
            let kind = kind(&mutation);
            let round = match last.get(row.key) {
                Some(&(round, place)) => {
                    let step = &mut rounds[round][place];
                    if step.kind == kind {
                        step.mutations.push(mutation);
                        continue;
                    }
                    round + 1
                }
                None => 0,
            };
            if rounds.len() == round {
                rounds.push(Vec::new());
            }
            last.insert(row.key, (round, rounds[round].len()));
            rounds[round].push(Step {
                row: row.key,
                kind,
                mutations: vec![mutation],
            });
        }
    }
    rounds.into_iter().map(Round::from_steps).collect()
}

fn kind(mutation: &MutationRef<'_>) -> Kind {
    match mutation {
        MutationRef::Put { .. } => Kind::Put,
        MutationRef::DeleteColumn { .. } | MutationRef::DeleteFamily { .. } => Kind::Delete,
        MutationRef::DeleteRow => Kind::DeleteRow,
    }
}

impl<'a> Round<'a> {
    fn from_steps(steps: Vec<Step<'a>>) -> Self {
        let mut round = Self::default();
        // The calls being filled, by timestamp.
        let mut deletes: BTreeMap<Option<i64>, Call<'a>> = BTreeMap::new();
        let mut puts: BTreeMap<Option<i64>, Call<'a>> = BTreeMap::new();
        for step in steps {
            let (open, mutations) = match step.kind {
                Kind::DeleteRow => {
                    round.deleted_rows.push(step.row);
                    continue;
                }
                Kind::Delete => (&mut deletes, step.mutations),
                Kind::Put => (&mut puts, without_overwritten(step.mutations)),
            };
            for (timestamp_ms, mutations) in by_timestamp(mutations) {
                let call = open.entry(timestamp_ms).or_insert_with(|| Call {
                    timestamp_ms,
                    ..Call::default()
                });
                call.add(step.row, mutations, &mut round.calls);
            }
        }
        let open = puts.into_values().chain(deletes.into_values());
        round.calls.extend(open.filter(|call| !call.rows.is_empty()));
        round
    }
}

impl<'a> Call<'a> {
    /// Adds all mutations of a row; moves a call that is full without them to `full`.
    fn add(&mut self, row: &'a [u8], mutations: Vec<MutationRef<'a>>, full: &mut Vec<Call<'a>>) {
        let cells = mutations.len();
        let bytes = row.len() + mutations.iter().map(byte_len).sum::<usize>();
        let is_full = self.cells + cells > CELLS_PER_CALL || self.bytes + bytes > BYTES_PER_CALL;
        if is_full && !self.rows.is_empty() {
            let next = Call {
                timestamp_ms: self.timestamp_ms,
                ..Call::default()
            };
            full.push(std::mem::replace(self, next));
        }
        self.rows.push((row, mutations));
        self.cells += cells;
        self.bytes += bytes;
    }
}

fn byte_len(mutation: &MutationRef<'_>) -> usize {
    match mutation {
        MutationRef::Put { qualifier, value, .. } => qualifier.len() + value.len(),
        MutationRef::DeleteColumn { qualifier, .. } => qualifier.len(),
        MutationRef::DeleteFamily { .. } | MutationRef::DeleteRow => 0,
    }
}

/// Drops all but the last of several puts to one cell: within one call HBase would keep an arbitrary one.
fn without_overwritten(mut puts: Vec<MutationRef<'_>>) -> Vec<MutationRef<'_>> {
    if puts.len() > 1 {
        let mut seen = HashSet::with_capacity_and_hasher(puts.len(), FxBuildHasher);
        puts.reverse();
        puts.retain(|put| match *put {
            MutationRef::Put {
                family,
                qualifier,
                timestamp_ms,
                ..
            } => seen.insert((family.index(), qualifier, timestamp_ms)),
            _ => true,
        });
        puts.reverse();
    }
    puts
}

/// Groups puts or deletes of one row by timestamp.
fn by_timestamp(mutations: Vec<MutationRef<'_>>) -> Vec<(Option<i64>, Vec<MutationRef<'_>>)> {
    let first = mutations.first().and_then(timestamp_of);
    if mutations.iter().all(|mutation| timestamp_of(mutation) == first) {
        return vec![(first, mutations)];
    }
    let mut groups: BTreeMap<Option<i64>, Vec<MutationRef<'_>>> = BTreeMap::new();
    for mutation in mutations {
        groups.entry(timestamp_of(&mutation)).or_default().push(mutation);
    }
    groups.into_iter().collect()
}

#[cfg(test)]
mod tests;
