use proptest::prelude::*;

use super::*;

fn width(bytes: usize) -> UidWidth {
    UidWidth::new(bytes).unwrap()
}

#[test]
fn uid_is_its_number_big_endian() {
    let uid = Uid::from_number(0x0f42, UidWidth::DEFAULT).unwrap();
    assert_eq!(uid.as_bytes(), [0x00, 0x0f, 0x42]);
    assert_eq!(uid.to_string(), "000F42");
    assert_eq!(uid.number(), 0x0f42);
    assert_eq!("000f42".parse(), Ok(uid));
}

#[test]
fn accepts_the_largest_number_of_each_width_and_rejects_the_next() {
    for bytes in 1..=8 {
        let width = width(bytes);
        let max = width.max_number();
        assert_eq!(Uid::from_number(max, width).unwrap().number(), max);
        let error = Uid::from_number(max + 1, width).unwrap_err();
        let expected = format!(
            "UID number {} does not fit {bytes} bytes, the largest is {max}",
            max + 1
        );
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(width(1).max_number(), 0xff);
    assert_eq!(width(3).max_number(), 0xff_ffff);
    assert_eq!(width(8).max_number(), 0x7fff_ffff_ffff_ffff);
}

#[test]
fn accepts_widths_of_1_to_8_bytes() {
    assert_eq!(UidWidth::default().bytes(), 3);
    for bytes in [0, 9, 256, 259, usize::MAX] {
        let error = UidWidth::new(bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{bytes} bytes is not a UID width, expected 1 to 8")
        );
    }
    assert_eq!(Uid::from_bytes(&[]), Err(UidError::Width { bytes: 0 }));
    assert_eq!(Uid::from_bytes(&[1; 9]), Err(UidError::Width { bytes: 9 }));
}

#[test]
fn rejects_texts_that_are_not_uids() {
    for text in ["", "1", "00000g", "000000000000000001", "é"] {
        let error = Uid::parse(text).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("`{text}` is not a UID, expected 1 to 8 bytes as hex")
        );
    }
}

#[test]
fn parses_kinds_by_name_and_qualifier() {
    for kind in UidKind::ALL {
        assert_eq!(kind.to_string().parse(), Ok(kind));
        assert_eq!(UidKind::from_qualifier(kind.qualifier()), Some(kind));
    }
    assert_eq!("metric".parse(), Ok(UidKind::Metric));
    assert_eq!(UidKind::from_qualifier(b"metric"), None);
    assert_eq!(
        "Metrics".parse::<UidKind>().unwrap_err().to_string(),
        "`Metrics` is not a kind of UID, expected metrics, tagk or tagv"
    );
}

#[test]
fn widths_depend_on_the_kind() {
    let widths = UidWidths {
        metric: width(4),
        tagk: width(2),
        tagv: width(5),
    };
    assert_eq!(UidKind::ALL.map(|kind| widths.get(kind).bytes()), [4, 2, 5]);
    assert_eq!(widths.tag_bytes(), 7);
}

proptest! {
    #[test]
    fn uid_from_number_equals_uid_from_bytes(number in any::<u64>(), bytes in 1_usize..=8) {
        let width = width(bytes);
        let number = number & width.max_number();
        let uid = Uid::from_number(number, width).unwrap();
        prop_assert_eq!(uid.number(), number);
        prop_assert_eq!(uid.width(), width);
        prop_assert_eq!(Uid::from_bytes(uid.as_bytes()), Ok(uid));
        prop_assert_eq!(Uid::parse(&uid.to_string()), Ok(uid));
        prop_assert_eq!(Uid::parse(&uid.to_string().to_lowercase()), Ok(uid));
    }

    #[test]
    fn arbitrary_bytes_decode_to_a_uid_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
        match Uid::from_bytes(&bytes) {
            Ok(uid) => prop_assert_eq!(uid.as_bytes(), bytes),
            Err(error) => prop_assert_eq!(error, UidError::Width { bytes: bytes.len() }),
        }
    }

    #[test]
    fn arbitrary_text_parses_to_a_uid_or_an_error(text in any::<String>()) {
        if let Ok(uid) = Uid::parse(&text) {
            prop_assert_eq!(uid.to_string(), text.to_uppercase());
        }
    }

    #[test]
    fn uids_order_as_their_bytes(
        a in prop::collection::vec(0_u8..3, 1..=8),
        b in prop::collection::vec(0_u8..3, 1..=8),
    ) {
        let uids = (Uid::from_bytes(&a).unwrap(), Uid::from_bytes(&b).unwrap());
        prop_assert_eq!(uids.0.cmp(&uids.1), a.cmp(&b));
    }
}
