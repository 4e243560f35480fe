//! The last scan: what is stored around each suspect.
//!
//! The names of a UID are found only by a scan of all names. The scan collects them for as many suspects as
//! [`MAX_BYTES`] hold, in the order of their UIDs; if there are more, it is repeated for the others.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use oxtsdb_row_store::Row;
use oxtsdb_schema::UidKind;

use super::report::Report;
use super::scan::{forward_cells, reverse_cells, rows_of};
use super::suspects::Suspects;
use crate::error::UidServiceError;
use crate::table::{ID, NAME, UidTable};

/// Memory of what is collected.
const MAX_BYTES: usize = 48 << 20;

/// Memory of the names of one UID. More names are found after these are repaired.
const MAX_RECORD_BYTES: usize = 4 << 20;

/// Memory of a key or an item without its bytes.
const ITEM_BYTES: usize = 64;

/// A suspect, as its bytes are stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspect {
    /// A UID; its items are the names that have it.
    Uid(UidKind, Vec<u8>),
    /// A name without a UID of the width in its forward cell; its items are the UIDs that have the name.
    Name(UidKind, Vec<u8>),
}

/// The collected items of a suspect.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) items: Vec<Vec<u8>>,
    bytes: usize,
}

/// Suspects with their items.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) records: BTreeMap<Suspect, Record>,
    bytes: usize,
    /// The first suspect that is collected.
    from: Option<Suspect>,
    /// The first suspect that did not fit.
    pub(super) rest: Option<Suspect>,
    max_bytes: usize,
}

impl Collected {
    /// Scans the table for suspects from `from` on.
    pub(super) async fn read(
        table: &UidTable,
        kinds: &[UidKind],
        suspects: &Suspects,
        from: Option<Suspect>,
        report: &mut Report,
    ) -> Result<Self, UidServiceError> {
        let mut collected = Self {
            from,
            max_bytes: MAX_BYTES,
            ..Self::default()
        };
        let mut rows = rows_of(table, ID).await?;
        while let Some(batch) = rows.try_next().await? {
            for row in &batch {
                collected.add_forward(table, kinds, suspects, row);
            }
            report.progress(batch.len()).await?;
        }
        let mut rows = rows_of(table, NAME).await?;
        while let Some(batch) = rows.try_next().await? {
            for row in &batch {
                collected.add_reverse(table, kinds, suspects, row);
            }
            report.progress(batch.len()).await?;
        }
        Ok(collected)
    }

    fn add_forward(&mut self, table: &UidTable, kinds: &[UidKind], suspects: &Suspects, row: &Row) {
        for (kind, cell) in forward_cells(row).filter(|(kind, _)| kinds.contains(kind)) {
            if cell.value.len() != table.layout().width(kind).bytes() {
                self.add(Suspect::Name(kind, row.key().to_vec()), None);
            } else if suspects.may_have_uid(kind, cell.value) {
                self.add(Suspect::Uid(kind, cell.value.to_vec()), Some(row.key()));
            }
        }
    }

    fn add_reverse(&mut self, table: &UidTable, kinds: &[UidKind], suspects: &Suspects, row: &Row) {
        for (kind, name) in reverse_cells(row).filter(|(kind, _)| kinds.contains(kind)) {
            if suspects.may_have_uid(kind, row.key()) {
                self.add(Suspect::Uid(kind, row.key().to_vec()), None);
            }
            let has_width = row.key().len() == table.layout().width(kind).bytes();
            if let Some(name) = name.filter(|name| has_width && suspects.may_have_name(kind, name)) {
                self.add(Suspect::Name(kind, name.to_vec()), Some(row.key()));
            }
        }
    }

    fn add(&mut self, suspect: Suspect, item: Option<&[u8]>) {
        let is_outside = self.from.as_ref().is_some_and(|from| suspect < *from)
            || self.rest.as_ref().is_some_and(|rest| suspect >= *rest);
        if is_outside {
            return;
        }
        let mut added = 0;
        let record = self.records.entry(suspect).or_insert_with_key(|suspect| {
            let (Suspect::Uid(_, key) | Suspect::Name(_, key)) = suspect;
            added = key.len() + 2 * ITEM_BYTES;
            Record {
                items: Vec::new(),
                bytes: added,
            }
        });
        if let Some(item) = item.filter(|_| record.bytes < MAX_RECORD_BYTES) {
            record.items.push(item.to_vec());
            record.bytes += item.len() + ITEM_BYTES;
            added += item.len() + ITEM_BYTES;
        }
        self.bytes += added;
        while self.bytes > self.max_bytes
            && self.records.len() > 1
            && let Some((last, record)) = self.records.pop_last()
        {
            self.bytes -= record.bytes;
            self.rest = Some(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(number: u8) -> Suspect {
        Suspect::Uid(UidKind::Metric, vec![0, 0, number])
    }

    #[test]
    fn keeps_the_first_suspects_that_fit() {
        let mut collected = Collected {
            max_bytes: 10 * (3 + 4 + 3 * ITEM_BYTES),
            from: Some(uid(5)),
            ..Collected::default()
        };
        for number in (0..100).rev() {
            collected.add(uid(number), Some(b"name"));
        }
        let kept: Vec<Suspect> = collected.records.into_keys().collect();
        assert_eq!(kept, (5..15).map(uid).collect::<Vec<_>>());
        assert_eq!(collected.rest, Some(uid(15)), "the next scan goes on here");
    }

    #[test]
    fn names_of_one_uid_are_bounded() {
        let mut collected = Collected {
            max_bytes: MAX_BYTES,
            ..Collected::default()
        };
        for _ in 0..300 {
            collected.add(uid(1), Some(&[b'x'; 30_000]));
        }
        assert!(collected.bytes < MAX_RECORD_BYTES + 40_000, "{}", collected.bytes);
    }
}
