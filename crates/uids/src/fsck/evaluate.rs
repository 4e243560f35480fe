//! Reads the cells around suspects afresh, and classifies them.

use std::collections::{BTreeMap, HashMap};

use oxtsdb_row_store::CellAddress;
use oxtsdb_schema::{PerKind, Uid, UidKind};

use super::cells::{self, StoredCell, forward, metadata, reverse};
use super::classify;
use super::collect::{Collected, Record, Suspect};
use super::facts::{NameFacts, UidFacts};
use super::report::Report;
use super::scan::Totals;
use crate::error::UidServiceError;
use crate::table::UidTable;

/// Suspects of one read.
const BATCH: usize = 256;

/// Bytes of the names of the suspects of one read, if there are several.
const BATCH_BYTES: usize = 1 << 20;

/// Reports the findings of all that was collected. Adds the UIDs that names get by repairs to the totals.
pub(super) async fn evaluate(
    table: &UidTable,
    collected: &Collected,
    totals: &mut PerKind<Totals>,
    report: &mut Report,
) -> Result<(), UidServiceError> {
    let records = &collected.records;
    let mut batch = Vec::new();
    let mut bytes = 0;
    for (suspect, record) in records {
        batch.push((suspect, record));
        bytes += record.items.iter().map(Vec::len).sum::<usize>();
        if batch.len() == BATCH || bytes > BATCH_BYTES {
            evaluate_batch(table, records, &std::mem::take(&mut batch), totals, report).await?;
            bytes = 0;
        }
    }
    evaluate_batch(table, records, &batch, totals, report).await
}

/// Cells that were read, by their address.
struct Cells(HashMap<(Vec<u8>, String, Vec<u8>), Option<StoredCell>>);

impl Cells {
    fn key(cell: CellAddress) -> (Vec<u8>, String, Vec<u8>) {
        (cell.row, cell.family, cell.qualifier)
    }

    /// Reads the cells that were not read before.
    async fn read(
        &mut self,
        table: &UidTable,
        mut addresses: Vec<CellAddress>,
    ) -> Result<(), UidServiceError> {
        addresses.retain(|cell| !self.0.contains_key(&Self::key(cell.clone())));
        let stored_cells = cells::read(table, &addresses).await?;
        let keys = addresses.into_iter().map(Self::key);
        self.0.extend(keys.zip(stored_cells));
        Ok(())
    }

    fn get(&self, cell: CellAddress) -> Option<&StoredCell> {
        self.0.get(&Self::key(cell))?.as_ref()
    }

    fn value(&self, cell: Option<CellAddress>) -> Option<Vec<u8>> {
        self.get(cell?).map(|cell| cell.value.clone())
    }
}

async fn evaluate_batch(
    table: &UidTable,
    records: &BTreeMap<Suspect, Record>,
    batch: &[(&Suspect, &Record)],
    totals: &mut PerKind<Totals>,
    report: &mut Report,
) -> Result<(), UidServiceError> {
    let mut cells = Cells(HashMap::new());
    let mut addresses = Vec::new();
    for (suspect, record) in batch {
        match suspect {
            Suspect::Uid(kind, uid) => {
                addresses.extend([reverse(*kind, uid), metadata(*kind, uid)]);
                addresses.extend(record.items.iter().filter_map(|name| forward(*kind, name)));
            }
            Suspect::Name(kind, name) => {
                addresses.extend(forward(*kind, name));
                for uid in &record.items {
                    addresses.extend([reverse(*kind, uid), metadata(*kind, uid)]);
                }
            }
        }
    }
    cells.read(table, addresses).await?;
    let mut addresses = Vec::new();
    for (suspect, _) in batch {
        match suspect {
            Suspect::Uid(kind, uid) => {
                let name = cells.value(Some(reverse(*kind, uid)));
                addresses.extend(name.and_then(|name| forward(*kind, &name)));
            }
            Suspect::Name(kind, name) => {
                let uid = cells.value(forward(*kind, name)).filter(|uid| !uid.is_empty());
                addresses.extend(uid.map(|uid| reverse(*kind, &uid)));
            }
        }
    }
    cells.read(table, addresses).await?;
    for (suspect, record) in batch {
        let findings = match suspect {
            Suspect::Uid(kind, uid) => classify::uid_findings(&uid_facts(table, *kind, uid, record, &cells)),
            Suspect::Name(kind, name) => match name_facts(table, records, (*kind, name), record, &cells) {
                Some(facts) => {
                    if let Some(Ok(uid)) = facts.claims.first().map(|(uid, _)| Uid::from_bytes(uid)) {
                        totals.get_mut(*kind).add(uid);
                    }
                    classify::name_findings(&facts, table.layout().width(*kind).bytes())
                }
                None => Vec::new(),
            },
        };
        for finding in findings {
            report.push(finding).await?;
        }
    }
    Ok(())
}

/// `None` if the name has a UID of the layout's width meanwhile.
fn name_facts(
    table: &UidTable,
    records: &BTreeMap<Suspect, Record>,
    (kind, name): (UidKind, &[u8]),
    record: &Record,
    cells: &Cells,
) -> Option<NameFacts> {
    let width = table.layout().width(kind).bytes();
    let value = cells.value(forward(kind, name))?;
    if value.len() == width {
        return None;
    }
    let is_free = |uid: &[u8]| {
        let of_uid = records.get(&Suspect::Uid(kind, uid.to_vec()));
        of_uid.is_none_or(|record| record.items.is_empty())
    };
    let has_name = |uid: &[u8]| cells.value(Some(reverse(kind, uid))).as_deref() == Some(name);
    let mut claims: Vec<(Vec<u8>, Option<Vec<u8>>)> = record
        .items
        .iter()
        .filter(|uid| has_name(uid) && is_free(uid))
        .map(|uid| (uid.clone(), cells.value(Some(metadata(kind, uid)))))
        .collect();
    claims.sort_unstable();
    Some(NameFacts {
        kind,
        name: name.to_vec(),
        reverse: cells.value((!value.is_empty()).then(|| reverse(kind, &value))),
        value,
        claims,
    })
}

fn uid_facts(table: &UidTable, kind: UidKind, uid: &[u8], record: &Record, cells: &Cells) -> UidFacts {
    let width = table.layout().width(kind).bytes();
    let name = cells.value(Some(reverse(kind, uid)));
    let back = name.as_ref().and_then(|name| forward(kind, name));
    let back = cells.value(back);
    // The names that still have this UID, and the one that has it since the scan.
    let mut names: Vec<(Vec<u8>, i64)> = record
        .items
        .iter()
        .chain(
            name.as_ref()
                .filter(|_| back.as_deref() == Some(uid) && uid.len() == width),
        )
        .filter_map(|name| {
            let cell = cells.get(forward(kind, name)?)?;
            (cell.value == uid).then(|| (name.clone(), cell.timestamp_ms))
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    UidFacts {
        kind,
        uid: uid.to_vec(),
        has_width: uid.len() == width,
        names,
        reverse: name,
        back_has_width: back.as_ref().is_some_and(|other| other.len() == width),
        back,
        metadata: cells.value(Some(metadata(kind, uid))),
    }
}
