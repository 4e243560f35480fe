//! A cell without some of its points, for deletes of a part of an hour.

use super::cell::{
    AppendedPoints, CellKind, CellRef, CompactedPoints, append_point, decode_value, single_point,
};
use super::error::RowError;
use crate::Qualifier;
use crate::data_table::begins_as_append;

/// The points that remain in a cell after a delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellWithout {
    /// How many points were left out.
    pub deleted: usize,
    /// The cells that have the others.
    pub rest: Rest,
}

/// The points that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rest {
    /// All that the cell had; it stays as it is.
    All,
    /// None.
    Nothing,
    /// Some remain. The cell of appended points keeps its qualifier, a compacted cell gets another one. There is more than
    /// one cell only if a compacted one [must not begin](begins_as_append) with the first points.
    Cells(Vec<RestCell>),
}

/// A cell with some points of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestCell {
    /// The qualifier.
    pub qualifier: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

/// Leaves out the points of a cell at some offsets in the hour, in milliseconds. The others keep their order, qualifiers
/// and encoded values, except that mistakes of old software which every reader corrects are corrected. Cells that have no
/// points stay as they are.
///
/// # Errors
///
/// [`RowError`] if the cell is damaged.
pub fn without_points(cell: CellRef<'_>, is_deleted: impl Fn(u32) -> bool) -> Result<CellWithout, RowError> {
    let mut kept = Vec::new();
    let mut points = 0;
    let mut keep = |(qualifier, raw): (Qualifier, _)| {
        decode_value(qualifier, raw)?;
        points += 1;
        if !is_deleted(qualifier.offset_ms()) {
            kept.push((qualifier, raw));
        }
        Ok::<_, RowError>(())
    };
    let kind = CellKind::from_qualifier(cell.qualifier);
    match kind {
        CellKind::Point => keep(single_point(cell)?)?,
        CellKind::Compacted => {
            let mut points = CompactedPoints::new(cell);
            points.by_ref().try_for_each(&mut keep)?;
            points.end()?;
        }
        CellKind::Appended => {
            let mut points = AppendedPoints::new(cell);
            points.by_ref().try_for_each(&mut keep)?;
            points.end()?;
        }
        CellKind::Annotation | CellKind::Histogram | CellKind::Unknown => {}
    }
    let deleted = points - kept.len();
    let rest = if deleted == 0 {
        Rest::All
    } else if kept.is_empty() {
        Rest::Nothing
    } else if kind == CellKind::Appended {
        let mut value = Vec::with_capacity(cell.value.len());
        for (qualifier, raw) in kept {
            append_point(qualifier, raw, &mut value);
        }
        Rest::Cells(vec![RestCell {
            qualifier: cell.qualifier.to_vec(),
            value,
        }])
    } else {
        let alone = kept
            .iter()
            .take_while(|(qualifier, _)| begins_as_append(*qualifier))
            .count();
        let (alone, compacted) = kept.split_at(alone);
        let cells = alone
            .chunks(1)
            .chain((!compacted.is_empty()).then_some(compacted));
        Rest::Cells(cells.map(RestCell::from_points).collect())
    };
    Ok(CellWithout { deleted, rest })
}

impl RestCell {
    /// The cell of one point, or of several compacted ones.
    fn from_points(points: &[(Qualifier, &[u8])]) -> Self {
        let (mut qualifiers, mut values) = (Vec::new(), Vec::new());
        for (qualifier, raw) in points {
            qualifier.write_to(&mut qualifiers);
            values.extend_from_slice(raw);
        }
        if points.len() > 1 {
            let first = points.first().map(|(first, _)| first.is_ms());
            let is_mixed = points.iter().any(|(one, _)| Some(one.is_ms()) != first);
            values.push(u8::from(is_mixed));
        }
        Self {
            qualifier: qualifiers,
            value: values,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data_table::APPEND_QUALIFIER;
    use crate::row::{CompactedCell, decode_cell};
    use crate::{Timestamp, Value};

    const HOUR: i64 = 1_356_998_400;

    fn point(offset_ms: u32, value: i64) -> (Qualifier, Value) {
        let time = if offset_ms.is_multiple_of(1000) {
            Timestamp::from_opentsdb(HOUR + i64::from(offset_ms / 1000))
        } else {
            Timestamp::from_opentsdb(HOUR * 1000 + i64::from(offset_ms))
        };
        let value = Value::Int(value);
        (Qualifier::new(time.unwrap(), &value), value)
    }

    fn compacted(points: &[(Qualifier, Value)]) -> (Vec<u8>, Vec<u8>) {
        let mut cell = CompactedCell::new();
        for (qualifier, value) in points {
            cell.push_qualified(*qualifier, value).unwrap();
        }
        let (qualifier, value) = cell.finish().unwrap();
        (qualifier.to_vec(), value.to_vec())
    }

    fn appended(points: &[(Qualifier, Value)]) -> (Vec<u8>, Vec<u8>) {
        let mut value = Vec::new();
        for (qualifier, number) in points {
            append_point(*qualifier, number.encoded().as_bytes(), &mut value);
        }
        (APPEND_QUALIFIER.to_vec(), value)
    }

    fn rest_cell(qualifier: &[u8], value: &[u8]) -> RestCell {
        RestCell {
            qualifier: qualifier.to_vec(),
            value: value.to_vec(),
        }
    }

    fn without(cell: &(Vec<u8>, Vec<u8>), from_ms: u32, to_ms: u32) -> CellWithout {
        let cell = CellRef {
            qualifier: &cell.0,
            value: &cell.1,
            timestamp_ms: 5,
        };
        without_points(cell, |offset_ms| (from_ms..=to_ms).contains(&offset_ms)).unwrap()
    }

    #[test]
    fn one_point_that_is_left_is_a_cell_of_a_point() {
        let points = [point(0, 1), point(1000, 300)];
        let left = without(&compacted(&points), 0, 999);
        let rest = Rest::Cells(vec![rest_cell(&[0x00, 0x11], &[0x01, 0x2c])]);
        assert_eq!(left, CellWithout { deleted: 1, rest });
    }

    /// OpenTSDB's fsck takes a longer cell with a qualifier that begins with 05 for appended points.
    #[test]
    fn no_compacted_cell_that_is_left_begins_as_the_column_of_appended_points() {
        let points = [79, 80, 95, 96, 97].map(|seconds| point(seconds * 1000, i64::from(seconds)));
        let left = without(&compacted(&points), 0, 79_999);
        let cells = [
            rest_cell(&[0x05, 0x00], &[80]),
            rest_cell(&[0x05, 0xf0], &[95]),
            rest_cell(&[0x06, 0x00, 0x06, 0x10], &[96, 97, 0]),
        ];
        assert_eq!(left.rest, Rest::Cells(cells.to_vec()));
    }

    #[test]
    fn cells_without_points_stay() {
        for first in [1_u8, 6, 9] {
            let left = without(&(vec![first, 0, 0], b"{}".to_vec()), 0, u32::MAX);
            assert_eq!((left.deleted, left.rest), (0, Rest::All));
        }
    }

    #[test]
    fn damaged_cells_are_errors() {
        let cell = CellRef {
            qualifier: &[0, 0, 0, 0x10],
            value: &[1],
            timestamp_ms: 0,
        };
        assert!(without_points(cell, |_| true).is_err());
    }

    proptest! {
        #[test]
        fn has_the_other_points(
            offsets in prop::collection::btree_map(0..3_600_000_u32, any::<i64>(), 1..30),
            from_ms in 0..3_600_000_u32,
            length_ms in 0..3_600_000_u32,
            is_appended: bool,
        ) {
            let points: Vec<_> = offsets.iter().map(|(offset, value)| point(*offset, *value)).collect();
            let to_ms = from_ms.saturating_add(length_ms);
            let is_left = |(qualifier, _): &&(Qualifier, Value)| !(from_ms..=to_ms).contains(&qualifier.offset_ms());
            let expected: Vec<_> = points.iter().filter(is_left).copied().collect();
            let cell = if is_appended { appended(&points) } else { compacted(&points) };
            let left = without(&cell, from_ms, to_ms);
            prop_assert_eq!(left.deleted, points.len() - expected.len());
            let left = match left.rest {
                Rest::All => vec![rest_cell(&cell.0, &cell.1)],
                Rest::Nothing => {
                    prop_assert!(expected.is_empty());
                    return Ok(());
                }
                Rest::Cells(cells) => cells,
            };
            if !is_appended && let [left] = &left[..] {
                let (qualifier, value) = compacted(&expected);
                prop_assert_eq!(left, &rest_cell(&qualifier, &value));
            }
            let mut decoded = Vec::new();
            for RestCell { qualifier, value } in &left {
                let cell = CellRef { qualifier, value, timestamp_ms: 0 };
                decode_cell(cell, &mut decoded).unwrap();
            }
            let decoded: Vec<_> = decoded.iter().map(|point| (point.qualifier, point.value)).collect();
            prop_assert_eq!(decoded, expected);
        }

        #[test]
        fn any_bytes_do_not_panic(qualifier in prop::collection::vec(any::<u8>(), 0..12), value in prop::collection::vec(any::<u8>(), 0..40)) {
            let cell = CellRef { qualifier: &qualifier, value: &value, timestamp_ms: 0 };
            let _ = without_points(cell, |offset_ms| offset_ms % 2 == 0);
        }
    }
}
