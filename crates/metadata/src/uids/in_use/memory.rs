//! The record of the UID service in the folder of the points.
//!
//! ```text
//!   table `tsdb-uids-in-use`, in the embedded store of the data service only
//!   row key: 00      u:t   table of UIDs (8) | highest assigned number of metrics, tagk, tagv (8 each)
//! ```
//!
//! The numbers are of all data services of a UID service, so that after a loss one of them protects the UIDs of the
//! others, which may be away. They are at most a second old.

use std::sync::Arc;

use oxtsdb_point_store::HighestUids;
use oxtsdb_row_store::{ColumnSelection, RowStore, StoreError, TableDef, TableName, WriteBatch};

const FAMILY: &str = "u";
const QUALIFIER: &[u8] = b"t";
const ROW: &[u8] = &[0];

/// The content of the record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Remembered {
    /// The table of UIDs; 0: none is remembered.
    pub(super) table_id: u64,
    /// The highest numbers that it has assigned.
    pub(super) assigned: HighestUids,
}

/// The cell.
#[derive(Debug)]
pub(super) struct Memory {
    rows: Arc<dyn RowStore>,
    table: TableName,
}

impl Memory {
    /// Creates the table if it is missing. It is named after the table of points.
    pub(super) async fn open(rows: Arc<dyn RowStore>, points: &TableName) -> Result<Self, StoreError> {
        let table: TableName = format!("{points}-uids-in-use").parse()?;
        rows.create_table(&TableDef::new(table.clone(), &[FAMILY]))
            .await?;
        Ok(Self { rows, table })
    }

    /// Returns `None` if nothing is remembered.
    pub(super) async fn read(&self) -> Result<Option<Remembered>, StoreError> {
        let columns = ColumnSelection::Columns(vec![(FAMILY.to_owned(), QUALIFIER.to_vec())]);
        let row = self.rows.get(&self.table, ROW, &columns).await?;
        let stored = row.as_ref().and_then(|row| row.get(FAMILY, QUALIFIER));
        let Some(stored) = stored else { return Ok(None) };
        let (numbers, rest) = stored.value.as_chunks::<8>();
        let (&[table_id, metric, tagk, tagv], []) = (numbers, rest) else {
            return Err(StoreError::Invalid {
                detail: format!(
                    "the cell of table {} has {} bytes, expected 32",
                    self.table,
                    stored.value.len()
                ),
            });
        };
        Ok(Some(Remembered {
            table_id: u64::from_be_bytes(table_id),
            assigned: HighestUids {
                metric: u64::from_be_bytes(metric),
                tagk: u64::from_be_bytes(tagk),
                tagv: u64::from_be_bytes(tagv),
            },
        }))
    }

    pub(super) async fn write(&self, remembered: &Remembered) -> Result<(), StoreError> {
        let Remembered { table_id, assigned } = remembered;
        let numbers = [*table_id, assigned.metric, assigned.tagk, assigned.tagv];
        let value: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(FAMILY);
        batch.row(ROW).put(family, QUALIFIER, &value);
        self.rows.write(batch).await
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_row_store::memory::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn returns_what_was_written_last() {
        let rows: Arc<dyn RowStore> = Arc::new(MemoryStore::new());
        let memory = Memory::open(Arc::clone(&rows), &"tsdb".parse().unwrap())
            .await
            .unwrap();
        assert_eq!(memory.read().await.unwrap(), None);
        let assigned = |metric| HighestUids {
            metric,
            tagk: 2,
            tagv: 1 << 40,
        };
        for metric in [7, 9] {
            let remembered = Remembered {
                table_id: u64::MAX - 1,
                assigned: assigned(metric),
            };
            memory.write(&remembered).await.unwrap();
            let again = Memory::open(Arc::clone(&rows), &"tsdb".parse().unwrap())
                .await
                .unwrap();
            assert_eq!(again.read().await.unwrap(), Some(remembered));
        }
    }
}
