use std::sync::Arc;

use oxtsdb_row_store::RowBuilder;
use oxtsdb_schema::{SaltLayout, UidWidths};

use super::*;

/// 2013-01-01 00:00 UTC.
const BASE_MS: i64 = 1_356_998_400_000;
const KEY: &str = "00000150e22700000001000001";
/// A day later: all timestamps below are old.
const SETTLED_MS: i64 = BASE_MS + 86_400_000;

fn layout() -> RowKeyLayout {
    RowKeyLayout {
        salt: SaltLayout::new(0, 20).unwrap(),
        widths: UidWidths::default(),
    }
}

fn plan_of(key: &str, cells: &[(&str, &str, i64)]) -> Result<PlannedRow, Stays> {
    let mut row = RowBuilder::new(&hex::decode(key).unwrap(), Arc::from(vec![FAMILY.to_owned()]));
    for (qualifier, value, after_base_ms) in cells {
        let (qualifier, value) = (hex::decode(qualifier).unwrap(), hex::decode(value).unwrap());
        row.push(0, &qualifier, BASE_MS + after_base_ms, &value);
    }
    plan_row(&row.finish().unwrap(), &layout(), SETTLED_MS)
}

#[test]
fn new_cell_and_removals_share_a_whole_second() {
    let planned = plan_of(
        KEY,
        &[
            ("0000", "01", 4_000_001),
            ("00f0", "09", 4_002_345),
            ("01003d", "7b7d", 9_000_000),
        ],
    );
    let planned = planned.unwrap();
    let at = BASE_MS + 4_003_000;
    assert_eq!(planned.rewrite.cells[0].put, Put::At(at));
    assert_eq!(planned.rewrite.cells[0].qualifier, [0, 0, 0, 0xf0]);
    assert_eq!(planned.rewrite.cells[0].value, [1, 9, 0]);
    let removed: Vec<_> = planned
        .rewrite
        .remove
        .iter()
        .map(|removal| (&*removal.qualifier, removal.up_to_ms))
        .collect();
    assert_eq!(removed, [(&[0, 0][..], at), (&[0, 0xf0][..], at)]);
    let key = 13 + 1;
    assert_eq!(
        planned.figures,
        Figures {
            compacted: 1,
            points: 2,
            cells_before: 2,
            cells_after: 1,
            bytes_before: 2 * (key + 3),
            bytes_after: key + 4 + 3,
            ..Figures::default()
        }
    );
}

#[test]
fn a_cell_that_is_stored_is_not_put_again() {
    let planned = plan_of(
        KEY,
        &[
            ("0000", "01", 4_000_000),
            ("000000f0", "010900", 5_000_000),
            ("00f0", "09", 4_000_000),
        ],
    );
    let planned = planned.unwrap();
    assert_eq!(planned.rewrite.cells[0].put, Put::Stored);
    assert_eq!(planned.rewrite.remove.len(), 2);
}

#[test]
fn rows_stay_for_a_reason() {
    let old = 4_000_000;
    let two = |first: i64, second: i64| vec![("0000", "01", first), ("00f0", "09", second)];
    for (cells, expected) in [
        (vec![("0000", "01", old)], Stays::Compact),
        (vec![("000000f0", "010900", old)], Stays::Compact),
        (vec![("01003d", "7b7d", old)], Stays::Compact),
        (
            vec![
                ("0000", "01", old),
                ("0010", "02", old),
                ("050000", "00002a", old),
            ],
            Stays::Appended,
        ),
        // The rounded timestamp must be old too.
        (two(old, 86_400_000), Stays::Recent),
        (two(old, 86_399_001), Stays::Recent),
        // Each cell has the timestamp of its point.
        (two(0, 15_000), Stays::DataTimestamps),
        (
            vec![("0000", "01", 0), ("00f00100", "090a00", 16_000)],
            Stays::DataTimestamps,
        ),
    ] {
        assert_eq!(plan_of(KEY, &cells).unwrap_err(), expected, "{cells:?}");
    }
    // One of them only by chance.
    assert!(plan_of(KEY, &two(0, 15_001)).is_ok());
    assert!(plan_of(KEY, &two(old, 86_399_000)).is_ok());
}

#[test]
fn problems_name_their_reason() {
    let problem = |key: &str, cells: &[(&str, &str, i64)]| match plan_of(key, cells).unwrap_err() {
        Stays::Problem(problem, detail) => (problem, detail),
        other => panic!("{other:?}"),
    };
    let conflict = problem(KEY, &[("0000", "01", 4_000_000), ("0001", "0002", 4_000_000)]);
    assert_eq!(conflict.0, Problem::Conflicting);
    assert!(conflict.1.contains("two points"), "{}", conflict.1);
    let damaged = problem(KEY, &[("000000f0", "01", 4_000_000), ("0010", "02", 4_000_000)]);
    assert_eq!(damaged.0, Problem::Damaged);
    let key = problem("000001", &[("0000", "01", 1), ("0010", "02", 1)]);
    assert_eq!(key.0, Problem::InvalidKey);
}

#[test]
fn rows_that_are_too_large_for_a_cell_stay() {
    let value = "00".repeat(MAX_POINT_BYTES);
    let stays = plan_of(KEY, &[("0000", "01", 4_000_000), ("000000f0", &value, 4_000_000)]);
    assert_eq!(stays.unwrap_err(), Stays::TooLarge);
    let alone = plan_of(KEY, &[("000000f0", &value, 4_000_000)]);
    assert_eq!(alone.unwrap_err(), Stays::Compact);
}
