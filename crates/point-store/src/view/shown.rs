//! A row of OpenTSDB's as a [`TableView`](super::TableView) shows it after it was put.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_row_store::Row;
use oxtsdb_schema::RowKeyLayout;

use super::form::CellForm;
use super::place::{SeriesHour, is_point_family};
use crate::Point;

/// A cell without its timestamp.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShownCell {
    /// Column family.
    pub family: String,
    /// Qualifier.
    pub qualifier: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

/// The cells of a row of table `tsdb` after the row was put into a `TableView`, ordered by family and qualifier.
///
/// Each point is a cell of its own; an instant has one point, from the newest cell. Other cells are unchanged. Two rows
/// with equal results have the same points, whatever their form: single cells or compacted ones. Appended points are
/// compared as they are stored.
pub fn shown_cells(row: &Row, layout: &RowKeyLayout) -> Vec<ShownCell> {
    shown(row, layout, &CellForm::Points)
}

/// As [`shown_cells`], of a row of a rollup table.
pub fn shown_rollups(row: &Row, layout: &RowKeyLayout) -> Vec<ShownCell> {
    shown(row, layout, &CellForm::Rollups(Arc::default()))
}

fn shown(row: &Row, layout: &RowKeyLayout, form: &CellForm) -> Vec<ShownCell> {
    let hour = SeriesHour::from_key(row.key(), layout);
    let mut puts: Vec<(i64, Point)> = Vec::new();
    let mut shown = BTreeMap::new();
    for cell in row.cells() {
        let hour = hour.as_ref().filter(|_| is_point_family(cell.family));
        let points = hour.and_then(|hour| form.points_of(hour.base, cell.qualifier, cell.value));
        if let Some(points) = points {
            for point in points {
                // Points replace an odd encoding of their column that was put before them.
                for column in form.columns_of_place(form.cell_of(&point).0) {
                    shown.remove(&(cell.family.to_owned(), column.as_bytes().to_vec()));
                }
                puts.push((cell.timestamp_ms, point));
            }
            continue;
        }
        if let Some(hour) = hour.filter(|_| form.names_one_point(cell.qualifier)) {
            // An odd encoding replaces the points of its column that were put before it.
            let named = form.instants(hour.base, cell.qualifier).into_iter();
            let named: Vec<_> = named
                .flat_map(|(time_ms, column)| {
                    let columns = form.columns_of_place(column).into_iter();
                    columns.map(move |column| (time_ms, column))
                })
                .collect();
            puts.retain(|(_, point)| !named.contains(&(point.time_ms, form.cell_of(point).0)));
        }
        shown.insert(
            (cell.family.to_owned(), cell.qualifier.to_vec()),
            cell.value.to_vec(),
        );
    }
    puts.sort_by_key(|(timestamp_ms, _)| *timestamp_ms);
    let points: BTreeMap<i64, Point> = puts
        .into_iter()
        .map(|(_, point)| (point.time_ms, point))
        .collect();
    for point in points.into_values() {
        let (qualifier, value) = form.cell_of(&point);
        let family = String::from_utf8_lossy(oxtsdb_schema::data_table::FAMILY).into_owned();
        shown.insert((family, qualifier.as_bytes().to_vec()), value.as_bytes().to_vec());
    }
    let shown = shown.into_iter().map(|((family, qualifier), value)| ShownCell {
        family,
        qualifier,
        value,
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use oxtsdb_row_store::RowBuilder;

    use super::*;

    /// Metric, 2013-01-01, tagk, tagv.
    const KEY: [u8; 13] = [0, 0, 1, 0x50, 0xe2, 0x27, 0, 0, 0, 1, 0, 0, 1];

    fn shown(cells: &[(&[u8], i64, &[u8])]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut row = RowBuilder::new(&KEY, Arc::from(["t".to_owned()]));
        for (qualifier, timestamp_ms, value) in cells {
            row.push(0, qualifier, *timestamp_ms, value);
        }
        let layout = RowKeyLayout::default();
        let cells = shown_cells(&row.finish().unwrap(), &layout).into_iter();
        cells.map(|cell| (cell.qualifier, cell.value)).collect()
    }

    #[test]
    fn compacted_points_equal_single_ones() {
        let single = shown(&[(&[0, 0], 1, &[1]), (&[0, 0x10], 1, &[2])]);
        let compacted = shown(&[(&[0, 0, 0, 0x10], 9, &[1, 2, 0])]);
        assert_eq!(single, compacted);
        assert_eq!(single.len(), 2);
        assert_ne!(single, shown(&[(&[0, 0], 1, &[1]), (&[0, 0x10], 1, &[3])]));
    }

    #[test]
    fn the_newest_cell_of_an_instant_is_its_point() {
        let cells: [(&[u8], i64, &[u8]); 2] = [(&[0, 0], 5, &[1]), (&[0, 0, 0, 0x10], 4, &[7, 2, 0])];
        assert_eq!(shown(&cells), [(vec![0, 0], vec![1]), (vec![0, 0x10], vec![2])]);
    }

    #[test]
    fn other_cells_stay() {
        let annotation: (&[u8], i64, &[u8]) = (&[1, 0, 0], 3, b"{}");
        assert_eq!(shown(&[annotation]), [(vec![1, 0, 0], b"{}".to_vec())]);
    }
}
