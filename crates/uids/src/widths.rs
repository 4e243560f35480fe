//! Checks the configured UID widths against the stored UIDs.
//!
//! Storage does not record the widths, and a wrong setting loses data: names that have a UID cannot be read,
//! and new names get UIDs that differ from those in the row keys of points. At its start the service therefore
//! samples stored UIDs, with a constant number of reads for tables of any size:
//!
//! - the reverse mappings of the first and the last `NUMBERS` numbers that each kind's counter has reserved,
//!   in all possible widths: the length of the row key is the width;
//! - the forward mappings of the first `NAMES` names, the only sample of random UIDs.
//!
//! If most of a kind's UIDs have another width than the configured one, the start fails. If only some have,
//! the table was once written with another width: the check logs a warning, and a look-up of such a name fails
//! with the stored width.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{ColumnSelection, Scan, StoreError, TableName};
use oxtsdb_schema::{Name, PerKind, Uid, UidKind, UidWidth};
use tracing::warn;

use crate::error::UidServiceError;
use crate::table::{FIRST_NAME_ROW, ID, NAME, UidTable, value};

/// Numbers that are sampled at each end of a counter's range.
const NUMBERS: u64 = 8;

/// Names that are sampled.
const NAMES: u64 = 1000;

/// Why the service cannot run on a table.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WidthError {
    /// The table was written with another width.
    #[error(
        "table `{table}`: `{name}` of `{kind}` has a UID of {bytes} bytes, but {} is {configured}: set it to {bytes}",
        setting(*.kind)
    )]
    Differs {
        /// The table.
        table: TableName,
        /// The kind.
        kind: UidKind,
        /// A name with such a UID.
        name: Name,
        /// Bytes of its UID.
        bytes: usize,
        /// The configured width.
        configured: UidWidth,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The flag that sets the width of a kind.
fn setting(kind: UidKind) -> &'static str {
    match kind {
        UidKind::Metric => "--uid-width-metric",
        UidKind::Tagk => "--uid-width-tagk",
        UidKind::Tagv => "--uid-width-tagv",
    }
}

/// Sampled UIDs by their length in bytes: their count, and the name of one.
type Sampled = BTreeMap<usize, (usize, Name)>;

/// Compares the table with its layout.
///
/// # Errors
///
/// Most UIDs of a kind have another width, or the store fails.
pub async fn check(table: &UidTable) -> Result<(), WidthError> {
    let mut sampled = PerKind::<Sampled>::default();
    sample_numbers(table, &mut sampled).await?;
    sample_names(table, &mut sampled).await?;
    for kind in UidKind::ALL {
        let configured = table.layout().width(kind);
        let sampled = sampled.get(kind);
        let matching = sampled.get(&configured.bytes()).map_or(0, |(count, _)| *count);
        let others = sampled.iter().filter(|(width, _)| **width != configured.bytes());
        let Some((bytes, (differing, name))) = others.max_by_key(|(_, (count, _))| *count) else {
            continue;
        };
        if *differing > matching {
            return Err(WidthError::Differs {
                table: table.name().clone(),
                kind,
                name: name.clone(),
                bytes: *bytes,
                configured,
            });
        }
        warn!(%kind, width = %configured, other_width = bytes, %name, "some UIDs have another width: they were assigned with other settings and cannot be used");
    }
    Ok(())
}

async fn sample_numbers(table: &UidTable, sampled: &mut PerKind<Sampled>) -> Result<(), StoreError> {
    let mut numbers: Vec<u64> = (1..=NUMBERS).collect();
    for kind in UidKind::ALL {
        match table.counter(kind).await {
            Ok(counter) => {
                let last = counter.number;
                numbers.extend(last.saturating_sub(NUMBERS).max(NUMBERS) + 1..=last);
            }
            Err(UidServiceError::Store(error)) => return Err(error),
            // Existing names can still be read.
            Err(error) => warn!(%error, "new names of this kind will be rejected"),
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    let widths = (1..=8).filter_map(|bytes| UidWidth::new(bytes).ok());
    let uids = widths.flat_map(|width| numbers.iter().map(move |number| Uid::from_number(*number, width)));
    let keys: Vec<Vec<u8>> = uids.flatten().map(|uid| uid.as_bytes().to_vec()).collect();
    let rows = table
        .store()
        .get_rows(table.name(), &keys, &mappings(NAME), None)
        .await?;
    for row in rows.iter().flatten() {
        for kind in UidKind::ALL {
            if let Some(Ok(name)) = value(row, NAME, kind).map(Name::from_stored) {
                note(sampled.get_mut(kind), row.key().len(), &name);
            }
        }
    }
    Ok(())
}

async fn sample_names(table: &UidTable, sampled: &mut PerKind<Sampled>) -> Result<(), StoreError> {
    let mut scan = Scan::range(FIRST_NAME_ROW, []);
    // Selects all kinds: the store might read the whole table to find the first name of a rare kind.
    scan.columns = mappings(ID);
    scan.limit = Some(NAMES);
    scan.batch_rows = 256;
    let mut rows = table.store().scan(table.name(), scan).await?;
    while let Some(batch) = rows.try_next().await? {
        for row in batch {
            let Ok(name) = Name::from_stored(row.key()) else {
                continue;
            };
            for kind in UidKind::ALL {
                if let Some(uid) = value(&row, ID, kind) {
                    note(sampled.get_mut(kind), uid.len(), &name);
                }
            }
        }
    }
    Ok(())
}

fn note(sampled: &mut Sampled, width: usize, name: &Name) {
    sampled.entry(width).or_insert_with(|| (0, name.clone())).0 += 1;
}

/// Selects the mappings of all kinds in one family.
fn mappings(family: &str) -> ColumnSelection {
    let column = |kind: UidKind| (family.to_owned(), kind.qualifier().to_vec());
    ColumnSelection::Columns(UidKind::ALL.map(column).into())
}
