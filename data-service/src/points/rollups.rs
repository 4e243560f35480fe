//! The stores of rollups: one for each table, beside the store of points.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use oxtsdb_point_store::PointStore;
use oxtsdb_point_store::parts::PartsStore;
use oxtsdb_point_store::view::TableView;
use oxtsdb_query::{RollupPoints, Rollups};
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::RowKeyLayout;
use oxtsdb_server::store::Generation;

/// The tables with rollups in stores of their own: the setting's, and every table that has or had a store: opening one
/// that is gone is rejected. The tables of the default interval have points.
pub(super) fn tables(
    data_dir: &Path,
    folder: &str,
    rollups: Option<&Rollups>,
    points: &TableName,
) -> io::Result<BTreeSet<TableName>> {
    let mut tables = BTreeSet::new();
    let parsed = |name: &str| name.parse::<TableName>().ok();
    match fs::read_dir(data_dir.join(folder)) {
        Ok(entries) => {
            for entry in entries {
                let name = entry?.file_name();
                tables.extend(name.to_str().and_then(parsed));
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let known = Generation::known(data_dir, folder)?;
    tables.extend(known.iter().filter_map(|name| parsed(name)));
    if let Some(rollups) = rollups {
        let of = |is_default: bool| {
            let intervals = rollups.config().intervals().iter();
            let intervals = intervals.filter(move |interval| interval.is_default() == is_default);
            intervals.flat_map(|interval| [interval.table(), interval.pre_aggregation_table()])
        };
        let parsed = |table: &str| rollups.table(table).cloned();
        let of_points: BTreeSet<TableName> = of(true).filter_map(parsed).collect();
        let of_rollups = of(false).filter_map(parsed);
        tables.extend(of_rollups.filter(|table| table != points && !of_points.contains(table)));
    }
    Ok(tables)
}

/// The stores as tables over `rows`, and for queries.
pub(super) fn shown(
    rows: Arc<dyn RowStore>,
    rollups: Vec<(TableName, Arc<PartsStore>)>,
    layout: RowKeyLayout,
) -> anyhow::Result<(Arc<dyn RowStore>, RollupPoints)> {
    let mut shown = Arc::clone(&rows);
    let mut stores = BTreeMap::new();
    for (table, store) in rollups {
        let store: Arc<dyn PointStore> = store;
        shown = Arc::new(TableView::from_rollups(
            shown,
            Arc::clone(&store),
            layout,
            table.clone(),
        )?);
        // The first call starts the read of rows' prefixes, so that the first query knows them.
        rows.may_have_rows(&table, &[], &[]);
        stores.insert(table, store);
    }
    Ok((shown, Arc::new(stores)))
}
