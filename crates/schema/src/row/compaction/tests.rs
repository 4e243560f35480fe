use proptest::prelude::*;

use super::*;
use crate::row::{Points, decode_row};
use crate::value::Value;

/// A cell that owns its bytes: qualifier, value, timestamp.
type Cell = (Vec<u8>, Vec<u8>, i64);

fn hex_cells(cells: &[(&str, &str, i64)]) -> Vec<Cell> {
    cells
        .iter()
        .map(|(q, v, at)| (hex::decode(q).unwrap(), hex::decode(v).unwrap(), *at))
        .collect()
}

fn refs(cells: &[Cell]) -> Vec<CellRef<'_>> {
    cells
        .iter()
        .map(|(qualifier, value, timestamp_ms)| CellRef {
            qualifier,
            value,
            timestamp_ms: *timestamp_ms,
        })
        .collect()
}

fn plan(cells: &[Cell], policy: DuplicatePolicy) -> Result<Option<RowCompaction>, RowError> {
    plan_compaction(&refs(cells), policy)
}

/// The points of a row: offset, flags and bytes. Values that are not numbers would differ from themselves.
fn decode(cells: &[Cell], policy: DuplicatePolicy) -> Result<Vec<(u32, u8, Vec<u8>)>, RowError> {
    let mut points = Points::new();
    decode_row(refs(cells), policy, &mut points)?;
    let encoded =
        |(offset_ms, value): (u32, Value)| (offset_ms, value.flags(), value.encoded().as_bytes().to_vec());
    Ok(points.iter().map(encoded).collect())
}

/// The row after each step of the plan: the writes, at `written_ms`, then each removal. A store keeps the newest
/// cell of a qualifier: a write older than it does not show when read back, and ends the compaction.
fn steps(cells: &[Cell], plan: &RowCompaction, written_ms: i64) -> Vec<Vec<Cell>> {
    let removed: Vec<_> = plan.remove.iter().map(|index| cells[*index].0.clone()).collect();
    let mut row = cells.to_vec();
    let mut is_shown = true;
    for new in plan.cells.iter().filter(|new| !new.is_stored) {
        if row
            .iter()
            .any(|cell| cell.0 == new.qualifier && cell.2 > written_ms)
        {
            is_shown = false;
            continue;
        }
        row.retain(|cell| cell.0 != new.qualifier);
        row.push((new.qualifier.clone(), new.value.clone(), written_ms));
        row.sort();
    }
    let mut steps = vec![row.clone()];
    if !is_shown {
        return steps;
    }
    for qualifier in removed {
        row.retain(|cell| cell.0 != qualifier);
        steps.push(row.clone());
    }
    steps
}

fn all_stored(plan: &RowCompaction) -> bool {
    plan.cells.iter().all(|cell| cell.is_stored)
}

/// A row after compaction, from and to hex cells in order.
fn compacted(cells: &[(&str, &str, i64)], policy: DuplicatePolicy) -> Vec<(String, String)> {
    let cells = hex_cells(cells);
    let row = match plan(&cells, policy).unwrap() {
        Some(plan) => steps(&cells, &plan, 1000).pop().unwrap(),
        None => cells,
    };
    row.iter()
        .map(|(q, v, _)| (hex::encode(q), hex::encode(v)))
        .collect()
}

fn row(cells: &[(&str, &str)]) -> Vec<(String, String)> {
    cells
        .iter()
        .map(|(q, v)| ((*q).to_owned(), (*v).to_owned()))
        .collect()
}

#[test]
fn rows_become_the_cells_that_opentsdb_makes_of_them() {
    let compacted = |cells: &[_]| compacted(cells, DuplicatePolicy::Error);
    // V59
    assert_eq!(
        compacted(&[
            ("0000", "01", 1),
            ("00a1", "012c", 1),
            ("0140", "fb", 1),
            ("01eb", "40900000", 1)
        ]),
        row(&[("000000a1014001eb", "01012cfb4090000000")])
    );
    // V60: seconds and milliseconds, in the order of qualifiers.
    assert_eq!(
        compacted(&[
            ("0000", "01", 1),
            ("001f", "3fb999999999999a", 1),
            ("f0007d0b", "40200000", 1),
            ("f0017703", "00011170", 1),
        ]),
        row(&[("0000f0007d0b001ff0017703", "01402000003fb999999999999a0001117001")])
    );
    // V61
    assert_eq!(
        compacted(&[("f0000040", "01", 1), ("fdbb9fc0", "02", 1)]),
        row(&[("f0000040fdbb9fc0", "010200")])
    );
    // V63: a point written after a compaction.
    assert_eq!(
        compacted(&[("000000a1014001eb", "01012cfb4090000000", 2), ("00f0", "09", 3)]),
        row(&[("000000a100f0014001eb", "01012c09fb4090000000")])
    );
    // V66, V67, V68: cells of old software.
    assert_eq!(
        compacted(&[("000b", "0000000040200000", 1), ("001b", "40200000", 1)]),
        row(&[("000b001b", "402000004020000000")])
    );
    assert_eq!(
        compacted(&[("000b", "0000000040200000", 1)]),
        row(&[("000b", "40200000")])
    );
    assert_eq!(
        compacted(&[("0007", "05", 1), ("0010", "0000000000000009", 1)]),
        row(&[("00000017", "05000000000000000900")])
    );
    // A missing and a wrong meta byte.
    for value in ["0102", "010201"] {
        assert_eq!(
            compacted(&[("00000010", value, 1)]),
            row(&[("00000010", "010200")])
        );
    }
}

#[test]
fn rows_in_final_form_stay() {
    for cells in [
        &[][..],
        // V62, V64
        &[("e0f0", "2a", 1)],
        &[("000000a1", "01012c00", 1)],
        // Only cells without points.
        &[("01003d", "7b7d", 1), ("060005", "2a00", 1), ("020020", "01", 1)],
        // Appended points, with and without others.
        &[("050000", "00002a", 1)],
        &[("0000", "01", 1), ("0010", "02", 1), ("050000", "00002a", 1)],
    ] {
        assert_eq!(plan(&hex_cells(cells), DuplicatePolicy::Error), Ok(None));
    }
}

/// OpenTSDB's fsck takes a longer cell with a qualifier that begins with 05 for appended points.
#[test]
fn no_compacted_cell_begins_as_appended_points() {
    type Case<'a> = (&'a [(&'a str, &'a str, i64)], &'a [(&'a str, &'a str)]);
    let cases: [Case<'_>; 4] = [
        (
            &[
                ("0500", "01", 1),
                ("05f0", "02", 1),
                ("0640", "03", 1),
                ("0650", "04", 1),
            ],
            &[("0500", "01"), ("05f0", "02"), ("06400650", "030400")],
        ),
        (&[("04f0", "01", 1), ("0500", "02", 1)], &[("04f00500", "010200")]),
        // As OpenTSDB compacts them.
        (
            &[("05000510", "010200", 1), ("0520", "03", 1)],
            &[("0500", "01"), ("0510", "02"), ("0520", "03")],
        ),
        (
            &[("0500", "01", 1), ("05f0", "02", 1)],
            &[("0500", "01"), ("05f0", "02")],
        ),
    ];
    for (cells, expected) in cases {
        assert_eq!(compacted(cells, DuplicatePolicy::Error), row(expected));
    }
}

#[test]
fn cells_without_points_stay() {
    assert_eq!(
        compacted(
            &[
                ("0000", "01", 1),
                ("0010", "02", 1),
                ("01003d", "7b7d", 1),
                ("020020", "01", 1),
                ("060005", "2a00", 1)
            ],
            DuplicatePolicy::Error
        ),
        row(&[
            ("00000010", "010200"),
            ("01003d", "7b7d"),
            ("020020", "01"),
            ("060005", "2a00")
        ])
    );
}

#[test]
fn duplicates_fail_or_keep_the_newest() {
    // V65, V71
    let cells = [("0000", "01", 1), ("000b", "40000000", 2)];
    assert!(matches!(
        plan(&hex_cells(&cells), DuplicatePolicy::Error),
        Err(RowError::Duplicate { .. })
    ));
    let kept = plan(&hex_cells(&cells), DuplicatePolicy::KeepNewest)
        .unwrap()
        .unwrap();
    assert_eq!((all_stored(&kept), &kept.remove[..]), (true, &[0][..]));
    assert_eq!((kept.stats.points, kept.stats.duplicates), (1, 1));
    // V72
    assert_eq!(
        compacted(
            &[("03c0", "01", 1), ("03d0", "03", 3), ("f03a9800", "02", 2)],
            DuplicatePolicy::KeepNewest
        ),
        row(&[("f03a980003d0", "020301")])
    );
    // Left by a compaction that ended before its removals: nothing is written again.
    let cells = hex_cells(&[("0000", "01", 1), ("00000010", "010200", 2), ("0010", "02", 1)]);
    let rest = plan(&cells, DuplicatePolicy::Error).unwrap().unwrap();
    assert_eq!((all_stored(&rest), rest.remove), (true, vec![2, 0]));
}

#[test]
fn older_values_are_removed_before_the_newest() {
    // The compacted cell already has the newest value of 0000, but is older than 000b and its rival.
    let cells = hex_cells(&[
        ("0000", "01", 9),
        ("00000010", "010200", 5),
        ("000b", "40000000", 7),
    ]);
    let plan = plan(&cells, DuplicatePolicy::KeepNewest).unwrap().unwrap();
    assert_eq!((all_stored(&plan), plan.remove), (true, vec![2, 0]));
}

#[test]
fn damaged_rows_are_errors() {
    for cells in [
        &[("0000", "01", 1), ("00000010", "01", 1)][..],
        &[("000b", "ffffffff40200000", 1)],
        &[("0002", "010203", 1), ("0010", "01", 1)],
        &[("0000f000", "0102", 1)],
    ] {
        for policy in [DuplicatePolicy::Error, DuplicatePolicy::KeepNewest] {
            let cells = hex_cells(cells);
            let decoded = decode(&cells, policy).unwrap_err();
            assert_eq!(plan(&cells, policy), Err(decoded));
        }
    }
}

/// Qualifiers of few instants, so that most rows have duplicates, with values of the right length most of the time.
fn points() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let flags = prop_oneof![Just(0x0_u8), Just(0x1), Just(0x3), Just(0xb), Just(0xf)];
    (0_u8..4, flags, any::<bool>(), prop::collection::vec(0_u8..3, 8)).prop_map(
        |(second, flags, is_ms, mut value)| {
            value.truncate(usize::from(flags & 7) + 1);
            let qualifier = if is_ms {
                let bits = 0xf000_0000 | (u32::from(second) * 1000) << 6 | u32::from(flags);
                bits.to_be_bytes().to_vec()
            } else {
                vec![0, second << 4 | flags]
            };
            (qualifier, value)
        },
    )
}

/// Rows of single points, compacted cells in any order, annotations, and now and then arbitrary bytes.
fn rows() -> impl Strategy<Value = Vec<Cell>> {
    let compacted = (prop::collection::vec(points(), 2..5), any::<bool>()).prop_map(|(points, has_meta)| {
        let (mut qualifier, mut value) = (Vec::new(), Vec::new());
        for (one_qualifier, one_value) in points {
            qualifier.extend(one_qualifier);
            value.extend(one_value);
        }
        if has_meta {
            value.push(0);
        }
        (qualifier, value)
    });
    let cell = prop_oneof![
        8 => points(),
        4 => compacted,
        1 => Just((vec![1, 0, 0x3d], b"{}".to_vec())),
        1 => (prop::collection::vec(any::<u8>(), 0..6), prop::collection::vec(any::<u8>(), 0..9)),
    ];
    prop::collection::vec((cell, 0..5_i64), 0..8).prop_map(|cells| {
        let mut row: Vec<Cell> = cells.into_iter().map(|((q, v), at)| (q, v, at)).collect();
        row.sort();
        row.dedup_by(|a, b| a.0 == b.0);
        row
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_step_keeps_all_points(
        cells in rows(),
        written_ms in 0..7_i64,
        policy in prop_oneof![Just(DuplicatePolicy::Error), Just(DuplicatePolicy::KeepNewest)],
    ) {
        let before = decode(&cells, policy);
        match plan(&cells, policy) {
            Err(error) => prop_assert_eq!(before, Err(error)),
            Ok(None) => {}
            Ok(Some(plan)) => {
                let before = before.unwrap();
                prop_assert_eq!(plan.stats.points, before.len());
                let steps = steps(&cells, &plan, written_ms);
                for row in &steps {
                    prop_assert_eq!(&decode(row, policy), &Ok(before.clone()));
                }
                let after = steps.last().unwrap();
                if *after == cells {
                    return Ok(());
                }
                prop_assert_eq!(super::plan_compaction(&refs(after), policy), Ok(None));
                // Cells without points are still there.
                let others = |row: &[Cell]| -> Vec<Cell> {
                    let has_points = |cell: &Cell| {
                        matches!(CellKind::from_qualifier(&cell.0), CellKind::Point | CellKind::Compacted)
                    };
                    row.iter().filter(|cell| !has_points(cell)).cloned().collect()
                };
                prop_assert_eq!(others(after), others(&cells));
                prop_assert_eq!(after.len(), others(after).len() + plan.cells.len());
            }
        }
    }

    #[test]
    fn a_plan_interrupted_anywhere_can_be_made_again(cells in rows(), written_ms in 0..7_i64) {
        let policy = DuplicatePolicy::KeepNewest;
        if let Ok(Some(first)) = plan(&cells, policy) {
            for row in steps(&cells, &first, written_ms) {
                if let Some(again) = plan(&row, policy).unwrap() {
                    prop_assert_eq!(decode(steps(&row, &again, 6).last().unwrap(), policy), decode(&cells, policy));
                }
            }
        }
    }
}
