use proptest::prelude::*;

use super::*;
use crate::row::CellKind;
use crate::salt::SaltLayout;
use crate::timestamp::MAX_MILLIS;

/// Annotations as OpenTSDB stores them: the received document, row, qualifier and value.
const STORED: &[(&str, &str, &str, &str)] = &[
    (
        // V52
        r#"{"startTime":1369141261,"tsuid":"000001000001000001","description":"Testing","notes":"n1"}"#,
        "000001519b6fd0000001000001",
        "01003d",
        r#"{"tsuid":"000001000001000001","startTime":1369141261,"endTime":0,"description":"Testing","notes":"n1","custom":null}"#,
    ),
    (
        // V53
        r#"{"startTime":1369141261500,"endTime":1369141262000,"tsuid":"000001000001000001","description":"ms","custom":{"b":"2","a":"1"}}"#,
        "000001519b6fd0000001000001",
        "010000f03c",
        r#"{"tsuid":"000001000001000001","startTime":1369141261500,"endTime":1369141262000,"description":"ms","notes":"","custom":{"a":"1","b":"2"}}"#,
    ),
    (
        // V54
        r#"{"startTime":1369141261,"endTime":1369141262,"description":"Global"}"#,
        "000000519b6fd0",
        "01003d",
        r#"{"startTime":1369141261,"endTime":1369141262,"description":"Global","notes":"","custom":null}"#,
    ),
    (
        // V55
        r#"{"startTime":1369141262000,"description":"ms on whole second"}"#,
        "000000519b6fd0",
        "01003e",
        r#"{"startTime":1369141262000,"endTime":0,"description":"ms on whole second","notes":"","custom":null}"#,
    ),
    (
        // V56
        r#"{"startTime":1369141000,"tsuid":"000001000001000001","description":"seconds divisible by 1000"}"#,
        "000001519b61c0000001000001",
        "010475",
        r#"{"tsuid":"000001000001000001","startTime":1369141000,"endTime":0,"description":"seconds divisible by 1000","notes":"","custom":null}"#,
    ),
];

fn tsuid_of(annotation: &Annotation) -> Option<Vec<u8>> {
    (!annotation.is_global()).then(|| hex::decode(&annotation.tsuid).unwrap())
}

#[test]
fn stores_opentsdbs_bytes() {
    let layout = RowKeyLayout::default();
    for (sent, row, qualified, value) in STORED {
        let annotation = Annotation::decode(sent.as_bytes()).unwrap();
        let start = Timestamp::from_opentsdb(annotation.start_time).unwrap();
        let tsuid = tsuid_of(&annotation);
        assert_eq!(hex::encode(row_key(&layout, tsuid.as_deref(), start)), *row);
        assert_eq!(hex::encode(qualifier(start)), *qualified);
        assert_eq!(String::from_utf8(annotation.to_stored()).unwrap(), *value);
        assert_eq!(Annotation::decode(value.as_bytes()).unwrap(), annotation);
    }
}

#[test]
fn salts_the_rows_of_series_only() {
    // V79, V80
    let layout = RowKeyLayout {
        salt: SaltLayout::new(1, 20).unwrap(),
        ..RowKeyLayout::default()
    };
    let start = Timestamp::from_seconds(1_356_998_405);
    let tsuid = hex::decode("000001000001000001").unwrap();
    let local = row_key(&layout, Some(&tsuid), start);
    assert_eq!(hex::encode(local), "0800000150e22700000001000001");
    assert_eq!(hex::encode(row_key(&layout, None, start)), "0000000050e22700");
}

#[test]
fn converts_scalars_as_opentsdb_does() {
    let read = |json: &str| Annotation::decode(json.as_bytes());
    let annotation = read(
        r#"{"startTime":" 5 ","endTime":7.9,"description":1.50,"notes":true,"bogus":[{}],
            "custom":{"a":1,"b":null,"c":true},"startTime":6}"#,
    )
    .unwrap();
    assert_eq!((annotation.start_time, annotation.end_time), (6, 7));
    assert_eq!(annotation.description.as_deref(), Some("1.50"));
    assert_eq!(annotation.notes.as_deref(), Some("true"));
    let custom: Vec<_> = annotation.custom.iter().flatten().collect();
    assert_eq!(
        custom,
        [
            (&"a".to_owned(), &Some("1".to_owned())),
            (&"b".to_owned(), &None),
            (&"c".to_owned(), &Some("true".to_owned()))
        ]
    );
    let annotation = read(r#"{"description":null,"startTime":null,"tsuid":null,"endTime":""}"#).unwrap();
    assert_eq!(
        String::from_utf8(annotation.to_stored()).unwrap(),
        r#"{"startTime":0,"endTime":0,"description":null,"notes":"","custom":null}"#
    );
    for wrong in [
        "",
        " ",
        "[]",
        "null",
        "\"x\"",
        "{",
        "{} x",
        r#"{"startTime":true}"#,
        r#"{"startTime":"abc"}"#,
        r#"{"startTime":92233720368547758070}"#,
        r#"{"description":{}}"#,
        r#"{"custom":["a"]}"#,
        r#"{"custom":"x"}"#,
        r#"{"custom":{"a":[1]}}"#,
    ] {
        let error = read(wrong).unwrap_err();
        assert!(
            error.to_string().starts_with("annotation is damaged: "),
            "{wrong}"
        );
    }
}

#[test]
fn sorts_custom_fields_by_utf_16_code_units() {
    let annotation =
        Annotation::decode("{\"custom\":{\"\u{ffff}\":\"1\",\"😀\":\"2\",\"a\":\"3\"}}".as_bytes()).unwrap();
    assert_eq!(
        String::from_utf8(annotation.to_stored()).unwrap(),
        "{\"startTime\":0,\"endTime\":0,\"description\":\"\",\"notes\":\"\",\
         \"custom\":{\"a\":\"3\",\"\\uD83D\\uDE00\":\"2\",\"\u{ffff}\":\"1\"}}"
    );
}

#[test]
fn times_are_compared_in_milliseconds() {
    assert_eq!(millis(1_369_141_261), 1_369_141_261_000);
    assert_eq!(millis(1_369_141_261_500), 1_369_141_261_500);
    assert_eq!(millis(4_294_967_295), 4_294_967_295_000);
    assert_eq!(millis(4_294_967_296), 4_294_967_296);
    assert_eq!(millis(-4), -4);
}

fn annotations() -> impl Strategy<Value = Annotation> {
    let text = || proptest::option::of("\\PC{0,8}|[\\x00-\\x1f\"\\\\😀é]{0,4}");
    let custom = proptest::option::of(proptest::collection::btree_map("\\PC{0,4}", text(), 0..4));
    (
        "[0-9a-fA-F]{0,18}",
        any::<i64>(),
        any::<i64>(),
        text(),
        text(),
        custom,
    )
        .prop_map(
            |(tsuid, start_time, end_time, description, notes, custom)| Annotation {
                tsuid,
                start_time,
                end_time,
                description,
                notes,
                custom,
            },
        )
}

proptest! {
    #[test]
    fn decode_reverses_to_stored(annotation in annotations()) {
        let stored = annotation.to_stored();
        prop_assert_eq!(Annotation::decode(&stored), Ok(annotation));
    }

    #[test]
    fn what_decodes_is_stored_in_one_form(json in "\\PC{0,40}|\\{(\"(startTime|description|custom)\":[0-9a-z\"{}.-]{0,6},?){0,3}\\}") {
        if let Ok(annotation) = Annotation::decode(json.as_bytes()) {
            let stored = annotation.to_stored();
            prop_assert_eq!(Annotation::decode(&stored).unwrap().to_stored(), stored);
        }
    }

    #[test]
    fn cells_are_recognised_and_lie_in_the_hour(start in 1..=MAX_MILLIS) {
        let start = Timestamp::from_opentsdb(start).unwrap();
        let qualifier = qualifier(start);
        prop_assert_eq!(CellKind::from_qualifier(&qualifier), CellKind::Annotation);
        prop_assert!(is_annotation(&qualifier) && !is_annotation(&qualifier[1..]));
        if start.is_millis() && start.as_millis() % 1000 != 0 {
            prop_assert_eq!(offset_ms(&qualifier), Some(i64::from(start.offset_ms())));
        }
        let row = row_key(&RowKeyLayout::default(), None, start);
        prop_assert_eq!(&row[3..], start.base_time().seconds().to_be_bytes());
    }

    #[test]
    fn a_whole_second_is_one_cell_in_both_units(seconds in 1..=u32::MAX) {
        prop_assume!(seconds % 1000 != 0 && i64::from(seconds) * 1000 > i64::from(u32::MAX));
        let in_millis = Timestamp::from_millis(i64::from(seconds) * 1000).unwrap();
        prop_assert_eq!(qualifier(Timestamp::from_seconds(seconds)), qualifier(in_millis));
    }
}
