use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn full(table: u16, row: &[u8], family: u8, qualifier: &[u8]) -> Vec<u8> {
    column(&row_prefix(table, row), family, qualifier)
}

/// Bytes with many zeros and common prefixes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(prop_oneof![Just(0), Just(1), Just(0xff), any::<u8>()], 0..20),
        (1_020..1_030_usize).prop_map(|length| vec![7; length]),
    ]
}

type Parts = (u16, Vec<u8>, u8, Vec<u8>);

fn parts() -> impl Strategy<Value = Parts> {
    (1..4_u16, bytes(), 0..3_u8, bytes())
}

#[test]
fn has_the_drawn_bytes() {
    let key = full(2, b"abcdefghi", 3, b"");
    let expected = [
        &b"\0\x02abcdefgh\x09i\0\0\0\0\0\0\0\x01"[..],
        b"\x03\0\0\0\0\0\0\0\0\0",
    ];
    assert_eq!(key, expected.concat());
    let value = stored(None, &[(2, b"new"), (-1, b"")]);
    let expected = [
        &b"\0\0\0\0\0\0\0\x02\0\0\0\x03new"[..],
        b"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
    ];
    assert_eq!(value, expected.concat());
}

#[test]
fn keys_are_shorter_than_64_kib() {
    let key = full(u16::MAX, &[0xff; 32_767], 15, &[0xff; 1_025]);
    assert!(key.len() < 65_535, "{}", key.len());
}

#[test]
fn gaps_include_the_rows_at_both_ends() {
    let gap = |start: &[u8], stop: &[u8]| Gap {
        start: start.to_vec(),
        stop: stop.to_vec(),
        detail: String::new(),
    };
    let after = [full(1, b"b", 0, b"q"), vec![0]].concat();
    let rows = rows_of(gap(&after, &full(2, b"d\0", 1, b"")));
    assert_eq!(
        (rows.start, rows.stop),
        (b"\0\x01b".to_vec(), b"\0\x02d\0\0".to_vec())
    );
    let rows = rows_of(gap(&TIME_KEY, b""));
    assert_eq!((rows.start, rows.stop), (vec![0, 0], vec![]));
}

proptest! {
    #[test]
    fn decode_reverses_encode((table, row, family, qualifier) in parts(), versions in vec((any::<i64>(), bytes()), 1..4)) {
        let key = full(table, &row, family, &qualifier);
        let versions: Vec<Version<'_>> = versions.iter().map(|(time, value)| (*time, value.as_slice())).collect();
        let stored = stored(long_qualifier(&qualifier), &versions);
        prop_assert_eq!(row_of(&key), Some(row.clone()));
        let length = row_prefix_len(&key).unwrap();
        prop_assert_eq!(&key[..length], row_prefix(table, &row));
        let mut inline_qualifier = Vec::new();
        let column = Column::decode(&key[length..], &stored, &mut inline_qualifier).unwrap();
        prop_assert_eq!(column.family, family);
        prop_assert_eq!(column.long_qualifier.unwrap_or(&inline_qualifier), &qualifier);
        prop_assert_eq!(column.versions().collect::<Option<Vec<_>>>(), Some(versions));
    }

    #[test]
    fn keys_are_in_the_order_of_their_parts(a in parts(), b in parts(), same in 0..4) {
        let mut b = b;
        if same > 0 { b.0 = a.0; }
        if same > 1 { b.1 = a.1.clone(); }
        if same > 2 { b.2 = a.2; }
        let inline = |parts: &Parts| parts.3.len() <= MAX_INLINE;
        prop_assume!(inline(&a) || inline(&b) || a.3 == b.3);
        let key = |(table, row, family, qualifier): &Parts| full(*table, row, *family, qualifier);
        prop_assert_eq!(a.cmp(&b), key(&a).cmp(&key(&b)));
        let (start, end) = bounds(row_prefix(a.0, &a.1));
        prop_assert_eq!(start <= key(&b) && key(&b) < end, (a.0, &a.1) == (b.0, &b.1));
        prop_assert_eq!(start <= key(&b), (a.0, &a.1) <= (b.0, &b.1));
        let (start, end) = bounds(family_prefix(&row_prefix(a.0, &a.1), a.2));
        let same_family = (a.0, &a.1, a.2) == (b.0, &b.1, b.2);
        prop_assert_eq!(start <= key(&b) && key(&b) < end, same_family);
    }

    #[test]
    fn any_bytes_decode_or_fail(key in vec(any::<u8>(), 0..60), value in vec(any::<u8>(), 0..60)) {
        let mut qualifier = Vec::new();
        if let Some(length) = row_prefix_len(&key) {
            let row = row_of(&key).unwrap();
            prop_assert_eq!(row_prefix(u16::from_be_bytes([key[0], key[1]]), &row).len(), length);
        }
        if let Some(column) = Column::decode(&full(1, b"", 0, b"q")[11..], &value, &mut qualifier) {
            prop_assert!(column.versions().count() <= value.len());
        }
        let column = Column::decode(&key, &value, &mut qualifier);
        prop_assert!(column.is_none_or(|column| column.versions().count() <= value.len()));
        rows_of(Gap { start: key.clone(), stop: key, detail: String::new() });
    }
}
