use proptest::prelude::*;

use super::*;
use crate::row::{DuplicatePolicy, Points, compact, decode_row};
use crate::salt::SaltLayout;
use crate::timestamp::{BaseTime, Timestamp};
use crate::tsuid::Tsuid;
use crate::uid::{MetricUid, TagkUid, TagvUid, UidWidth, UidWidths};
use crate::value::Value;

/// Cells that own their bytes.
type Cells = Vec<(Vec<u8>, Vec<u8>, i64)>;

/// Findings by type.
type Counts = Vec<(RowFindingType, u64)>;

/// Qualifiers and values.
type HexCells = Vec<(String, String)>;

const HOUR: u32 = 1_356_998_400;

fn all_repaired(layout: RowKeyLayout) -> CheckRules {
    CheckRules {
        repair: RowFindingType::ALL.to_vec(),
        ..CheckRules::new(layout)
    }
}

fn layout(widths: [usize; 3], salt: usize) -> RowKeyLayout {
    let [metric, tagk, tagv] = widths.map(|bytes| UidWidth::new(bytes).unwrap());
    RowKeyLayout {
        salt: SaltLayout::new(salt, 20).unwrap(),
        widths: UidWidths { metric, tagk, tagv },
    }
}

fn key(layout: &RowKeyLayout, tags: &[(u64, u64)]) -> Vec<u8> {
    let widths = &layout.widths;
    let mut tags: Vec<_> = tags
        .iter()
        .map(|(tagk, tagv)| {
            let tagk = TagkUid::from_number(*tagk, widths.tagk).unwrap();
            (tagk, TagvUid::from_number(*tagv, widths.tagv).unwrap())
        })
        .collect();
    let metric = MetricUid::from_number(1, widths.metric).unwrap();
    let tsuid = Tsuid::new(metric, &mut tags).unwrap();
    let base = BaseTime::from_seconds_exact(HOUR).unwrap();
    crate::row_key::RowKey::new(layout, &tsuid, base)
        .as_bytes()
        .to_vec()
}

fn hex_cells(cells: &[(&str, &str)]) -> Cells {
    let cell = |(index, (qualifier, value)): (usize, &(&str, &str))| {
        let time = 1000 + i64::try_from(index).unwrap();
        (hex::decode(qualifier).unwrap(), hex::decode(value).unwrap(), time)
    };
    cells.iter().enumerate().map(cell).collect()
}

fn refs(cells: &Cells) -> Vec<CellRef<'_>> {
    cells
        .iter()
        .map(|(qualifier, value, timestamp_ms)| CellRef {
            qualifier,
            value,
            timestamp_ms: *timestamp_ms,
        })
        .collect()
}

fn check(cells: &Cells, rules: &CheckRules) -> RowCheck {
    check_row(&key(&rules.layout, &[(1, 1)]), &refs(cells), rules, &|_, _| false)
}

/// The cells after a repair; its conditions must hold.
fn apply(cells: &Cells, changes: &[RowChange]) -> Cells {
    let mut stored: BTreeMap<Vec<u8>, (Vec<u8>, i64)> = cells
        .iter()
        .map(|(qualifier, value, time)| (qualifier.clone(), (value.clone(), *time)))
        .collect();
    for change in changes {
        assert_eq!(stored.get(&change.qualifier), change.old.as_ref(), "{change:?}");
        match &change.new {
            Some(new) => drop(stored.insert(change.qualifier.clone(), new.clone())),
            None => drop(stored.remove(&change.qualifier)),
        }
    }
    stored
        .into_iter()
        .map(|(qualifier, (value, time))| (qualifier, value, time))
        .collect()
}

fn points(cells: &Cells) -> Vec<(u32, Value)> {
    let mut points = Points::new();
    decode_row(refs(cells), DuplicatePolicy::Error, &mut points).unwrap();
    points.iter().collect()
}

/// The types that are found in a row, with their counts, and its cells after the repair, as hex.
fn found(cells: &[(&str, &str)], rules: &CheckRules) -> (Counts, HexCells) {
    let cells = hex_cells(cells);
    let check = check(&cells, rules);
    // Conditions alone are no repair.
    assert!(check.changes.is_empty() || check.changes.iter().any(|change| change.old != change.new));
    let repaired = apply(&cells, &check.changes);
    let counts = check
        .findings
        .iter()
        .map(|finding| (finding.finding, finding.count));
    let hex = |(qualifier, value, _): &(Vec<u8>, Vec<u8>, i64)| (hex::encode(qualifier), hex::encode(value));
    (counts.collect(), repaired.iter().map(hex).collect())
}

#[test]
fn repairs_each_damage_of_cells() {
    use RowFindingType as T;
    type Shown<'a> = &'a [(&'a str, &'a str)];
    let rules = all_repaired(RowKeyLayout::default());
    let cases: &[(T, Shown<'_>, Shown<'_>)] = &[
        (T::UnknownCell, &[("00", "01"), ("0000", "01")], &[("0000", "01")]),
        (T::UnknownCell, &[("01000000000000", "01")], &[]),
        (T::UnknownCell, &[("f000", "01")], &[]),
        (T::FutureCell, &[("020000", "01")], &[]),
        (
            T::ValueLength,
            &[("0002", "010203"), ("0010", "01")],
            &[("0010", "01")],
        ),
        (T::ValueLength, &[("000b", "0100000041200000")], &[]),
        (T::ValueLength, &[("f0000007", "05")], &[]),
        (T::WrongFlags, &[("0007", "05")], &[("0000", "05")]),
        (T::WrongFlags, &[("000f", "41200000")], &[("000b", "41200000")]),
        (
            T::FloatLength,
            &[("000b", "0000000041200000")],
            &[("000b", "41200000")],
        ),
        (
            T::FloatLength,
            &[("000b", "ffffffff41200000")],
            &[("000b", "41200000")],
        ),
        (T::CompactedLength, &[("00000010", "01")], &[]),
        (T::CompactedLength, &[("00000010", "01020300")], &[]),
        (T::MetaByte, &[("00000010", "010207")], &[("00000010", "010200")]),
        (
            T::MetaByteMismatch,
            &[("00000010", "010201")],
            &[("00000010", "010200")],
        ),
        (
            T::MetaByteMismatch,
            &[("0000f0007d00", "0102")],
            &[("0000f0007d00", "010201")],
        ),
        (
            T::CompactedOrder,
            &[("002000000010", "03010200")],
            &[("000000100020", "01020300")],
        ),
        (
            T::AppendedCutOff,
            &[("050000", "0000010010")],
            &[("050000", "000001")],
        ),
        (T::AppendedCutOff, &[("050000", "00")], &[]),
        (T::BeyondHour, &[("e100", "01")], &[]),
        (T::BeyondHour, &[("0000e100", "010200")], &[("0000", "01")]),
        (T::BeyondHour, &[("010e10", r"7b7d")], &[]),
        (
            T::ValueLength,
            &[("000000120020", "010102030300")],
            &[("00000020", "010300")],
        ),
        (
            T::Redundant,
            &[("0000", "01"), ("00000010", "010200")],
            &[("00000010", "010200")],
        ),
        (
            T::Duplicate,
            &[("0000", "01"), ("0001", "0101")],
            &[("0000", "01")],
        ),
        (T::Duplicate, &[("00000000", "010200")], &[("0000", "01")]),
        (T::LongInteger, &[("0007", "0000000000000005")], &[("0000", "05")]),
        (T::UnreadableAnnotation, &[("010000", "7b")], &[]),
        (T::UnreadableHistogram, &[("060000", "")], &[]),
    ];
    for (finding, cells, expected) in cases {
        let (types, repaired) = found(cells, &rules);
        assert_eq!(types, [(*finding, 1)], "{cells:?}");
        let expected: Vec<_> = expected
            .iter()
            .map(|(qualifier, value)| ((*qualifier).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(repaired, expected, "{cells:?}");
    }
}

#[test]
fn the_policy_selects_the_duplicate() {
    let mut rules = CheckRules::new(RowKeyLayout::default());
    // The first cell is the oldest.
    let cells: &[_] = &[("0000", "01"), ("00000010", "020300"), ("000b", "3f800000")];
    let (types, oldest) = found(cells, &rules);
    assert_eq!(types, [(RowFindingType::Duplicate, 2)]);
    assert_eq!(
        oldest,
        [
            ("0000".to_owned(), "01".to_owned()),
            ("0010".to_owned(), "03".to_owned())
        ]
    );
    rules.keep = KeepDuplicate::Newest;
    let (_, newest) = found(cells, &rules);
    assert_eq!(
        newest,
        [
            ("000b".to_owned(), "3f800000".to_owned()),
            ("0010".to_owned(), "03".to_owned())
        ]
    );
}

#[test]
fn a_corrected_integer_is_shortened_too() {
    let rules = all_repaired(RowKeyLayout::default());
    let (types, repaired) = found(&[("0100", "ffffffffff000000")], &rules);
    assert_eq!(
        types,
        [(RowFindingType::WrongFlags, 1), (RowFindingType::LongInteger, 1)]
    );
    assert_eq!(repaired, [("0103".to_owned(), "ff000000".to_owned())]);
}

#[test]
fn a_corrected_cell_may_take_the_qualifier_of_a_lost_one() {
    let rules = CheckRules {
        keep: KeepDuplicate::Newest,
        ..CheckRules::new(RowKeyLayout::default())
    };
    let (types, repaired) = found(&[("0000", "01"), ("0007", "05")], &rules);
    assert_eq!(
        types,
        [(RowFindingType::WrongFlags, 1), (RowFindingType::Duplicate, 1)]
    );
    assert_eq!(repaired, [("0000".to_owned(), "05".to_owned())]);
}

#[test]
fn what_is_left_alone_is_not_removed() {
    let mut rules = all_repaired(RowKeyLayout::default());
    rules
        .repair
        .retain(|finding| *finding != RowFindingType::Duplicate);
    // Correcting the meta byte would need one cell with two points of an instant.
    let cells = hex_cells(&[("00000000", "010207")]);
    let check = check(&cells, &rules);
    assert_eq!(check.findings.len(), 2);
    assert_eq!(check.changes, []);
    rules.repair.clear();
    for cells in [
        [("00", "01")],
        [("0002", "010203")],
        [("050000", "00")],
        [("00000010", "01")],
    ] {
        let cells = hex_cells(&cells);
        let check = super::check_row(&key(&rules.layout, &[(1, 1)]), &refs(&cells), &rules, &|_, _| {
            false
        });
        assert_eq!((check.findings.len(), check.changes.len()), (1, 0), "{cells:?}");
    }
}

#[test]
fn finds_bad_keys() {
    use RowFindingType as T;
    let salted = layout([3, 3, 3], 1);
    let plain = RowKeyLayout::default();
    let good = key(&plain, &[(1, 1)]);
    let mut other_salt = key(&salted, &[(1, 1)]);
    other_salt[0] ^= 1;
    let mut minute = good.clone();
    minute[6] ^= 1;
    let swapped = [&good[..7], &[0, 0, 2, 0, 0, 1, 0, 0, 1, 0, 0, 1]].concat();
    let twice = [&good[..7], &[0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 2]].concat();
    let cases = [
        (good[..6].to_vec(), plain, T::BadKey),
        (good[..12].to_vec(), plain, T::BadKey),
        (good[..7].to_vec(), plain, T::NoTags),
        (minute, plain, T::BaseTime),
        (swapped, plain, T::TagOrder),
        (twice, plain, T::TagOrder),
        (other_salt, salted, T::WrongSalt),
    ];
    let cells = hex_cells(&[("0000", "01"), ("010000", "7b")]);
    for (key, layout, expected) in cases {
        let check = check_row(&key, &refs(&cells), &all_repaired(layout), &|_, _| false);
        let types: Vec<_> = check.findings.iter().map(|finding| finding.finding).collect();
        assert_eq!(types, [expected]);
        assert!(expected.is_of_key());
        assert_eq!(apply(&cells, &check.changes), []);
        // Only what is certainly of no use is removed without an option.
        let check = check_row(&key, &refs(&cells), &CheckRules::new(layout), &|_, _| false);
        assert_eq!(check.changes.len() == 2, expected.is_repaired(), "{expected:?}");
    }
    let orphan = check_row(&good, &refs(&cells), &all_repaired(plain), &|kind, _| {
        kind == UidKind::Tagv
    });
    assert_eq!(orphan.findings[0].message, "tagv UID 000001 has no name");
    assert_eq!(orphan.changes.len(), 2);
    assert_eq!(row_uids(&good, &plain).len(), 3);
    assert_eq!(row_uids(&good[..6], &plain), []);
    let global = [&[0, 0, 0][..], &HOUR.to_be_bytes()].concat();
    assert_eq!(row_uids(&global, &plain), []);
    let annotation = hex_cells(&[("010000", &hex::encode(r#"{"startTime":1}"#))]);
    let check = check_row(&global, &refs(&annotation), &all_repaired(plain), &|_, _| true);
    assert_eq!(check, RowCheck::default());
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        (-200_i64..200).prop_map(Value::Int),
        (-1e9_f32..1e9).prop_map(Value::Float),
        (-1e300..1e300).prop_map(Value::Double),
    ]
}

/// A row of points at different instants, each in one of the forms, with annotations and histograms.
fn healthy() -> impl Strategy<Value = Cells> {
    let offsets = prop::collection::btree_map(0..3_600_000_u32, (value(), any::<bool>(), 0..4_u8), 0..40);
    offsets.prop_map(|points| {
        let mut cells = Vec::new();
        let (mut appended, mut columns) = (Vec::new(), [Vec::new(), Vec::new()]);
        let mut seen = std::collections::BTreeSet::new();
        for (offset_ms, (value, is_ms, form)) in points {
            let offset_ms = if is_ms { offset_ms } else { offset_ms / 1000 * 1000 };
            if !seen.insert(offset_ms) {
                continue;
            }
            let timestamp = if is_ms {
                Timestamp::from_millis(i64::from(HOUR) * 1000 + i64::from(offset_ms)).unwrap()
            } else {
                Timestamp::from_seconds(HOUR + offset_ms / 1000)
            };
            let qualifier = crate::Qualifier::new(timestamp, &value);
            match form {
                0 => cells.push((
                    qualifier.as_bytes().to_vec(),
                    value.encoded().as_bytes().to_vec(),
                    7,
                )),
                1 => {
                    let mut point = Vec::new();
                    crate::row::append_point(qualifier, value.encoded().as_bytes(), &mut point);
                    // In order of arrival.
                    appended = [point, appended].concat();
                }
                column => columns[usize::from(column) - 2].push((timestamp, value)),
            }
        }
        for column in columns {
            if let Ok((qualifier, value)) = compact(column) {
                cells.push((qualifier, value, 9));
            }
        }
        cells.push((vec![5, 0, 0], appended, 8));
        cells.push((
            vec![1, 0, 5],
            br#"{"tsuid":"000001000001000001","startTime":1,"endTime":0}"#.to_vec(),
            1,
        ));
        cells.push((vec![6, 0, 5], vec![0, 0, 0, 0], 1));
        cells.sort();
        cells.dedup_by(|one, other| one.0 == other.0);
        cells
    })
}

fn any_cells() -> impl Strategy<Value = Cells> {
    let qualifier = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..12),
        prop::collection::vec(
            prop_oneof![Just(0_u8), Just(0xf0), Just(1), Just(0x10), Just(0x0b)],
            0..8
        ),
        Just(vec![5, 0, 0]),
    ];
    let value = prop::collection::vec(prop_oneof![Just(0_u8), Just(0xff), any::<u8>()], 0..20);
    let cells = prop::collection::btree_map(qualifier, (value, 0..4_i64), 0..8);
    cells.prop_map(|cells| {
        let cell = |(qualifier, (value, time))| (qualifier, value, time);
        cells.into_iter().map(cell).collect()
    })
}

proptest! {
    #[test]
    fn a_healthy_row_has_no_findings(
        cells in healthy(), widths in [1..=8_usize, 1..=8, 1..=8], salt in 0..=8_usize,
    ) {
        let rules = all_repaired(layout(widths, salt));
        let key = key(&rules.layout, &[(1, 7), (2, 3)]);
        let check = check_row(&key, &refs(&cells), &rules, &|_, uid| uid.number() > 7);
        prop_assert_eq!(check, RowCheck::default());
    }

    #[test]
    fn a_repair_leaves_nothing_to_find(cells in any_cells(), newest in any::<bool>()) {
        let mut rules = all_repaired(RowKeyLayout::default());
        if newest {
            rules.keep = KeepDuplicate::Newest;
        }
        let first = check(&cells, &rules);
        prop_assert_eq!(first.findings.is_empty(), first.changes.is_empty());
        let repaired = apply(&cells, &first.changes);
        prop_assert_eq!(check(&repaired, &rules), RowCheck::default());
        points(&repaired);
    }

    #[test]
    fn any_rules_keep_what_they_do_not_repair(cells in any_cells(), repair in any::<u32>()) {
        let mut rules = all_repaired(RowKeyLayout::default());
        let mut bits = repair;
        rules.repair.retain(|_| { bits = bits.rotate_right(1); bits & 1 == 1 });
        let first = check(&cells, &rules);
        let repaired = apply(&cells, &first.changes);
        let left = check(&repaired, &rules);
        if !first.changes.is_empty() {
            // Once is enough.
            prop_assert_eq!(left.changes, []);
        }
    }

    #[test]
    fn healthy_points_survive_the_repair_of_damaged_cells(healthy in healthy(), damaged in any_cells()) {
        let rules = all_repaired(RowKeyLayout::default());
        let expected = points(&healthy);
        let instants: std::collections::BTreeSet<u32> = {
            // Of the damaged cells, whatever can be read: these instants may change.
            let mut offsets = std::collections::BTreeSet::new();
            for cell in refs(&damaged) {
                let mut decoded = Vec::new();
                drop(crate::row::decode_cell(cell, &mut decoded));
                offsets.extend(decoded.iter().map(|point| point.qualifier.offset_ms()));
                if let Ok((qualifier, _)) = crate::Qualifier::read(cell.qualifier) {
                    offsets.insert(qualifier.offset_ms());
                }
            }
            offsets
        };
        let mut cells = healthy;
        for cell in damaged {
            if !cells.iter().any(|(qualifier, _, _)| *qualifier == cell.0) {
                cells.push(cell);
            }
        }
        cells.sort();
        let check = check(&cells, &rules);
        let repaired = points(&apply(&cells, &check.changes));
        for point in expected {
            prop_assert!(instants.contains(&point.0) || repaired.contains(&point), "{:?}", point);
        }
    }

    #[test]
    fn any_key_is_checked(bytes in prop::collection::vec(any::<u8>(), 0..40), widths in [1..=8_usize, 1..=8, 1..=8], salt in 0..=8_usize) {
        let rules = all_repaired(layout(widths, salt));
        let cells = hex_cells(&[("0000", "01")]);
        let check = check_row(&bytes, &refs(&cells), &rules, &|_, uid| uid.number() % 2 == 0);
        prop_assert_eq!(check.findings.is_empty(), check.changes.is_empty());
    }
}
