//! Gets: reading rows by key.

use futures::FutureExt;
use futures::stream::{StreamExt, TryStreamExt, iter};
use hbase_thrift::hbase::{THbaseSyncClient, TRowResult};

use super::connection::Connection;
use super::error::{CallError, Idempotency};
use super::pool::Pool;
use super::raw;
use super::rows::RawRow;
use crate::{ColumnSelection, Row, TableName};

/// Rows requested per call.
const ROWS_PER_CALL: usize = 512;

/// Reads rows by key. Returns one result per key, in the order of the keys.
pub(super) async fn get_rows(
    pool: &Pool,
    table: &TableName,
    keys: &[Vec<u8>],
    columns: &ColumnSelection,
) -> Result<Vec<Option<Row>>, CallError> {
    let calls: Vec<_> = keys
        .chunks(ROWS_PER_CALL)
        .map(|keys| get_some(pool, table, keys, columns).boxed())
        .collect();
    let rows: Vec<Vec<Option<Row>>> = iter(calls)
        .buffered(pool.config().connections)
        .try_collect()
        .await?;
    Ok(rows.into_iter().flatten().collect())
}

/// The rows of one call, or of several smaller ones if the response would be too large.
async fn get_some(
    pool: &Pool,
    table: &TableName,
    keys: &[Vec<u8>],
    columns: &ColumnSelection,
) -> Result<Vec<Option<Row>>, CallError> {
    let mut rows = Vec::with_capacity(keys.len());
    let mut size = keys.len();
    while rows.len() < keys.len() {
        let rest = &keys[rows.len()..];
        let some = &rest[..size.min(rest.len())];
        match get_call(pool, table, some, columns).await {
            Ok(found) => rows.extend(found),
            Err(CallError::ResponseTooLarge { .. }) if some.len() > 1 => size = some.len() / 2,
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

async fn get_call(
    pool: &Pool,
    table: &TableName,
    keys: &[Vec<u8>],
    columns: &ColumnSelection,
) -> Result<Vec<Option<Row>>, CallError> {
    let request = || {
        let (name, columns) = (raw::table_name(table), raw::columns(columns));
        let keys = keys.to_vec();
        move |connection: &mut Connection, deadline| {
            let found = connection.call("getRowsWithColumns", deadline, |client| {
                client.get_rows_with_columns(name, keys.clone(), columns, raw::no_attributes())
            })?;
            // On the worker thread, since it is CPU-bound.
            join(&keys, found, connection.gateway())
        }
    };
    pool.call(Idempotency::Idempotent, request).await
}

/// Aligns rows with the requested keys. The gateway keeps the order of the keys, omits rows that do not exist,
/// and repeats rows whose key was requested twice.
fn join(keys: &[Vec<u8>], found: Vec<TRowResult>, gateway: &str) -> Result<Vec<Option<Row>>, CallError> {
    let mut found = found.into_iter().map(RawRow::new).peekable();
    let rows = keys
        .iter()
        .map(|key| match found.next_if(|row| row.key == *key) {
            Some(row) => row.into_row(gateway),
            None => Ok(None),
        })
        .collect::<Result<_, _>>()?;
    match found.next() {
        None => Ok(rows),
        Some(row) => Err(CallError::ConnectionLost {
            gateway: gateway.to_owned(),
            detail: format!(
                "row `{}` was not requested, or not at this position",
                row.key.escape_ascii()
            ),
        }),
    }
}
