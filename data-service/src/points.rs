//! Where points are: in the embedded store, with table `tsdb` over it, or in rows. Rollups of the embedded store are in
//! stores of their own, with their tables over them.

mod rollups;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use futures::FutureExt as _;
use oxtsdb_data_settings::{DataSettings, PointStoreSettings, WriteForm};
use oxtsdb_maintenance::store_admin::{POINTS, ROLLUPS, StoreAdmin};
use oxtsdb_point_store::PointStore;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::rows::{Form, RowPoints, RowsConfig};
use oxtsdb_point_store::view::TableView;
use oxtsdb_query::{PointStorage, Rollups};
use oxtsdb_row_store::cells::CellStore;
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::RowKeyLayout;
use oxtsdb_server::Shutdown;
use oxtsdb_server::settings::SettingError;
use oxtsdb_server::store::{StoreKind, open_folder};
use oxtsdb_storage_file::disk::real::RealDisk;

/// Files of parts that are kept open: of points, of all rollups, and of the rollups of a table at least.
const OPEN_FILES: usize = 160;
const ROLLUP_FILES: usize = 64;
const MIN_ROLLUP_FILES: usize = 8;

/// The most memory of a table's rollups that are in no part, in bytes. Their instants do not ascend with their time, so
/// that a read of a few decodes all of a series there.
const MAX_ROLLUP_HEAD: u64 = 32 << 20;

/// Where points are stored, if not in rows, and how much memory they take.
#[derive(Clone, Debug)]
pub struct PointsPart {
    /// The data folder.
    pub data_dir: PathBuf,
    /// The folder in it that has the stores of points and of rollups.
    pub part: &'static str,
    /// Memory of points that are in no part.
    pub head_bytes: u64,
    /// Memory of pages of parts.
    pub cache_bytes: u64,
    /// The only folder of snapshots.
    pub snapshot_dir: PathBuf,
    /// The other stores of the process by their folders, in the order in which a snapshot copies them.
    pub cells: Vec<(&'static str, Arc<CellStore>)>,
}

impl PointsPart {
    /// The folder that has the stores of points and of rollups.
    pub(crate) fn folder(&self) -> PathBuf {
        self.data_dir.join(self.part)
    }

    /// Opens the points as rows of `table`, and points of rollups as rows of their tables; other cells and tables are in
    /// `rows`.
    ///
    /// # Errors
    ///
    /// The folder cannot be used, or is of another format or of other widths of UIDs.
    pub(crate) async fn open(
        self,
        rows: Arc<dyn RowStore>,
        layout: RowKeyLayout,
        (table, meta): (TableName, TableName),
        rollups: Option<&Rollups>,
        settings: &PointStoreSettings,
    ) -> anyhow::Result<(Arc<dyn RowStore>, PointStorage, StoreAdmin)> {
        let parent = self.folder();
        let disk_bytes = fs4::total_space(&parent).with_context(|| parent.display().to_string())?;
        let rollup_folder = format!("{}/{ROLLUPS}", self.part);
        let tables = rollups::tables(&self.data_dir, &rollup_folder, rollups, &table)
            .with_context(|| format!("list the rollups in {}", parent.join(ROLLUPS).display()))?;
        let shares = Shares::new((self.head_bytes, self.cache_bytes), tables.len());
        let config = |share: &Share| PartsConfig {
            widths: layout.widths,
            open_files: share.open_files,
            reserve_bytes: settings.reserve_bytes(disk_bytes),
            head_bytes: usize::try_from(share.head_bytes).unwrap_or(usize::MAX),
            cache_bytes: share.cache_bytes,
            journal_bytes: settings.journal_bytes(share.head_bytes),
            flush_after: settings.flush_after(),
            merge_bytes_per_second: settings.merge_bytes_per_second(),
            ..PartsConfig::new(PathBuf::new(), Arc::new(RealDisk))
        };
        let points_config = PartsConfig {
            retention: settings.retention()?,
            clock_confirmed_ms: settings.clock_confirmed_ms()?,
            ..config(&shares.points)
        };
        let points = self.open_parts(format!("{}/{POINTS}", self.part), points_config);
        let points = points.await?;
        let mut rollups = Vec::with_capacity(tables.len());
        for table in tables {
            let folder = format!("{rollup_folder}/{table}");
            let store = self.open_parts(folder, config(&shares.of_rollups)).await?;
            rollups.push((table, store));
        }
        let snapshot_dir = std::path::absolute(&self.snapshot_dir)?;
        let admin = StoreAdmin::new(
            Arc::clone(&points),
            rollups.clone(),
            self.cells,
            snapshot_dir,
            settings.retention()?,
            settings.merge_bytes_per_second(),
        );
        let (tables, rollups) = rollups::shown(Arc::clone(&rows), rollups, layout)?;
        let points: Arc<dyn PointStore> = points;
        let table = TableView::new(tables, Arc::clone(&points), layout, table);
        let table = table.with_counters(meta).await?;
        let points = PointStorage {
            columns: points,
            cells: rows,
            rollups,
        };
        Ok((Arc::new(table), points, admin))
    }
}

impl PointsPart {
    /// Opens a store in a folder of the data folder.
    async fn open_parts(&self, folder: String, config: PartsConfig) -> anyhow::Result<Arc<PartsStore>> {
        let data_dir = self.data_dir.clone();
        let open = move || {
            open_folder(&data_dir, &folder, |path| {
                PartsStore::open(PartsConfig { path, ..config })
            })
        };
        Ok(Arc::new(tokio::task::spawn_blocking(open).await??))
    }
}

/// The limits of the stores of points and of rollups.
#[derive(Clone, Copy, Debug)]
struct Share {
    head_bytes: u64,
    cache_bytes: u64,
    open_files: usize,
}

struct Shares {
    points: Share,
    /// Of each store of rollups.
    of_rollups: Share,
}

impl Shares {
    /// A quarter of the memory is for rollups, if there are any: they have few points.
    fn new((head_bytes, cache_bytes): (u64, u64), rollups: usize) -> Self {
        let all = Share {
            head_bytes,
            cache_bytes,
            open_files: OPEN_FILES,
        };
        let each = |whole: u64| whole / 4 / rollups.max(1) as u64;
        let rest = |whole: u64| if rollups == 0 { whole } else { whole / 4 * 3 };
        Self {
            points: Share {
                head_bytes: rest(head_bytes),
                cache_bytes: rest(cache_bytes),
                ..all
            },
            of_rollups: Share {
                head_bytes: each(head_bytes).min(MAX_ROLLUP_HEAD),
                cache_bytes: each(cache_bytes),
                open_files: (ROLLUP_FILES / rollups.max(1)).max(MIN_ROLLUP_FILES),
            },
        }
    }
}

/// The points in the rows of a store, in the form that `settings` select: in HBase each cell repeats its row key and is
/// an object in three processes, so that the default there is one cell for the points of a row. Must be called within a
/// Tokio runtime.
///
/// # Errors
///
/// If a setting is out of its range.
pub fn in_rows(
    (store, kind): (Arc<dyn RowStore>, StoreKind),
    layout: RowKeyLayout,
    settings: &DataSettings,
    shutdown: Shutdown,
) -> Result<Arc<dyn PointStore>, SettingError> {
    let form = match (settings.writing.write_form, kind) {
        (WriteForm::Auto, StoreKind::Hbase) => Form::CompactedWhenOver,
        (WriteForm::Auto, StoreKind::Embedded) | (WriteForm::Cells, _) => Form::Single,
        (WriteForm::Rows, _) => Form::Compacted,
        (WriteForm::Appends, _) => Form::Appended,
    };
    let config = RowsConfig {
        table: settings.tables.data_table_name()?,
        layout,
        form,
        ordered_writes: kind == StoreKind::Embedded,
        linger: settings.writing.linger(),
        use_otsdb_timestamp: settings.writing.use_otsdb_timestamp,
        draining: async move { shutdown.draining().await }.boxed().shared(),
    };
    Ok(Arc::new(RowPoints::new(store, config)))
}
