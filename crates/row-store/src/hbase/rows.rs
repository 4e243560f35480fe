//! Conversion of the gateway's rows.

use std::sync::Arc;

use hbase_thrift::hbase::{TCell, TRowResult};

use super::error::CallError;
use crate::limits::MAX_QUALIFIER;
use crate::{Row, RowBuilder};

/// A cell of a response: family, qualifier, timestamp, value.
type Cell<'a> = (&'a str, &'a [u8], i64, &'a [u8]);

/// The cells of one row, in one or more parts.
#[derive(Debug, Default)]
pub(super) struct RawRow {
    pub(super) key: Vec<u8>,
    pub(super) parts: Vec<TRowResult>,
}

impl RawRow {
    /// A row of one part.
    pub(super) fn new(mut part: TRowResult) -> Self {
        Self {
            key: part.row.take().unwrap_or_default(),
            parts: vec![part],
        }
    }

    /// The converted row; `None` if it has no cells.
    ///
    /// HBase orders families by name, regardless of the table's definition; so do the cells.
    pub(super) fn into_row(self, gateway: &str) -> Result<Option<Row>, CallError> {
        let strange = |detail: String| CallError::ConnectionLost {
            gateway: gateway.to_owned(),
            detail,
        };
        let mut cells: Vec<Cell<'_>> = Vec::new();
        for part in &self.parts {
            let sorted = part.sorted_columns.iter().flatten();
            let sorted = sorted.map(|column| (column.column_name.as_ref(), column.cell.as_ref()));
            let mapped = part.columns.iter().flatten();
            let mapped = mapped.map(|(name, cell)| (Some(name), Some(cell)));
            for (name, cell) in sorted.chain(mapped) {
                let cell = parse(name, cell).map_err(strange)?;
                cells.push(cell);
            }
        }
        // They are sorted unless one family's name is a prefix of another's.
        if !cells.is_sorted_by_key(|(family, qualifier, ..)| (*family, *qualifier)) {
            cells.sort_by_key(|(family, qualifier, ..)| (*family, *qualifier));
        }
        let mut families: Vec<String> = Vec::new();
        for (family, ..) in &cells {
            if families.last().is_none_or(|last| last != family) {
                families.push((*family).to_owned());
            }
        }
        if families.len() > usize::from(u8::MAX) {
            return Err(strange(format!("a row with {} families", families.len())));
        }
        let mut row = RowBuilder::new(&self.key, Arc::from(families.as_slice()));
        row.reserve(
            cells.len(),
            cells
                .iter()
                .map(|(_, qualifier, _, value)| qualifier.len() + value.len())
                .sum(),
        );
        let mut index = 0;
        for (family, qualifier, timestamp_ms, value) in cells {
            while families[index] != family {
                index += 1;
            }
            row.push(index, qualifier, timestamp_ms, value);
        }
        Ok(row.finish())
    }
}

/// Splits a column and checks what [`RowBuilder`] requires.
fn parse<'a>(name: Option<&'a Vec<u8>>, cell: Option<&'a TCell>) -> Result<Cell<'a>, String> {
    let (Some(name), Some(cell)) = (name, cell) else {
        return Err("a cell without a name or a value".to_owned());
    };
    let split = name.iter().position(|byte| *byte == b':');
    let (family, qualifier) = split
        .map(|at| (&name[..at], &name[at + 1..]))
        .ok_or_else(|| format!("a column `{}` without a family", name.escape_ascii()))?;
    let family = std::str::from_utf8(family)
        .map_err(|_| format!("a column family `{}` that is not UTF-8", family.escape_ascii()))?;
    if qualifier.len() > MAX_QUALIFIER {
        return Err(format!(
            "a qualifier of {} bytes, at most {MAX_QUALIFIER} can be read",
            qualifier.len()
        ));
    }
    let value = cell.value.as_deref().unwrap_or_default();
    Ok((family, qualifier, cell.timestamp.unwrap_or_default(), value))
}
