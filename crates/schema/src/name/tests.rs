use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Name, NameError> {
    Name::parse(text, &NameRules::default())
}

#[test]
fn names_take_one_byte_per_character() {
    assert_eq!(parse("sys.cpu.user").unwrap().as_bytes(), b"sys.cpu.user");
    assert_eq!(parse("a-Z_0/9").unwrap().as_bytes(), b"a-Z_0/9");
    // V48
    assert_eq!(parse("é").unwrap().as_bytes(), [0xe9]);
    assert_eq!(parse("é").unwrap().to_string(), "é");
}

#[test]
fn accepts_only_the_letters_of_latin1() {
    let allowed: Vec<u8> = (0x80..=0xff_u8)
        .filter(|byte| Name::parse_latin1(&[*byte], &NameRules::default()).is_ok())
        .collect();
    // Java's Character.isLetter for U+0080 to U+00FF.
    let letters: Vec<u8> = (0x80..=0xff_u8)
        .filter(|byte| char::from(*byte).is_alphabetic())
        .collect();
    assert_eq!(allowed, letters);
    assert_eq!(allowed.len(), 65);
}

#[test]
fn rejects_utf_8_names_over_telnet_at_the_second_byte() {
    // OpenTSDB reads telnet as ISO-8859-1: C3 A9 is `Ã©`, and `©` is not a letter.
    let error = Name::parse_latin1("é".as_bytes(), &NameRules::default()).unwrap_err();
    let name = "Ã©".to_owned();
    assert_eq!(
        error,
        NameError::IllegalCharacter {
            character: '©',
            position: 1,
            name
        }
    );
    // C2 AA are two letters.
    let name = Name::parse_latin1("ª".as_bytes(), &NameRules::default()).unwrap();
    assert_eq!(name.as_bytes(), [0xc2, 0xaa]);
}

#[test]
fn errors_name_the_value_and_the_rule() {
    let shown = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(shown(""), "name is empty");
    assert_eq!(
        shown("ä b!"),
        "name `ä b!` has the illegal character ` ` at position 1, allowed are letters, digits, \
         `-`, `_`, `.`, `/` and what --extra-name-characters of the UID service adds"
    );
    assert_eq!(
        shown("日本"),
        "name `日本` has the character `日`, which is not in ISO-8859-1 and cannot be stored"
    );
    let rules = NameRules {
        max_length: 3,
        ..NameRules::default()
    };
    assert_eq!(
        Name::parse("abcd", &rules).unwrap_err().to_string(),
        "name has 4 characters, at most 3 are allowed"
    );
    assert!(
        Name::parse("äöü", &rules).is_ok(),
        "three characters, six bytes of UTF-8"
    );
    assert!(parse(&"a".repeat(MAX_LENGTH_DEFAULT)).is_ok());
    assert!(parse(&"a".repeat(MAX_LENGTH_DEFAULT + 1)).is_err());
}

#[test]
fn accepts_extra_characters_of_latin1() {
    let rules = NameRules {
        extra_characters: " ©€".into(),
        ..NameRules::default()
    };
    assert_eq!(Name::parse("a ©", &rules).unwrap().as_bytes(), b"a \xa9");
    assert!(Name::parse_latin1(b"a \xa9", &rules).is_ok());
    assert!(matches!(
        Name::parse("€", &rules),
        Err(NameError::NotLatin1 { character: '€', .. })
    ));
    assert!(matches!(
        Name::parse("a!", &rules),
        Err(NameError::IllegalCharacter { position: 1, .. })
    ));
}

#[test]
fn accepts_any_stored_bytes_except_none() {
    // OpenTSDB's `uid assign` stores these.
    assert_eq!(
        Name::from_stored(b"a name!\x00\xff").unwrap().to_text(),
        "a name!\u{0}ÿ"
    );
    assert_eq!(Name::from_stored(b""), Err(NameError::Empty));
}

proptest! {
    #[test]
    fn names_round_trip_through_text(text in "[a-zA-Z0-9._/À-ÖØ-öø-ÿªµº-]{1,40}") {
        let name = parse(&text).unwrap();
        prop_assert_eq!(name.to_text(), text.clone());
        prop_assert_eq!(name.to_string(), text);
        prop_assert_eq!(Name::from_stored(name.as_bytes()).unwrap(), name.clone());
        prop_assert_eq!(Name::parse_latin1(name.as_bytes(), &NameRules::default()).unwrap(), name);
    }

    #[test]
    fn arbitrary_text_parses_to_a_name_or_an_error(text in any::<String>()) {
        if let Ok(name) = parse(&text) {
            prop_assert_eq!(name.to_text(), text);
        }
    }

    #[test]
    fn names_order_as_their_bytes(
        a in prop::collection::vec(any::<u8>(), 1..6),
        b in prop::collection::vec(any::<u8>(), 1..6),
    ) {
        let names = (Name::from_stored(&a).unwrap(), Name::from_stored(&b).unwrap());
        prop_assert_eq!(names.0.cmp(&names.1), a.cmp(&b));
    }
}

#[test]
fn error_truncates_long_names() {
    let long = format!("é!{}", "x".repeat(1 << 20));
    for error in [
        parse(&long).unwrap_err(),
        Name::parse_latin1(&[b'!'; 1 << 20], &NameRules::default()).unwrap_err(),
        parse(&format!("{}日", "x".repeat(1 << 20))).unwrap_err(),
    ] {
        let text = error.to_string();
        assert!(text.contains('…') && text.len() < 1000, "{text}");
    }
    assert_eq!(excerpt("sys.cpu"), "sys.cpu");
    assert_eq!(excerpt(&"é".repeat(256)), "é".repeat(256));
}
