//! Points as cells, and cells as points.

use oxtsdb_schema::row::{CellKind, CellRef, decode_cell};
use oxtsdb_schema::timestamp::MAX_MILLIS;
use oxtsdb_schema::value::EncodedValue;
use oxtsdb_schema::{BaseTime, Qualifier, Timestamp, Value};

use super::place::hour_range;
use crate::point::narrow;
use crate::{Point, ValueKind};

/// The qualifier and the value of a point's cell, as a writer of single cells stores it.
pub(crate) fn cell_of(point: &Point) -> (Qualifier, EncodedValue) {
    let value = value_of(point);
    (Qualifier::new(point.timestamp(), &value), value.encoded())
}

/// The value of a point's cell. Not [`Point::value`]: a non-finite value that got into the store is shown as it is.
pub(super) fn value_of(point: &Point) -> Value {
    match point.kind.value() {
        ValueKind::Int => Value::Int(point.bits.cast_signed()),
        ValueKind::Float => Value::Float(narrow(point.bits)),
        ValueKind::Double => Value::Double(f64::from_bits(point.bits)),
    }
}

/// Whether a qualifier names points.
pub(super) fn names_points(qualifier: &[u8]) -> bool {
    matches!(
        CellKind::from_qualifier(qualifier),
        CellKind::Point | CellKind::Compacted
    )
}

/// The points of a cell in an hour, in order of time; `None` unless all of them are plain points: the cells of the
/// points have the same bytes.
pub(super) fn points_of(base: BaseTime, qualifier: &[u8], value: &[u8]) -> Option<Vec<Point>> {
    if !names_points(qualifier) {
        return None;
    }
    let cell = CellRef {
        qualifier,
        value,
        timestamp_ms: 0,
    };
    let mut decoded = Vec::new();
    decode_cell(cell, &mut decoded).ok()?;
    let points = decoded
        .iter()
        .map(|point| point_of(base, point.qualifier, &point.value))
        .collect::<Option<Vec<Point>>>()?;
    if !points.is_sorted_by(|a, b| a.time_ms < b.time_ms) {
        return None;
    }
    // The bytes of all points, so that corrected or wider ones are found out.
    let (mut qualifiers, mut values) = (Vec::new(), Vec::new());
    for point in &points {
        let (qualifier, value) = cell_of(point);
        qualifier.write_to(&mut qualifiers);
        value.write_to(&mut values);
    }
    // The values of several points may be followed by a meta byte.
    let longest = values.len() + usize::from(points.len() > 1);
    let is_plain = qualifiers == qualifier && value.starts_with(&values) && value.len() <= longest;
    is_plain.then_some(points)
}

/// The point of a qualifier and its value; `None` if no writer produces them.
pub(crate) fn point_of(base: BaseTime, qualifier: Qualifier, value: &Value) -> Option<Point> {
    if !value.as_f64().is_finite() {
        return None;
    }
    let time_ms = instant(base, qualifier)?;
    let timestamp = if qualifier.is_ms() {
        Timestamp::from_millis(time_ms).ok()?
    } else {
        Timestamp::from_seconds(u32::try_from(time_ms / 1000).ok()?)
    };
    Some(Point::new(timestamp, value))
}

/// The instants that a qualifier names, each with the qualifier of its point; none for instants that no point has.
pub(super) fn instants(base: BaseTime, qualifier: &[u8]) -> Vec<(i64, Qualifier)> {
    let mut rest = qualifier;
    let mut instants = Vec::new();
    while let Ok((qualifier, behind)) = Qualifier::read(rest) {
        instants.extend(instant(base, qualifier).map(|time_ms| (time_ms, qualifier)));
        rest = behind;
    }
    instants
}

/// The instant of a qualifier; `None` if it is not within the hour.
fn instant(base: BaseTime, qualifier: Qualifier) -> Option<i64> {
    let time_ms = base.millis() + i64::from(qualifier.offset_ms());
    (hour_range(base).contains(time_ms) && time_ms <= MAX_MILLIS).then_some(time_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: BaseTime = BaseTime::from_seconds(1_356_998_400);

    fn plain(qualifier: &[u8], value: &[u8]) -> Option<Vec<i64>> {
        let points = points_of(BASE, qualifier, value)?;
        Some(points.iter().map(|point| point.time_ms - BASE.millis()).collect())
    }

    #[test]
    fn plain_points_return_as_the_same_cells() {
        let half = 0.5_f64.to_be_bytes();
        let cells: [(&[u8], &[u8]); 6] = [
            (&[0x00, 0x10], &[1]),
            (&[0xe0, 0xf1], &[1, 0]),
            (&[0x00, 0x0b], &0.5_f32.to_be_bytes()),
            (&[0x00, 0x0f], &half),
            (&[0xf0, 0x00, 0x7d, 0x00], &[255]),
            (&[0xf0, 0x00, 0x00, 0x0f], &half),
        ];
        for (qualifier, value) in cells {
            let points = points_of(BASE, qualifier, value).unwrap();
            let [point] = points[..] else { panic!("{points:?}") };
            let (cell_qualifier, bytes) = cell_of(&point);
            assert_eq!((cell_qualifier.as_bytes(), bytes.as_bytes()), (qualifier, value));
            assert_eq!(instants(BASE, qualifier), [(point.time_ms, cell_qualifier)]);
        }
    }

    #[test]
    fn compacted_points_are_plain_with_and_without_meta_byte() {
        let qualifier = [0x00, 0x00, 0x00, 0x10];
        for value in [&[1, 2, 0][..], &[1, 2, 1], &[1, 2]] {
            assert_eq!(plain(&qualifier, value), Some(vec![0, 1000]));
        }
        assert_eq!(plain(&qualifier, &[1, 2, 0, 0]), None);
        assert_eq!(plain(&qualifier, &[1]), None);
        assert_eq!(plain(&[0x00, 0x10, 0x00, 0x00], &[1, 2, 0]), None, "descending");
        assert_eq!(
            plain(&[0x00, 0x00, 0xf0, 0, 0, 0], &[1, 2, 1]),
            None,
            "one instant"
        );
        assert_eq!(instants(BASE, &qualifier).len(), 2);
    }

    #[test]
    fn odd_encodings_are_not_plain() {
        let odd: [(&[u8], &[u8]); 9] = [
            // A small integer in 8 bytes, flags of another length, a float in 8 bytes.
            (&[0x00, 0x07], &[0, 0, 0, 0, 0, 0, 0, 1]),
            (&[0x00, 0x00], &[1, 0]),
            (&[0x00, 0x0b], &[0, 0, 0, 0, 0x3f, 0, 0, 0]),
            // Beyond the hour; unused bits set; not finite.
            (&[0xe1, 0x00], &[1]),
            (&[0xf0, 0x00, 0x00, 0x10], &[1]),
            (&[0x00, 0x0b], &f32::NAN.to_be_bytes()),
            (&[0x00, 0x0f], &f64::INFINITY.to_be_bytes()),
            // An annotation, appended points.
            (&[0x01, 0x00, 0x00], b"{}"),
            (&[0x05, 0x00, 0x00], &[0x00, 0x10, 1]),
        ];
        for (qualifier, value) in odd {
            assert_eq!(plain(qualifier, value), None, "{qualifier:x?} {value:x?}");
        }
        assert!(instants(BASE, &[0xe1, 0x00]).is_empty());
    }
}
