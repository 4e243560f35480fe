use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type Cell = (u8, Vec<u8>, i64, Vec<u8>);

fn list(cells: &[Cell]) -> CellList {
    let mut list = CellList::default();
    for (family, qualifier, timestamp_ms, value) in cells {
        list.push(*family, qualifier, *timestamp_ms, value);
    }
    list
}

fn bytes_of(cells: &[Cell]) -> usize {
    let cells = list(cells);
    let block = encode(&cells);
    // As text, because NaN is not equal to itself.
    let points = format!("{:?}", decoded_points(&block));
    assert_eq!(points, format!("{:?}", Ok::<_, ()>(points_of(&cells))));
    assert_eq!(decode(&block), Ok(cells));
    block.len()
}

/// The points of a block, decoded into reused columns.
fn decoded_points(block: &[u8]) -> Result<Option<PointColumns>, &'static str> {
    let mut points = PointColumns {
        qualifier_width: 7,
        times: vec![-1; 5],
        times_read: (vec![1, 2, 3], true),
        are_ints: true,
        ints: vec![-1; 500],
        doubles: vec![-1.0; 3],
    };
    Ok(decode_points(block, &mut points)?.then(|| {
        // The rest is scratch space.
        if !points.are_ints {
            points.ints.clear();
        } else {
            points.doubles.clear();
        }
        points.times_read = Default::default();
        points
    }))
}

/// Cells as points, if they are all of one kind and ascend.
fn points_of(cells: &CellList) -> Option<PointColumns> {
    let first = cells.iter().next()?;
    let width = columns::width(&first)?;
    let (mut times, mut ints, mut doubles) = (Vec::new(), Vec::new(), Vec::new());
    for cell in cells.iter() {
        if columns::width(&cell) != Some(width) || cell.family != first.family {
            return None;
        }
        let (flags, time) = match cell.qualifier {
            [a, b] => (b & 0xf, u32::from(u16::from_be_bytes([*a, *b])) >> 4),
            [a, b, c, d] => (d & 0xf, u32::from_be_bytes([*a, *b, *c, *d]) >> 4),
            _ => return None,
        };
        times.push(i64::from(time));
        match (flags, cell.value) {
            (0, [a]) => ints.push(i64::from(i8::from_be_bytes([*a]))),
            (1, value) => ints.push(i64::from(i16::from_be_bytes(value.try_into().unwrap()))),
            (3, value) => ints.push(i64::from(i32::from_be_bytes(value.try_into().unwrap()))),
            (7, value) => ints.push(i64::from_be_bytes(value.try_into().unwrap())),
            (11, value) => doubles.push(f64::from(f32::from_be_bytes(value.try_into().unwrap()))),
            (15, value) => doubles.push(f64::from_be_bytes(value.try_into().unwrap())),
            _ => return None,
        }
    }
    if ints.is_empty() == doubles.is_empty() {
        return None;
    }
    let points = PointColumns {
        qualifier_width: width,
        times,
        times_read: Default::default(),
        are_ints: doubles.is_empty(),
        ints,
        doubles,
    };
    points.ascends().then_some(points)
}

/// An OpenTSDB point: a 2-byte qualifier with the flags of the value.
fn point(seconds: u16, timestamp_ms: i64, flag: u16, value: &[u8]) -> Cell {
    let qualifier = seconds << 4 | flag | u16::try_from(value.len() - 1).unwrap();
    (0, qualifier.to_be_bytes().to_vec(), timestamp_ms, value.to_vec())
}

#[expect(clippy::cast_possible_truncation, reason = "the comparison detects the loss")]
fn float(seconds: u16, value: f64) -> Cell {
    let single = value as f32;
    let bytes = if f64::from(single) == value {
        single.to_be_bytes().to_vec()
    } else {
        value.to_be_bytes().to_vec()
    };
    point(seconds, 1_700_000_000_000, 8, &bytes)
}

#[test]
fn encodes_an_hour_of_integers_compactly() {
    let mut value = 0_i16;
    let cells: Vec<Cell> = (0..360_u16)
        .map(|n| {
            value += (i16::try_from(u32::from(n) * 7919 % 201).unwrap()) - 100;
            let bytes = if i8::try_from(value).is_ok() {
                vec![value.to_be_bytes()[1]]
            } else {
                value.to_be_bytes().to_vec()
            };
            point(n * 10, 1_700_000_000_000 + i64::from(n) * 10_000, 0, &bytes)
        })
        .collect();
    let bytes = bytes_of(&cells);
    assert!(bytes <= 360 + 45, "{bytes} bytes for 360 steps of 8 bits");
}

#[test]
fn encodes_an_hour_of_decimals_compactly() {
    let mut value = 1_000_i32;
    let cells: Vec<Cell> = (0..360_u16)
        .map(|n| {
            value += i32::try_from(u32::from(n) * 7919 % 201).unwrap() - 100;
            float(n * 10, f64::from(value) / 100.0)
        })
        .collect();
    assert!(cells.iter().any(|cell| cell.3.len() == 4) && cells.iter().any(|cell| cell.3.len() == 8));
    let bytes = bytes_of(&cells);
    assert!(bytes <= 360 + 40, "{bytes} bytes for 360 steps of 8 bits");
}

#[test]
fn encodes_decimal_singles_as_integers() {
    let cells: Vec<Cell> = (0..360_u16)
        .map(|n| point(n * 10, 0, 8, &(f32::from(n % 100) / 10.0).to_be_bytes()))
        .collect();
    assert!(bytes_of(&cells) <= 360 + 40);
}

#[test]
fn encodes_special_floats_exactly() {
    let odd = [
        f64::NAN,
        -0.0,
        f64::INFINITY,
        f64::MIN_POSITIVE,
        f64::MAX,
        1e300,
        0.1 + 0.2,
        f64::from_bits(0x7ff0_0000_0000_0001),
    ];
    let mut cells: Vec<Cell> = (0..100).map(|n| float(n, f64::from(n) / 4.0)).collect();
    for (n, value) in (100_u16..).zip(odd) {
        cells.push(point(n, 5, 8, &value.to_be_bytes()));
    }
    cells.push(point(200, 5, 8, &f32::from_bits(0x7f80_0001).to_be_bytes()));
    bytes_of(&cells);
    bytes_of(&cells[..104]);
    bytes_of(&cells[100..]);
}

#[test]
fn rejects_damaged_blocks() {
    let block = encode(&list(&[float(1, 1.5), (3, b"x".to_vec(), 7, b"y".to_vec())]));
    for index in 0..block.len() {
        let mut damaged = block.clone();
        damaged[index] ^= 0x10;
        assert!(decode(&damaged).is_err(), "byte {index}");
        assert!(decode(&block[..index]).is_err(), "cut at {index}");
    }
}

fn cells() -> impl Strategy<Value = Vec<Cell>> {
    let timestamp = prop_oneof![any::<i64>(), 1_700_000_000_000_i64..1_700_000_100_000];
    let qualifier = prop_oneof![vec(any::<u8>(), 0..6), vec(any::<u8>(), 2), vec(any::<u8>(), 4)];
    let any_cell = (0..16_u8, qualifier, timestamp.clone(), vec(any::<u8>(), 0..10));
    let points = (
        0..4096_u16,
        timestamp,
        0..2_u16,
        prop_oneof![Just(1_usize), Just(2), Just(4), Just(8), 1..9_usize],
        any::<i32>(),
    )
        .prop_map(|(seconds, timestamp_ms, float, length, number)| {
            let bytes = if float == 1 && length == 8 {
                (f64::from(number >> 12) / 100.0).to_be_bytes()
            } else {
                i64::from(number).to_be_bytes()
            };
            point(seconds, timestamp_ms, float * 8, &bytes[8 - length..])
        });
    vec(prop_oneof![any_cell, points.clone(), points], 0..200)
}

proptest! {
    #[test]
    fn arbitrary_cells_round_trip(mut cells in cells(), sorted: bool) {
        if sorted {
            cells.sort();
        }
        bytes_of(&cells);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(mut block in vec(any::<u8>(), 5..300), forms in any::<bool>()) {
        block[0] = VERSION;
        if forms {
            block[HEADER - 1] = 0x20;
        }
        let crc = crc32fast::hash(&block[HEADER..]);
        block[1..HEADER].copy_from_slice(&crc.to_be_bytes());
        drop(decode(&block));
    }
}
