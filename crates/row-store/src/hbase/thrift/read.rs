//! Gets: reading rows by key.

use futures::FutureExt;
use futures::stream::{StreamExt, TryStreamExt, iter};

use super::connection::Connection;
use super::error::{CallError, Idempotency};
use super::pool::Pool;
use super::raw;
use super::rows::RowPart;
use crate::hbase::fetched::{Fetched, Held, Memory};
use crate::{ColumnSelection, Row, Scan, TableName};

/// One result per key, and the count of the rows.
type Found = (Vec<Option<Row>>, Held);

/// Rows requested per call.
const ROWS_PER_CALL: usize = 512;

/// Reads rows by key. Returns one result per key, in the order of the keys, counted by `memory`.
pub(super) async fn get_rows(
    pool: &Pool,
    table: &TableName,
    keys: &[Vec<u8>],
    columns: &ColumnSelection,
    memory: &Memory,
) -> Result<Found, CallError> {
    let calls: Vec<_> = keys
        .chunks(ROWS_PER_CALL)
        .map(|keys| get_some(pool, table, keys, columns, memory).boxed())
        .collect();
    let calls = iter(calls).buffered(pool.config().connections);
    calls
        .try_fold(
            Default::default(),
            async |(mut rows, mut held): Found, (more, of_more)| {
                rows.extend(more);
                held.merge(of_more);
                Ok((rows, held))
            },
        )
        .await
}

/// The rows of a scan that have these keys.
pub(super) async fn get(
    pool: &Pool,
    table: &TableName,
    scan: &Scan,
    keys: &[Vec<u8>],
) -> Result<Fetched, CallError> {
    let (rows, held) = get_rows(pool, table, keys, &scan.columns, &Memory::from_scan(scan)).await?;
    let rows = rows.into_iter().flatten().collect();
    Ok(Fetched { rows, held })
}

/// The rows of one call, or of several smaller ones if the response would be too large.
async fn get_some(
    pool: &Pool,
    table: &TableName,
    keys: &[Vec<u8>],
    columns: &ColumnSelection,
    memory: &Memory,
) -> Result<Found, CallError> {
    let (mut rows, mut held) = (Vec::with_capacity(keys.len()), Held::default());
    let mut size = keys.len();
    while rows.len() < keys.len() {
        let rest = &keys[rows.len()..];
        let some = &rest[..size.min(rest.len())];
        match get_call(pool, table, some, columns, memory).await {
            Ok((more_rows, more_held)) => {
                rows.extend(more_rows);
                held.merge(more_held);
            }
            Err(CallError::ResponseTooLarge { .. }) if some.len() > 1 => size = some.len() / 2,
            Err(error) => return Err(error),
        }
    }
    Ok((rows, held))
}

async fn get_call(
    pool: &Pool,
    table: &TableName,
    keys: &[Vec<u8>],
    columns: &ColumnSelection,
    memory: &Memory,
) -> Result<Found, CallError> {
    let request = || {
        let memory = memory.clone();
        let (name, columns) = (raw::table_name(table), raw::columns(columns));
        let keys = keys.to_vec();
        move |connection: &mut Connection, deadline| {
            let parts = connection.call("getRowsWithColumns", deadline, |client| {
                client.rows_by_key(&name, &keys, &columns)
            })?;
            // On the worker thread, since it is CPU-bound.
            let rows = join(&keys, parts, connection.gateway())?;
            let held = memory.hold(rows.iter().flatten());
            Ok((rows, held))
        }
    };
    pool.call(Idempotency::Idempotent, request).await
}

/// Aligns rows with the requested keys. The gateway keeps the order of the keys, omits rows that do not exist,
/// and repeats rows that were requested twice.
fn join(keys: &[Vec<u8>], parts: Vec<RowPart>, gateway: &str) -> Result<Vec<Option<Row>>, CallError> {
    let mut parts = parts.into_iter().peekable();
    let rows = keys
        .iter()
        .map(|key| match parts.next_if(|row| row.key == *key) {
            Some(row) => row.into_row(),
            None => None,
        })
        .collect();
    match parts.next() {
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
