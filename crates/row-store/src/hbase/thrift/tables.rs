//! Creating and listing tables.

use std::time::{Duration, Instant};

use futures::stream::{StreamExt, TryStreamExt, iter};
use hbase_thrift::hbase::{ColumnDescriptor, THbaseSyncClient};

use super::connection::Connection;
use super::error::{CallError, ExceptionKind, Idempotency, RequestContext};
use super::pool::Pool;
use super::raw;
use crate::hbase::Compression;
use crate::hbase::definitions::{CREATION, FOR_EVER, max_versions, same, ttl_seconds};
use crate::{FamilyDef, StoreError, TableDef, TableName, rules};

/// The pause between two looks at a table that another client creates.
const POLL: Duration = Duration::from_millis(200);

/// Creates a table; `false` if it exists with the same families.
pub(super) async fn create(
    pool: &Pool,
    table: &TableDef,
    compression: Compression,
) -> Result<bool, StoreError> {
    rules::check_table(table)?;
    let families = table
        .families
        .iter()
        .map(|family| {
            let max_versions = max_versions(family)?;
            Ok(raw::family(
                family,
                max_versions,
                ttl_seconds(family)?,
                compression.hbase_name(),
            ))
        })
        .collect::<Result<Vec<ColumnDescriptor>, StoreError>>()?;
    let store_error = |error: CallError| error.into_store_error(RequestContext::idempotent(&table.name));
    let name = raw::table_name(&table.name);
    let request = || {
        let (name, families) = (name.clone(), families.clone());
        move |connection: &mut Connection, deadline| {
            connection.call("createTable", deadline, |client| {
                client.create_table(name, families)
            })
        }
    };
    let time = pool.config().request_timeout.max(CREATION);
    let began = Instant::now();
    match pool.call_within(time, Idempotency::Idempotent, request).await {
        Ok(()) => Ok(true),
        // It existed before, or another client created it concurrently.
        Err(CallError::Exception(exception))
            if exception.kind == ExceptionKind::Exists || exception.names("TableExistsException") =>
        {
            loop {
                if let Some(existing) = find(pool, &table.name).await.map_err(store_error)? {
                    return same(&existing, table);
                }
                if began.elapsed() > time {
                    return Err(StoreError::Unavailable {
                        detail: format!("table `{}` is being created", table.name),
                    });
                }
                tokio::time::sleep(POLL).await;
            }
        }
        Err(error) => Err(store_error(error)),
    }
}

/// The names of all tables that are valid [`TableName`]s.
pub(super) async fn names(pool: &Pool) -> Result<Vec<TableName>, StoreError> {
    let request = || {
        |connection: &mut Connection, deadline| {
            connection.call("getTableNames", deadline, |client| client.get_table_names())
        }
    };
    let names = pool.call(Idempotency::Idempotent, request).await;
    let names = names.map_err(|error| error.into_store_error(RequestContext::NO_TABLE))?;
    Ok(names
        .iter()
        .filter_map(|name| std::str::from_utf8(name).ok()?.parse().ok())
        .collect())
}

/// All tables, ordered by name.
pub(super) async fn list(pool: &Pool) -> Result<Vec<TableDef>, StoreError> {
    let definitions: Vec<Option<TableDef>> = iter(names(pool).await?)
        .map(|name| async move {
            // A table deleted in the meantime is omitted.
            let definition = find(pool, &name).await;
            definition.map_err(|error| error.into_store_error(RequestContext::idempotent(&name)))
        })
        .buffer_unordered(pool.config().connections)
        .try_collect()
        .await?;
    let mut tables: Vec<TableDef> = definitions.into_iter().flatten().collect();
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tables)
}

/// The definition of a table, as far as the gateway reports it, with families ordered by name.
pub(super) async fn find(pool: &Pool, name: &TableName) -> Result<Option<TableDef>, CallError> {
    let request = || {
        let name = raw::table_name(name);
        move |connection: &mut Connection, deadline| {
            connection.call("getColumnDescriptors", deadline, |client| {
                client.get_column_descriptors(name)
            })
        }
    };
    match pool.call(Idempotency::Idempotent, request).await {
        Ok(descriptors) => {
            let mut families: Vec<FamilyDef> = descriptors.values().map(family_def).collect();
            // Ordered by name with a trailing `:`.
            families.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(Some(TableDef {
                name: name.clone(),
                families,
            }))
        }
        Err(CallError::Exception(exception)) if exception.names("TableNotFoundException") => Ok(None),
        Err(error) => Err(error),
    }
}

fn family_def(family: &ColumnDescriptor) -> FamilyDef {
    let name = family.name.as_deref().unwrap_or_default();
    let name = name.strip_suffix(b":").unwrap_or(name);
    let ttl = family.time_to_live.filter(|seconds| *seconds != FOR_EVER);
    FamilyDef {
        name: String::from_utf8_lossy(name).into_owned(),
        max_versions: family
            .max_versions
            .and_then(|kept| u32::try_from(kept).ok())
            .unwrap_or(1),
        ttl: ttl
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map(Duration::from_secs),
    }
}
