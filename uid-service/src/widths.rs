//! Whether the table was written with the UID widths that are set.
//!
//! Nothing in storage records a width, and one that is set wrong loses data: names that have a UID
//! cannot be read, and new ones get UIDs beside those that points are stored under. So a start looks
//! at UIDs that are there, with a few reads however large the table is:
//!
//! - the reverse mappings of the first and the last [`NUMBERS`] numbers that each kind's counter has
//!   handed out, in every width that there is: the length of their row key is the width;
//! - the forward mappings of the first [`NAMES`] names, which are all that tells of random UIDs.
//!
//! If most of a kind's UIDs have another width than the set one, the table is refused. If only some
//! have, it was once written with another width: that is told in the log, and `tsdb uid lookup` of
//! such a name fails with what is stored.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{ColumnSelection, Scan, StoreError, TableName};
use oxtsdb_schema::{Name, Uid, UidKind, UidWidth};
use tracing::warn;

use crate::error::UidServiceError;
use crate::layout::PerKind;
use crate::table::{FIRST_NAME_ROW, ID, NAME, UidTable, value};

/// Numbers at each end of what a counter has handed out that are looked at.
const NUMBERS: u64 = 8;

/// Names whose UIDs are looked at.
const NAMES: u64 = 1000;

/// Why the service cannot run on a table.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WidthError {
    /// The table was written with another width.
    #[error(
        "table `{table}`: `{name}` of `{kind}` has a UID of {found} bytes, but {} is {configured}: set it to {found}",
        setting(*.kind)
    )]
    Differs {
        /// The table.
        table: TableName,
        /// The kind.
        kind: UidKind,
        /// A name whose UID was looked at.
        name: Name,
        /// Bytes of its UID.
        found: usize,
        /// The width of the settings.
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

/// UIDs that were looked at, by their length in bytes: how many, and the name of one.
type Seen = BTreeMap<usize, (usize, Name)>;

/// Compares the table with its layout.
///
/// # Errors
///
/// Most UIDs of a kind have another width, or the store fails.
pub(crate) async fn check(table: &UidTable) -> Result<(), WidthError> {
    let mut seen = PerKind::<Seen>::default();
    look_at_numbers(table, &mut seen).await?;
    look_at_names(table, &mut seen).await?;
    for kind in UidKind::ALL {
        let configured = table.layout().width(kind);
        let seen = seen.get(kind);
        let right = seen.get(&configured.bytes()).map_or(0, |(count, _)| *count);
        let others = seen.iter().filter(|(width, _)| **width != configured.bytes());
        let Some((found, (wrong, name))) = others.max_by_key(|(_, (count, _))| *count) else {
            continue;
        };
        if *wrong > right {
            return Err(WidthError::Differs {
                table: table.name().clone(),
                kind,
                name: name.clone(),
                found: *found,
                configured,
            });
        }
        warn!(%kind, width = %configured, other_width = found, %name, "some UIDs have another width: they were assigned with other settings and cannot be used");
    }
    Ok(())
}

async fn look_at_numbers(table: &UidTable, seen: &mut PerKind<Seen>) -> Result<(), StoreError> {
    let mut numbers: Vec<u64> = (1..=NUMBERS).collect();
    for kind in UidKind::ALL {
        match table.counter(kind).await {
            Ok(counter) => {
                let last = counter.number;
                numbers.extend(last.saturating_sub(NUMBERS).max(NUMBERS) + 1..=last);
            }
            Err(UidServiceError::Store(error)) => return Err(error),
            // Names can still be read.
            Err(error) => warn!(%error, "new names of this kind will be refused"),
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    let widths = (1..=8).filter_map(|bytes| UidWidth::new(bytes).ok());
    let uids = widths.flat_map(|width| numbers.iter().map(move |number| Uid::from_number(*number, width)));
    let keys: Vec<Vec<u8>> = uids.flatten().map(|uid| uid.as_bytes().to_vec()).collect();
    let rows = table
        .store()
        .get_rows(table.name(), &keys, &mappings(NAME))
        .await?;
    for row in rows.iter().flatten() {
        for kind in UidKind::ALL {
            if let Some(Ok(name)) = value(row, NAME, kind).map(Name::from_stored) {
                note(seen.get_mut(kind), row.key().len(), &name);
            }
        }
    }
    Ok(())
}

async fn look_at_names(table: &UidTable, seen: &mut PerKind<Seen>) -> Result<(), StoreError> {
    let mut scan = Scan::range(FIRST_NAME_ROW, []);
    // Not by kind: to find the first name of a rare kind, the store might read all others.
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
                    note(seen.get_mut(kind), uid.len(), &name);
                }
            }
        }
    }
    Ok(())
}

fn note(seen: &mut Seen, width: usize, name: &Name) {
    seen.entry(width).or_insert_with(|| (0, name.clone())).0 += 1;
}

/// The mappings of all kinds in one family.
fn mappings(family: &str) -> ColumnSelection {
    let column = |kind: UidKind| (family.to_owned(), kind.qualifier().to_vec());
    ColumnSelection::Columns(UidKind::ALL.map(column).into())
}
