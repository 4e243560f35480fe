//! Java's properties files, the form of `opentsdb.conf`.
//!
//! ```text
//!   # comment      ! comment
//!   key = value    key: value    key value        the first of the three ends the key
//!   long = first,\
//!          second                                 blanks before `second` are not part of the value
//!   \t \n \r \f \u00e9, \= and any other          escapes, in keys and values
//! ```
//!
//! Bytes are ISO-8859-1. Of a key that is there twice the last one counts.
//!
//! Source: Java 17, `java.util.Properties.load`, which OpenTSDB 2.4's `Config.loadConfig` calls.

use std::collections::BTreeMap;

use thiserror::Error;

/// Why a file is no properties file. Nearly every text is one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line} has `\\u` without four hexadecimal digits behind it")]
pub(crate) struct PropertiesError {
    /// The first line of the setting, from 1.
    pub(crate) line: usize,
}

/// Reads all settings, by key.
///
/// # Errors
///
/// [`PropertiesError`] for a broken `\u` escape.
pub(crate) fn parse(bytes: &[u8]) -> Result<BTreeMap<String, String>, PropertiesError> {
    // ISO-8859-1: each byte is the character of its number.
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    let mut settings = BTreeMap::new();
    let mut lines = natural_lines(&text).zip(1..);
    while let Some((line, number)) = lines.next() {
        let line = line.trim_start_matches(is_blank);
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = line.to_owned();
        while continues(&logical) {
            logical.pop();
            let Some((next, _)) = lines.next() else { break };
            logical.push_str(next.trim_start_matches(is_blank));
        }
        let (key, value) = key_and_value(&logical);
        let error = PropertiesError { line: number };
        settings.insert(
            unescape(key).ok_or_else(|| error.clone())?,
            unescape(value).ok_or(error)?,
        );
    }
    Ok(settings)
}

/// Lines end in `\n`, `\r` or both.
fn natural_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n')
        .flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\x0c')
}

/// Whether the last backslash is not itself escaped.
fn continues(line: &str) -> bool {
    let backslashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
    backslashes % 2 == 1
}

/// Splits at the first separator that is not escaped; both parts still have their escapes.
fn key_and_value(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line
        .find(|character| {
            let ends = !escaped && (is_blank(character) || matches!(character, '=' | ':'));
            escaped = !escaped && character == '\\';
            ends
        })
        .unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let rest = rest.trim_start_matches(is_blank);
    let value = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, value.trim_start_matches(is_blank))
}

/// `None` if `\u` lacks its digits.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    // Java's characters are UTF-16, so two escapes can make one character.
    let mut utf16 = Vec::new();
    while let Some(character) = characters.next() {
        let unescaped = match character {
            '\\' => match characters.next() {
                Some('u') => {
                    utf16.push(four_digits(&mut characters)?);
                    continue;
                }
                Some('t') => Some('\t'),
                Some('n') => Some('\n'),
                Some('r') => Some('\r'),
                Some('f') => Some('\x0c'),
                // None: a backslash at the very end, which Java drops.
                other => other,
            },
            plain => Some(plain),
        };
        out.push_str(&String::from_utf16_lossy(&utf16));
        utf16.clear();
        out.extend(unescaped);
    }
    out.push_str(&String::from_utf16_lossy(&utf16));
    Some(out)
}

fn four_digits(characters: &mut std::str::Chars<'_>) -> Option<u16> {
    let mut unit = 0;
    for _ in 0..4 {
        let digit = characters.next()?.to_digit(16)?;
        unit = unit << 4 | u16::try_from(digit).ok()?;
    }
    Some(unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str) -> (String, String) {
        let settings = parse(text.as_bytes()).unwrap();
        assert_eq!(settings.len(), 1, "{settings:?}");
        settings.into_iter().next().unwrap()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn the_three_separators_and_blanks_around_them() {
        for text in ["a.b=1", "a.b = 1", "  a.b:1", "a.b 1", "a.b\t: 1", "a.b=1\r\n"] {
            assert_eq!(one(text), pair("a.b", "1"), "{text:?}");
        }
        assert_eq!(one("a"), pair("a", ""));
        assert_eq!(one("a ="), pair("a", ""));
        assert_eq!(one("a = b = c"), pair("a", "b = c"));
        assert_eq!(
            one("a = 1  "),
            pair("a", "1  "),
            "blanks at the end belong to the value"
        );
    }

    #[test]
    fn comments_and_empty_lines_are_no_settings() {
        assert_eq!(parse(b"# a = 1\n  ! b = 2\n\n \t \n").unwrap(), BTreeMap::new());
        assert_eq!(one("a = # no comment"), pair("a", "# no comment"));
    }

    #[test]
    fn lines_are_continued_by_an_odd_number_of_backslashes() {
        assert_eq!(one("a = 1,\\\n    2,\\\r\n3"), pair("a", "1,2,3"));
        let two = parse(b"a = 1\\\\\nb = 2").unwrap();
        assert_eq!(two["a"], "1\\");
        assert_eq!(two["b"], "2");
        assert_eq!(one("a = 1\\"), pair("a", "1"));
        assert_eq!(one("a = 1\\\n# no comment"), pair("a", "1# no comment"));
    }

    #[test]
    fn escapes_in_keys_and_values() {
        assert_eq!(one(r"a\=b\:c\ d = \t\u00e9\q\\."), pair("a=b:c d", "\téq\\."));
        assert_eq!(one(r"a = \ud83d\ude00"), pair("a", "😀"));
        assert_eq!(parse(b"\na = \\u00g1"), Err(PropertiesError { line: 2 }));
        assert_eq!(parse(b"a = \\u00"), Err(PropertiesError { line: 1 }));
    }

    #[test]
    fn bytes_are_latin1_and_the_last_of_a_key_counts() {
        assert_eq!(parse(b"a = 1\na = \xe9").unwrap()["a"], "é");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_text_of_special_characters_panics(text in r"[\\\\ut0f\n\r =:#!a]{0,40}") {
            let _ = parse(text.as_bytes());
        }

        #[test]
        fn what_is_written_is_read(key in "[a-z.]{1,20}", value in "[a-zA-Z0-9.,/_-]{0,20}") {
            prop_assert_eq!(one(&format!("{key} = {value}")), (key, value));
        }
    }
}
