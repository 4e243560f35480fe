//! Validation of requests against the data model, the same in every backend.

use std::time::Duration;

use crate::limits::{MAX_FAMILIES, MAX_QUALIFIER, MAX_ROW_KEY, MAX_VALUE};
use crate::{ColumnSelection, FamilyDef, MutationRef, RowMutations, Scan, StoreError, TableDef, WriteBatch};

fn invalid(detail: String) -> StoreError {
    StoreError::Invalid { detail }
}

/// Checks a table's definition.
pub(crate) fn check_table(table: &TableDef) -> Result<(), StoreError> {
    let count = table.families.len();
    if count == 0 || count > MAX_FAMILIES {
        return Err(invalid(format!(
            "table `{}` has {count} families, 1 to {MAX_FAMILIES} are allowed",
            table.name
        )));
    }
    for (index, family) in table.families.iter().enumerate() {
        let name = &family.name;
        if name.is_empty() || name.contains(':') || name.chars().any(|c| c.is_control() || c.is_whitespace())
        {
            return Err(invalid(format!(
                "`{name}` is not a family name, expected printable characters without `:`"
            )));
        }
        if family.max_versions == 0 {
            return Err(invalid(format!(
                "family `{name}` keeps 0 versions, at least 1 is needed"
            )));
        }
        if table
            .families
            .iter()
            .take(index)
            .any(|earlier| earlier.name == *name)
        {
            return Err(invalid(format!(
                "table `{}` names family `{name}` twice",
                table.name
            )));
        }
    }
    Ok(())
}

/// Checks that two definitions of a table agree; the error lists the differences.
pub(crate) fn check_same_table(existing: &TableDef, requested: &TableDef) -> Result<(), StoreError> {
    if existing.families == requested.families {
        return Ok(());
    }
    let describe = |families: &[FamilyDef]| {
        let families: Vec<String> = families
            .iter()
            .map(|family| match family.ttl {
                Some(ttl) => format!("{} ({} versions, ttl {ttl:?})", family.name, family.max_versions),
                None => format!("{} ({} versions)", family.name, family.max_versions),
            })
            .collect();
        families.join(", ")
    };
    Err(StoreError::TableDiffers {
        table: requested.name.clone(),
        detail: format!(
            "it has {}, requested are {}",
            describe(&existing.families),
            describe(&requested.families)
        ),
    })
}

/// The index of a family in its table.
pub(crate) fn family_index(table: &TableDef, family: &str) -> Result<u8, StoreError> {
    table
        .family_index(family)
        .and_then(|index| u8::try_from(index).ok())
        .ok_or_else(|| StoreError::NoSuchFamily {
            table: table.name.clone(),
            family: family.to_owned(),
        })
}

/// Checks a row key.
pub(crate) fn check_row_key(key: &[u8]) -> Result<(), StoreError> {
    check_row_key_up_to(MAX_ROW_KEY, key)
}

/// Checks a row key against a maximum length.
pub(crate) fn check_row_key_up_to(longest: usize, key: &[u8]) -> Result<(), StoreError> {
    match key.len() {
        0 => Err(invalid("row key is empty, it has at least 1 byte".to_owned())),
        length if length > longest => Err(invalid(format!(
            "row key has {length} bytes, at most {longest} are allowed"
        ))),
        _ => Ok(()),
    }
}

/// Checks a qualifier.
pub(crate) fn check_qualifier(qualifier: &[u8]) -> Result<(), StoreError> {
    if qualifier.len() > MAX_QUALIFIER {
        let length = qualifier.len();
        return Err(invalid(format!(
            "qualifier has {length} bytes, at most {MAX_QUALIFIER} are allowed"
        )));
    }
    Ok(())
}

/// Checks a value.
pub(crate) fn check_value(value: &[u8]) -> Result<(), StoreError> {
    if value.len() > MAX_VALUE {
        let length = value.len();
        return Err(invalid(format!(
            "value has {length} bytes, at most {MAX_VALUE} are allowed"
        )));
    }
    Ok(())
}

/// Checks a batch against its table. Returns the table's family index for each family of the batch.
pub(crate) fn check_batch(table: &TableDef, batch: &WriteBatch) -> Result<Vec<u8>, StoreError> {
    let families = batch
        .families()
        .iter()
        .map(|family| family_index(table, family))
        .collect::<Result<Vec<_>, _>>()?;
    for row in batch.iter() {
        check_row_key(row.key)?;
        check_mutations(&row, families.len())?;
    }
    Ok(families)
}

/// Checks the mutations of a row, but not its key, of a batch with `families` families.
pub(crate) fn check_mutations(row: &RowMutations<'_>, families: usize) -> Result<(), StoreError> {
    for mutation in row.iter() {
        let family = match mutation {
            MutationRef::Put {
                family,
                qualifier,
                value,
                ..
            } => {
                check_qualifier(qualifier)?;
                check_value(value)?;
                family
            }
            MutationRef::DeleteColumn {
                family, qualifier, ..
            } => {
                check_qualifier(qualifier)?;
                family
            }
            MutationRef::DeleteFamily { family } => family,
            MutationRef::DeleteRow => continue,
        };
        if family.index() >= families {
            return Err(invalid(format!(
                "family {} of a batch with {families} families",
                family.index()
            )));
        }
    }
    Ok(())
}

/// Checks the numeric parameters of a scan.
pub(crate) fn check_scan(scan: &Scan) -> Result<(), StoreError> {
    if scan.max_versions == 0 {
        return Err(invalid("max_versions is 0, at least 1 is needed".to_owned()));
    }
    if scan.batch_rows == 0 {
        return Err(invalid("batch_rows is 0, at least 1 is needed".to_owned()));
    }
    Ok(())
}

/// A [`ColumnSelection`] with families as indexes into the table's definition.
#[derive(Clone, Debug)]
pub(crate) enum Columns {
    /// All columns.
    All,
    /// All columns of one family.
    Family(u8),
    /// These, ascending.
    Some(Vec<(u8, Vec<u8>)>),
}

impl Columns {
    /// Resolves the family names.
    pub(crate) fn resolve(table: &TableDef, columns: &ColumnSelection) -> Result<Self, StoreError> {
        Ok(match columns {
            ColumnSelection::All => Self::All,
            ColumnSelection::Family(family) => {
                let family = family_index(table, family)?;
                // Tables of points have one family; `All` saves comparing each cell.
                if table.families.len() == 1 {
                    Self::All
                } else {
                    Self::Family(family)
                }
            }
            ColumnSelection::Columns(columns) => {
                let mut columns = columns
                    .iter()
                    .map(|(family, qualifier)| Ok((family_index(table, family)?, qualifier.clone())))
                    .collect::<Result<Vec<_>, StoreError>>()?;
                columns.sort();
                Self::Some(columns)
            }
        })
    }

    /// Whether a column is selected.
    pub(crate) fn contains(&self, family: u8, qualifier: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Family(requested) => *requested == family,
            Self::Some(columns) => columns
                .binary_search_by(|(requested, name)| (*requested, name.as_slice()).cmp(&(family, qualifier)))
                .is_ok(),
        }
    }
}

/// The oldest timestamp that has not expired at `now_ms`.
pub(crate) fn oldest_kept_ms(ttl: Option<Duration>, now_ms: i64) -> i64 {
    ttl.map_or(i64::MIN, |ttl| {
        now_ms.saturating_sub(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
    })
}

/// Whether a value satisfies the expectation of a condition.
///
/// Like HBase's check-and-put, an empty value and an absent cell are equal on both sides.
pub(crate) fn condition_holds(expected: Option<&[u8]>, current: Option<&[u8]>) -> bool {
    expected.unwrap_or_default() == current.unwrap_or_default()
}

/// The result of an increment.
pub(crate) fn incremented(current: Option<&[u8]>, amount: i64) -> Result<i64, StoreError> {
    let before = match current {
        None => 0,
        Some(value) => {
            let bytes = value
                .try_into()
                .map_err(|_| StoreError::NotACounter { length: value.len() })?;
            i64::from_be_bytes(bytes)
        }
    };
    Ok(before.wrapping_add(amount))
}
