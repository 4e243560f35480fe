//! Creating and listing tables: calls of the active master.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::super::Compression;
use super::super::definitions::{CREATION, FOR_EVER, max_versions, same, ttl_seconds};
use super::cluster::Cluster;
use super::error::{CallError, ServerException};
use super::messages::{
    BytesBytesPair, CreateTableRequest, Empty, FamilySchema, GetProcedureResultResponse,
    GetTableDescriptorsRequest, GetTableDescriptorsResponse, PROCEDURE_RUNS, ProcedureId, TableNameMessage,
    TableSchema,
};
use crate::{FamilyDef, StoreError, TableDef, TableName, rules};

/// The pause between two looks at a table that is being created.
const POLL: Duration = Duration::from_millis(50);

/// Creates a table; `false` if it exists with the same families.
///
/// # Errors
///
/// As [`crate::RowStore::create_table`].
pub(super) async fn create(
    cluster: &Cluster,
    table: &TableDef,
    compression: Compression,
    split_keys: &[Vec<u8>],
) -> Result<bool, StoreError> {
    rules::check_table(table)?;
    let families = table.families.iter().map(|family| schema(family, compression));
    let request = CreateTableRequest {
        table_schema: TableSchema {
            table_name: Some(name_of(&table.name)),
            column_families: families.collect::<Result<_, _>>()?,
        },
        split_keys: split_keys.iter().map(|key| Bytes::copy_from_slice(key)).collect(),
        nonce_group: Some(cluster.nonce_group()),
        nonce: Some(cluster.nonce()),
    };
    let deadline = Instant::now() + cluster.config().request_timeout.max(CREATION);
    let store_error = |error: CallError| error.into_store_error(Some(&table.name));
    // A table of this name may have been deleted.
    cluster.forget_table(&table.name);
    let created = cluster.call_master("CreateTable", &request, deadline).await;
    let created = match created {
        Ok(procedure) => finished(cluster, procedure, deadline).await,
        Err(error) => Err(error),
    };
    match created {
        Ok(()) => Ok(true),
        // It existed before, or another client created it concurrently.
        Err(CallError::Exception(exception)) if exception.names("TableExistsException") => loop {
            if let Some(existing) = find(cluster, &table.name).await.map_err(store_error)? {
                return same(&existing, table);
            }
            if Instant::now() >= deadline {
                return Err(StoreError::Unavailable {
                    detail: format!("table `{}` is being created", table.name),
                });
            }
            tokio::time::sleep(POLL).await;
        },
        Err(error) => Err(store_error(error)),
    }
}

/// Waits until a procedure of the master ends.
async fn finished(cluster: &Cluster, procedure: ProcedureId, deadline: Instant) -> Result<(), CallError> {
    loop {
        let result: GetProcedureResultResponse = cluster
            .call_master("getProcedureResult", &procedure, deadline)
            .await?;
        if let Some(exception) = result.exception.and_then(|exception| exception.generic_exception) {
            let class = exception.class_name.unwrap_or_default();
            let text = exception.message.unwrap_or_default();
            return Err(CallError::Exception(ServerException::new(
                "the master",
                class,
                &text,
                None,
            )));
        }
        if result.state != PROCEDURE_RUNS {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(CallError::TimedOut {
                server: "the master".to_owned(),
                detail: "a procedure did not end in time".to_owned(),
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

/// All tables with names that are valid, ordered by name.
///
/// # Errors
///
/// If the master cannot be reached.
pub(super) async fn list(cluster: &Cluster) -> Result<Vec<TableDef>, StoreError> {
    let schemas = schemas(cluster, Vec::new()).await;
    let schemas = schemas.map_err(|error| error.into_store_error(None))?;
    let mut tables: Vec<TableDef> = schemas.iter().filter_map(table_def).collect();
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(tables)
}

/// The definition of a table, with families ordered by name.
///
/// # Errors
///
/// If the master cannot be reached.
pub(super) async fn find(cluster: &Cluster, name: &TableName) -> Result<Option<TableDef>, CallError> {
    match schemas(cluster, vec![name_of(name)]).await {
        Ok(schemas) => Ok(schemas
            .iter()
            .filter_map(table_def)
            .find(|table| table.name == *name)),
        Err(CallError::Exception(exception)) if exception.names("TableNotFoundException") => Ok(None),
        Err(error) => Err(error),
    }
}

async fn schemas(
    cluster: &Cluster,
    table_names: Vec<TableNameMessage>,
) -> Result<Vec<TableSchema>, CallError> {
    let request = GetTableDescriptorsRequest {
        table_names,
        include_sys_tables: Some(false),
    };
    let deadline = cluster.deadline();
    let response: GetTableDescriptorsResponse = cluster
        .call_master("GetTableDescriptors", &request, deadline)
        .await?;
    Ok(response.table_schema)
}

/// Requests the state of the master.
///
/// # Errors
///
/// If the master cannot be reached.
pub(super) async fn check_master(cluster: &Cluster) -> Result<(), CallError> {
    let deadline = Instant::now() + cluster.config().connect_timeout;
    let _: Empty = cluster
        .call_master("IsMasterRunning", &Empty {}, deadline)
        .await?;
    Ok(())
}

fn name_of(table: &TableName) -> TableNameMessage {
    TableNameMessage {
        namespace: Bytes::copy_from_slice(table.namespace().as_bytes()),
        qualifier: Bytes::copy_from_slice(table.name().as_bytes()),
    }
}

fn schema(family: &FamilyDef, compression: Compression) -> Result<FamilySchema, StoreError> {
    let attributes = [
        ("VERSIONS", max_versions(family)?.to_string()),
        ("TTL", ttl_seconds(family)?.to_string()),
        ("BLOOMFILTER", "ROW".to_owned()),
        ("COMPRESSION", compression.hbase_name().to_owned()),
        // As OpenTSDB's script creates its tables: keys repeat most of their bytes.
        ("DATA_BLOCK_ENCODING", "DIFF".to_owned()),
    ];
    Ok(FamilySchema {
        name: Bytes::copy_from_slice(family.name.as_bytes()),
        attributes: attributes
            .into_iter()
            .map(|(first, second)| BytesBytesPair {
                first: Bytes::from_static(first.as_bytes()),
                second: second.into(),
            })
            .collect(),
    })
}

/// A table; `None` if its name is not valid here.
fn table_def(schema: &TableSchema) -> Option<TableDef> {
    let name = schema.table_name.as_ref()?;
    let namespace = std::str::from_utf8(&name.namespace).ok()?;
    let qualifier = std::str::from_utf8(&name.qualifier).ok()?;
    let name = format!("{namespace}:{qualifier}").parse().ok()?;
    let mut families: Vec<FamilyDef> = schema.column_families.iter().map(family_def).collect();
    families.sort_by(|a, b| a.name.cmp(&b.name));
    Some(TableDef { name, families })
}

fn family_def(family: &FamilySchema) -> FamilyDef {
    let attribute = |name: &str| -> Option<u64> {
        let mut attributes = family.attributes.iter();
        let attribute = attributes.find(|attribute| *attribute.first == *name.as_bytes())?;
        std::str::from_utf8(&attribute.second).ok()?.parse().ok()
    };
    // Without a time to live the attribute is a text, or the greatest number.
    let ttl = attribute("TTL").filter(|seconds| *seconds < u64::from(FOR_EVER.unsigned_abs()));
    FamilyDef {
        name: String::from_utf8_lossy(&family.name).into_owned(),
        max_versions: attribute("VERSIONS")
            .and_then(|kept| u32::try_from(kept).ok())
            .unwrap_or(1),
        ttl: ttl.map(Duration::from_secs),
    }
}
