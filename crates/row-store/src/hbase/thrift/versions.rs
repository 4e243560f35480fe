//! Older versions of cells.
//!
//! A scan over Thrift1 returns only the newest version of a cell. If a scan requests more and the family keeps
//! more, each column is read again on its own.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::stream::{StreamExt, TryStreamExt, iter};
use hbase_thrift::hbase::{TCell, THbaseSyncClient};

use super::connection::Connection;
use super::error::{CallError, Idempotency};
use super::pool::Pool;
use super::{raw, tables};
use crate::{Row, RowBuilder, TableName};

/// Columns read per request.
const COLUMNS_PER_REQUEST: usize = 100;

/// The number of versions to read, and the families that have more than the newest.
#[derive(Debug, Default)]
pub(super) struct Versions {
    requested: i32,
    /// The families that keep more than one version.
    families: Vec<String>,
}

/// A column: family, qualifier.
type Column = (String, Vec<u8>);

impl Versions {
    /// The versions that a scan of up to `max_versions` has to read in addition.
    pub(super) async fn load(pool: &Pool, table: &TableName, max_versions: u32) -> Result<Self, CallError> {
        if max_versions <= 1 {
            return Ok(Self::default());
        }
        let def = tables::find(pool, table).await?;
        let families = def.into_iter().flat_map(|def| def.families);
        Ok(Self {
            requested: i32::try_from(max_versions).unwrap_or(i32::MAX),
            families: families
                .filter(|family| family.max_versions > 1)
                .map(|family| family.name)
                .collect(),
        })
    }

    /// Adds older versions to rows of newest versions.
    pub(super) async fn complete(
        &self,
        pool: &Pool,
        table: &TableName,
        rows: Vec<Row>,
    ) -> Result<Vec<Row>, CallError> {
        if self.families.is_empty() {
            return Ok(rows);
        }
        let completed: Vec<_> = rows
            .into_iter()
            .map(|row| self.complete_row(pool, table, row).boxed())
            .collect();
        let rows: Vec<Option<Row>> = iter(completed)
            .buffered(pool.config().connections)
            .try_collect()
            .await?;
        Ok(rows.into_iter().flatten().collect())
    }

    async fn complete_row(&self, pool: &Pool, table: &TableName, row: Row) -> Result<Option<Row>, CallError> {
        let columns: Vec<Column> = row
            .cells()
            .filter(|cell| self.families.iter().any(|family| family == cell.family))
            .map(|cell| (cell.family.to_owned(), cell.qualifier.to_vec()))
            .collect();
        let mut all_versions: HashMap<Column, Vec<TCell>> = HashMap::new();
        for columns in columns.chunks(COLUMNS_PER_REQUEST) {
            all_versions.extend(self.read(pool, table, row.key(), columns).await?);
        }
        let mut families: Vec<String> = row.cells().map(|cell| cell.family.to_owned()).collect();
        families.dedup();
        let mut completed = RowBuilder::new(row.key(), Arc::from(families.as_slice()));
        for cell in row.cells() {
            let Some(family) = families.iter().position(|family| family == cell.family) else {
                continue;
            };
            match all_versions.get(&(cell.family.to_owned(), cell.qualifier.to_vec())) {
                Some(versions) => {
                    for version in versions {
                        let value = version.value.as_deref().unwrap_or_default();
                        completed.push(
                            family,
                            cell.qualifier,
                            version.timestamp.unwrap_or_default(),
                            value,
                        );
                    }
                }
                None => completed.push(family, cell.qualifier, cell.timestamp_ms, cell.value),
            }
        }
        Ok(completed.finish())
    }

    /// The versions of columns of one row, newest first.
    async fn read(
        &self,
        pool: &Pool,
        table: &TableName,
        row: &[u8],
        columns: &[Column],
    ) -> Result<Vec<(Column, Vec<TCell>)>, CallError> {
        let requested = self.requested;
        let request = || {
            let (table, row, columns) = (raw::table_name(table), row.to_vec(), columns.to_vec());
            move |connection: &mut Connection, deadline| {
                let mut results = Vec::with_capacity(columns.len());
                for (family, qualifier) in columns {
                    let (table, row) = (table.clone(), row.clone());
                    let column = raw::column(&family, &qualifier);
                    let versions = connection.call("getVer", deadline, |client| {
                        client.get_ver(table, row, column, requested, raw::no_attributes())
                    })?;
                    results.push(((family, qualifier), versions));
                }
                Ok(results)
            }
        };
        pool.call(Idempotency::Idempotent, request).await
    }
}
