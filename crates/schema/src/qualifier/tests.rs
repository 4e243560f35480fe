use proptest::prelude::*;

use super::*;

#[test]
fn seconds_take_2_bytes_and_milliseconds_4() {
    let qualifier = Qualifier::new(Timestamp::from_seconds(3599), &Value::Int(1));
    assert_eq!(qualifier.as_bytes(), [0xe0, 0xf0]);
    assert_eq!((qualifier.offset_ms(), qualifier.is_ms()), (3_599_000, false));
    let qualifier = Qualifier::new(Timestamp::from_millis(3_599_999).unwrap(), &Value::Double(1.0));
    assert_eq!(qualifier.as_bytes(), [0xfd, 0xbb, 0x9f, 0xcf]);
    assert_eq!((qualifier.offset_ms(), qualifier.is_ms()), (3_599_999, true));
    assert_eq!(
        (qualifier.flags(), qualifier.value_len(), qualifier.is_float()),
        (0xf, 8, true)
    );
    assert_eq!(qualifier.to_string(), "FDBB9FCF");
}

#[test]
fn reads_concatenated_qualifiers() {
    let bytes = hex::decode("0000f0007d0b001f").unwrap();
    let (first, rest) = Qualifier::read(&bytes).unwrap();
    let (second, rest) = Qualifier::read(rest).unwrap();
    let (third, rest) = Qualifier::read(rest).unwrap();
    assert_eq!(
        [first.offset_ms(), second.offset_ms(), third.offset_ms()],
        [0, 500, 1000]
    );
    assert_eq!(
        [first.value_len(), second.value_len(), third.value_len()],
        [1, 4, 8]
    );
    assert!(rest.is_empty());
}

#[test]
fn rejects_truncated_qualifiers() {
    let shown = |bytes: &[u8]| Qualifier::read(bytes).unwrap_err().to_string();
    assert_eq!(
        shown(&[]),
        "qualifier `` ends within a point, expected 2 more bytes"
    );
    assert_eq!(
        shown(&[0x12]),
        "qualifier `12` ends within a point, expected 1 more bytes"
    );
    assert_eq!(
        shown(&[0xf0, 0]),
        "qualifier `F000` ends within a point, expected 2 more bytes"
    );
}

#[test]
fn with_value_len_replaces_the_length() {
    let (qualifier, _) = Qualifier::read(&[0x00, 0x17]).unwrap();
    assert_eq!(qualifier.with_value_len(1).as_bytes(), [0x00, 0x10]);
    let (qualifier, _) = Qualifier::read(&[0xf0, 0, 0, 0x0f]).unwrap();
    assert_eq!(qualifier.with_value_len(4).as_bytes(), [0xf0, 0, 0, 0x0b]);
}

proptest! {
    #[test]
    fn qualifiers_round_trip(value in 1..=crate::timestamp::MAX_MILLIS, int in any::<i64>()) {
        for timestamp in [Timestamp::from_opentsdb(value), Timestamp::from_millis(value)] {
            let timestamp = timestamp.unwrap();
            for value in [Value::Int(int), Value::Float(1.0), Value::Double(1.0)] {
                let qualifier = Qualifier::new(timestamp, &value);
                let (read, rest) = Qualifier::read(qualifier.as_bytes()).unwrap();
                prop_assert_eq!((read, rest.len()), (qualifier, 0));
                prop_assert_eq!(read.offset_ms(), timestamp.offset_ms());
                prop_assert_eq!(read.is_ms(), timestamp.is_millis());
                prop_assert_eq!(read.flags(), value.flags());
                prop_assert_eq!(read.value_len(), value.encoded().as_bytes().len());
                prop_assert_eq!(read.is_float(), !value.is_int());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_decode_to_qualifiers_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..9)) {
        if let Ok((qualifier, rest)) = Qualifier::read(&bytes) {
            prop_assert_eq!([qualifier.as_bytes(), rest].concat(), bytes);
            prop_assert!(qualifier.offset_ms() < 1 << 22);
            prop_assert!((1..=8).contains(&qualifier.value_len()));
        }
    }

    #[test]
    fn qualifiers_order_as_their_bytes(a in any::<[u8; 4]>(), b in any::<[u8; 4]>()) {
        let (a, _) = Qualifier::read(&a).unwrap();
        let (b, _) = Qualifier::read(&b).unwrap();
        prop_assert_eq!(a.cmp(&b), a.as_bytes().cmp(b.as_bytes()));
    }
}
