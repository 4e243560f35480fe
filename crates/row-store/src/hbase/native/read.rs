//! Reads rows by their keys.

use bytes::Bytes;

use super::cluster::Cluster;
use super::error::CallError;
use super::messages::{Action, Column, Get};
use super::multi::{self, RowRequest};
use crate::{ColumnSelection, Row, TableName};

/// Most rows of a call.
const ROWS_OF_A_CALL: usize = 500;

/// Bytes of a get beside its key.
const GET_BYTES: usize = 32;

/// A get of the newest cells of a row.
struct RowGet {
    row: Bytes,
    columns: Vec<Column>,
}

impl RowRequest for RowGet {
    fn row(&self) -> &[u8] {
        &self.row
    }

    fn bytes(&self) -> usize {
        GET_BYTES + self.row.len()
    }

    fn actions(&self, _: &mut Vec<u8>) -> Vec<Action> {
        let get = Get {
            row: self.row.clone(),
            column: self.columns.clone(),
            max_versions: Some(1),
        };
        vec![Action {
            get: Some(get),
            ..Action::default()
        }]
    }
}

/// Reads rows: a result for each key, in the order of the keys.
///
/// # Errors
///
/// The first error without a remedy.
pub(super) async fn get_rows(
    cluster: &Cluster,
    table: &TableName,
    keys: &[Vec<u8>],
    columns: &ColumnSelection,
) -> Result<Vec<Option<Row>>, CallError> {
    let columns = columns_of(columns);
    let get = |key: &Vec<u8>| RowGet {
        row: Bytes::copy_from_slice(key),
        columns: columns.clone(),
    };
    let gets: Vec<RowGet> = keys.iter().map(get).collect();
    multi::perform(cluster, table, &gets, ROWS_OF_A_CALL).await
}

/// The columns of a read; none: all columns.
pub(super) fn columns_of(selection: &ColumnSelection) -> Vec<Column> {
    let family = |name: &str| Bytes::copy_from_slice(name.as_bytes());
    match selection {
        ColumnSelection::All => Vec::new(),
        ColumnSelection::Family(name) => vec![Column {
            family: family(name),
            qualifier: Vec::new(),
        }],
        ColumnSelection::Columns(list) => {
            let mut columns: Vec<Column> = Vec::new();
            for (name, qualifier) in list {
                let qualifier = Bytes::copy_from_slice(qualifier);
                match columns
                    .iter_mut()
                    .find(|column| *column.family == *name.as_bytes())
                {
                    Some(column) => column.qualifier.push(qualifier),
                    None => columns.push(Column {
                        family: family(name),
                        qualifier: vec![qualifier],
                    }),
                }
            }
            columns
        }
    }
}
