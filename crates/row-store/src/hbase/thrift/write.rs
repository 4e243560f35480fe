//! Writing a batch.

use std::time::Duration;

use futures::FutureExt;
use futures::stream::{StreamExt, TryStreamExt, iter};
use hbase_thrift::hbase::{BatchMutation, Mutation, THbaseSyncClient};

use super::connection::Connection;
use super::error::{CallError, Idempotency, RequestContext};
use super::plan::{self, Call};
use super::pool::Pool;
use super::{raw, tables};
use crate::hbase::checks;
use crate::{MutationRef, StoreError, WriteBatch};

/// The delay between two steps of a row: HBase's timestamps are milliseconds, and a delete hides puts of the
/// same millisecond.
const NEXT_MILLISECOND: Duration = Duration::from_millis(2);

/// Applies a batch.
pub(super) async fn write(pool: &Pool, batch: &WriteBatch) -> Result<(), StoreError> {
    checks::check_batch(batch)?;
    let at_once = pool.config().connections;
    for (number, round) in plan::rounds(batch).into_iter().enumerate() {
        if number > 0 {
            tokio::time::sleep(NEXT_MILLISECOND).await;
        }
        let mutated = round
            .calls
            .into_iter()
            .map(|call| mutate(pool, batch, call).boxed());
        let deleted = round
            .deleted_rows
            .into_iter()
            .map(|row| delete_row(pool, batch, row).boxed());
        let calls: Vec<_> = mutated.chain(deleted).collect();
        let done: Result<(), CallError> = iter(calls).buffer_unordered(at_once).try_collect().await;
        if let Err(error) = done {
            return Err(explain(pool, batch, error).await);
        }
    }
    Ok(())
}

/// The error of a batch. For several rows, HBase's client often reports only how many failed; whether the table
/// exists is determined by a separate request.
async fn explain(pool: &Pool, batch: &WriteBatch, error: CallError) -> StoreError {
    let table = batch.table();
    let is_vague = matches!(&error, CallError::Exception(exception)
        if exception.names("RetriesExhaustedWithDetailsException"));
    if is_vague && let Ok(None) = tables::find(pool, table).await {
        return StoreError::NoSuchTable { table: table.clone() };
    }
    error.into_store_error(RequestContext::idempotent(table))
}

async fn mutate(pool: &Pool, batch: &WriteBatch, call: Call<'_>) -> Result<(), CallError> {
    let request = || {
        let table = raw::table_name(batch.table());
        let rows: Vec<BatchMutation> = call
            .rows
            .iter()
            .map(|(key, mutations)| {
                let mutations = mutations
                    .iter()
                    .filter_map(|mutation| thrift_mutation(batch, mutation));
                raw::row_mutations(key, mutations.collect())
            })
            .collect();
        let timestamp_ms = call.timestamp_ms;
        move |connection: &mut Connection, deadline| match timestamp_ms {
            None => connection.call("mutateRows", deadline, |client| {
                client.mutate_rows(table, rows, raw::no_attributes())
            }),
            Some(timestamp_ms) => connection.call("mutateRowsTs", deadline, |client| {
                client.mutate_rows_ts(table, rows, timestamp_ms, raw::no_attributes())
            }),
        }
    };
    pool.call(Idempotency::Idempotent, request).await
}

/// `None` for the delete of a whole row, which is a separate call.
fn thrift_mutation(batch: &WriteBatch, mutation: &MutationRef<'_>) -> Option<Mutation> {
    let name = |family: crate::FamilyId| batch.families()[family.index()].as_str();
    Some(match *mutation {
        MutationRef::Put {
            family,
            qualifier,
            value,
            ..
        } => raw::put(name(family), qualifier, value),
        MutationRef::DeleteColumn {
            family, qualifier, ..
        } => raw::delete(name(family), Some(qualifier)),
        MutationRef::DeleteFamily { family } => raw::delete(name(family), None),
        MutationRef::DeleteRow => return None,
    })
}

async fn delete_row(pool: &Pool, batch: &WriteBatch, row: &[u8]) -> Result<(), CallError> {
    let request = || {
        let (table, row) = (raw::table_name(batch.table()), row.to_vec());
        move |connection: &mut Connection, deadline| {
            connection.call("deleteAllRow", deadline, |client| {
                client.delete_all_row(table, row, raw::no_attributes())
            })
        }
    };
    pool.call(Idempotency::Idempotent, request).await
}
