//! Where points are: in the embedded store, with table `tsdb` over it, or in rows.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use futures::FutureExt as _;
use oxtsdb_point_store::PointStore;
use oxtsdb_point_store::logical_table::LogicalTable;
use oxtsdb_point_store::parts::disk::real::RealDisk;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::rows::{Form, RowPoints, RowsConfig};
use oxtsdb_query::PointStorage;
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::RowKeyLayout;
use oxtsdb_server::Shutdown;
use oxtsdb_server::settings::SettingError;

use crate::settings::{DataSettings, PointStoreSettings, WriteForm};
use crate::store_admin::StoreAdmin;

/// Files of parts that are kept open.
const OPEN_FILES: usize = 160;

/// The folders of stores in a data folder.
const DATA: &str = "data";
const UID: &str = "uid";

/// Where points are stored, if not in rows, and how much memory they take.
#[derive(Clone, Debug)]
pub struct PointsPart {
    /// The folder.
    pub folder: PathBuf,
    /// Memory of points that are in no part.
    pub head_bytes: u64,
    /// Memory of pages of parts.
    pub cache_bytes: u64,
    /// The only folder of snapshots.
    pub snapshot_dir: PathBuf,
    /// The store of names, if it is in this process.
    pub names: Option<Arc<dyn RowStore>>,
}

impl PointsPart {
    /// The same part; snapshots have the names of this store.
    #[must_use]
    pub fn with_names(self, names: Arc<dyn RowStore>) -> Self {
        Self {
            names: Some(names),
            ..self
        }
    }

    /// Opens the points as rows of `table`, whose other cells and tables are in `rows`.
    ///
    /// # Errors
    ///
    /// The folder cannot be used, or is of another format or of other widths of UIDs.
    pub(crate) async fn open(
        self,
        rows: Arc<dyn RowStore>,
        layout: RowKeyLayout,
        (table, meta): (TableName, TableName),
        settings: &PointStoreSettings,
    ) -> anyhow::Result<(Arc<dyn RowStore>, PointStorage, StoreAdmin)> {
        let parent = self.folder.parent().unwrap_or(&self.folder);
        let disk_bytes = fs4::total_space(parent).with_context(|| parent.display().to_string())?;
        let config = PartsConfig {
            widths: layout.widths,
            open_files: OPEN_FILES,
            reserve_bytes: settings.reserve_bytes(disk_bytes),
            head_bytes: usize::try_from(self.head_bytes).unwrap_or(usize::MAX),
            cache_bytes: self.cache_bytes,
            journal_bytes: settings.journal_bytes(self.head_bytes),
            flush_after: settings.flush_after(),
            merge_bytes_per_second: settings.merge_bytes_per_second(),
            retention: settings.retention()?,
            ..PartsConfig::new(&self.folder, Arc::new(RealDisk))
        };
        let opened = tokio::task::spawn_blocking(|| PartsStore::open(config)).await?;
        let points = opened.with_context(|| format!("open the points in {}", self.folder.display()))?;
        let points = Arc::new(points);
        let snapshot_dir = std::path::absolute(&self.snapshot_dir)?;
        // Names last, so that all series of the snapshot have theirs.
        let stores = std::iter::once((DATA, Arc::clone(&rows))).chain(self.names.map(|names| (UID, names)));
        let admin = StoreAdmin::new(
            Arc::clone(&points),
            stores.collect(),
            snapshot_dir,
            settings.retention()?,
            settings.merge_bytes_per_second(),
        );
        let points: Arc<dyn PointStore> = points;
        let table = LogicalTable::new(Arc::clone(&rows), Arc::clone(&points), layout, table);
        let table = table.with_counters(meta).await?;
        let points = PointStorage {
            columns: points,
            cells: rows,
        };
        Ok((Arc::new(table), points, admin))
    }
}

/// The points in the rows of a store, in the form that `settings` select. Must be called within a Tokio runtime.
///
/// # Errors
///
/// If a setting is out of its range.
pub(crate) fn in_rows(
    store: Arc<dyn RowStore>,
    layout: RowKeyLayout,
    settings: &DataSettings,
    shutdown: Shutdown,
) -> Result<Arc<dyn PointStore>, SettingError> {
    let form = match settings.writing.write_form {
        WriteForm::Auto => Form::of_store(&*store),
        WriteForm::Cells => Form::Single,
        WriteForm::Rows => Form::Compacted,
        WriteForm::Appends => Form::Appended,
    };
    let config = RowsConfig {
        table: settings.tables.data_table_name()?,
        layout,
        form,
        linger: settings.writing.linger(),
        use_otsdb_timestamp: settings.writing.use_otsdb_timestamp,
        draining: async move { shutdown.draining().await }.boxed().shared(),
    };
    Ok(Arc::new(RowPoints::new(store, config)))
}
