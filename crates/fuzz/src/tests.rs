//! The driver finds planted mistakes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::hint::black_box;

use super::*;

/// Runs a decoder on a corpus of one file; returns the failure and the stored input.
fn failure(seed: &[u8], decode: &dyn Fn(&[u8]) -> Outcome) -> (String, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("seed"), seed).unwrap();
    let error = fuzz("planted", folder.path(), &|_| 0, decode)
        .unwrap_err()
        .to_string();
    let failed = files(folder.path()).unwrap().into_iter();
    let mut failed = failed.filter(|file| file != seed);
    (error, failed.next().unwrap())
}

#[test]
fn finds_and_shortens_an_input_that_panics() {
    let decode = |input: &[u8]| {
        let text = input.split(|byte| *byte == b'=').nth(1);
        // A length that is trusted.
        Ok(text.map_or(0, |text| text[..usize::from(text[0] & 3)].len()))
    };
    let (error, input) = failure(b"key=\x01value and more", &decode);
    assert!(error.starts_with("panicked; input: "), "{error}");
    assert!(input.len() <= 3, "{input:?}");
}

#[test]
fn finds_an_allocation_that_the_input_does_not_justify() {
    let decode = |input: &[u8]| match input {
        [1, high, low, ..] => {
            let count = u16::from_be_bytes([*high, *low]);
            Ok(black_box(Vec::<u64>::with_capacity(count.into())).capacity())
        }
        _ => Err("no count".to_owned()),
    };
    let (error, input) = failure(&[1, 0, 9, 0, 0], &decode);
    assert!(error.starts_with("allocated "), "{error}");
    assert_eq!((input.len(), input[0]), (3, 1));
}

#[test]
fn an_outcome_is_a_message_without_what_it_quotes() {
    let of = |message: &str| class(&Err(message.to_owned()));
    assert_eq!(of("offset 17 of `x`: too long"), "offset of too long");
    assert_eq!(
        of("offset 18 of `why`: too long"),
        of("offset 17 of `x`: too long")
    );
    assert_ne!(of("too short"), of("too long"));
    assert_eq!(class(&Ok(5)), class(&Ok(7)));
    assert_ne!(class(&Ok(5)), class(&Ok(8)));
}

#[test]
fn a_target_without_files_fails() {
    let folder = tempfile::tempdir().unwrap();
    let error = fuzz("empty", folder.path(), &|_| 0, &|_| Ok(0))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("no files in "), "{error}");
}
