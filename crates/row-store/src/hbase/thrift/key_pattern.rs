//! Filters that the region servers apply to row keys, in the text form that Thrift1 accepts.
//!
//! ```text
//!   RowFilter(=,'regexstring:\x00\x00\x02\x00\x00(?:[\x04\x07]|[^\x00-\x7f]+)')
//!                           └── prefix ──┘└────────── endings ───────────┘
//! ```
//!
//! HBase decodes a row key as UTF-8 before it matches the expression. A byte below 128 always becomes its own
//! character. Other bytes become characters above 127, several bytes one character where they happen to be valid,
//! and otherwise U+FFFD: they cannot be distinguished, nor counted. The pattern therefore accepts any of them
//! for each other. It accepts all keys that contain the parts, and some others, which the client filters.
//!
//! Source: HBase 2.6, `ParseFilter`, `RegexStringComparator.JavaRegexEngine`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::{KeyPart, RowFilter};

/// Characters that bytes above 127 can become.
const NOT_ASCII: &str = r"[^\x00-\x7f]+";
/// The largest filter, in bytes; larger ones are not sent.
const MAX_TEXT: usize = 64 << 10;
/// A pattern is precise if it accepts at most this many times as many keys as match.
const MOST_EXCESS: usize = 2;

/// A filter for HBase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyPattern {
    /// The text of the filter.
    pub(super) text: String,
    /// Whether most accepted keys contain the parts.
    pub(super) is_precise: bool,
}

impl KeyPattern {
    /// The pattern of a filter's parts; `None` if there are none, or too many.
    pub(super) fn from_filter(filter: &RowFilter) -> Option<Self> {
        let mut pattern = Self {
            text: String::new(),
            is_precise: true,
        };
        for part in filter.parts() {
            let (expression, accepted) = expression(part);
            pattern.is_precise &= accepted <= part.endings.len().saturating_mul(MOST_EXCESS);
            if !pattern.text.is_empty() {
                pattern.text.push_str(" AND ");
            }
            let _ = write!(pattern.text, "RowFilter(=,'regexstring:{expression}')");
            if pattern.text.len() > MAX_TEXT {
                return None;
            }
        }
        (!pattern.text.is_empty()).then_some(pattern)
    }
}

/// A regular expression for a part, and the number of endings that it accepts.
fn expression(part: &KeyPart) -> (String, usize) {
    // The last bytes of endings that begin alike.
    let mut groups: BTreeMap<&[u8], BTreeSet<u8>> = BTreeMap::new();
    for ending in &part.endings {
        match ending.split_last() {
            Some((last, first)) => groups.entry(first).or_default().insert(*last),
            None => return (bytes(&part.prefix), usize::MAX),
        };
    }
    let mut accepted = 0_usize;
    let mut alternatives: BTreeSet<String> = BTreeSet::new();
    // The end of the prefix accepts a whole run of other characters, so also the start of an ending that continues it.
    let continues = part.prefix.last().is_some_and(|byte| !byte.is_ascii());
    for (first, last) in &groups {
        let begin = bytes(first);
        let begins = 128_usize.saturating_pow(u32::try_from(not_ascii(first)).unwrap_or(u32::MAX));
        let ascii: Vec<u8> = last.iter().copied().filter(u8::is_ascii).collect();
        if !ascii.is_empty() {
            let class: String = ascii.iter().map(|byte| format!(r"\x{byte:02x}")).collect();
            if alternatives.insert(format!("{begin}[{class}]")) {
                accepted = accepted.saturating_add(begins.saturating_mul(ascii.len()));
            }
        }
        if last.iter().any(|byte| !byte.is_ascii())
            && alternatives.insert(format!("{}{NOT_ASCII}", begin.trim_end_matches(NOT_ASCII)))
        {
            accepted = accepted.saturating_add(begins.saturating_mul(128));
        }
    }
    let mut expression = bytes(&part.prefix);
    if !alternatives.is_empty() {
        let rest = |alternative: &String| match alternative.strip_prefix(NOT_ASCII) {
            Some(rest) if continues => rest.to_owned(),
            _ => alternative.clone(),
        };
        let alternatives: Vec<String> = alternatives.iter().map(rest).collect();
        let _ = write!(expression, "(?:{})", alternatives.join("|"));
    }
    (expression, accepted)
}

/// An expression for bytes, one after the other.
fn bytes(bytes: &[u8]) -> String {
    let mut expression = String::new();
    for run in bytes.chunk_by(|a, b| a.is_ascii() == b.is_ascii()) {
        match run.is_ascii() {
            true => expression.extend(run.iter().map(|byte| format!(r"\x{byte:02x}"))),
            false => expression.push_str(NOT_ASCII),
        }
    }
    expression
}

fn not_ascii(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| !byte.is_ascii()).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(parts: Vec<KeyPart>) -> KeyPattern {
        KeyPattern::from_filter(&RowFilter::new(|_| true).with_parts(parts)).unwrap()
    }

    fn part(prefix: &[u8], endings: &[&[u8]]) -> KeyPart {
        KeyPart {
            prefix: prefix.to_vec(),
            endings: endings.iter().map(|ending| ending.to_vec()).collect(),
        }
    }

    /// Whether HBase would send a row, by the expressions of a filter.
    fn accepts(pattern: &KeyPattern, key: &[u8]) -> bool {
        let key = String::from_utf8_lossy(key);
        pattern.text.split(" AND ").all(|filter| {
            let expression = filter.strip_prefix("RowFilter(=,'regexstring:");
            let expression = expression.and_then(|rest| rest.strip_suffix("')")).unwrap();
            regex::Regex::new(expression).unwrap().is_match(&key)
        })
    }

    #[test]
    fn groups_endings_by_their_last_byte() {
        let one = pattern(vec![part(&[0, 2], &[&[0, 4], &[0, 7], &[0, 0xc8], &[0, 0xff]])]);
        assert_eq!(
            one.text,
            r"RowFilter(=,'regexstring:\x00\x02(?:\x00[\x04\x07]|\x00[^\x00-\x7f]+)')"
        );
        assert!(!one.is_precise, "it accepts 130 endings for 4");
        let two = pattern(vec![part(&[1], &[&[4]]), part(&[2], &[&[5]])]);
        assert_eq!(two.text.matches("RowFilter").count(), 2);
        assert!(two.is_precise);
        let most: Vec<Vec<u8>> = (0..200).map(|last| vec![0, last]).collect();
        let most: Vec<&[u8]> = most.iter().map(Vec::as_slice).collect();
        assert!(pattern(vec![part(&[1], &most)]).is_precise);
        assert_eq!(KeyPattern::from_filter(&RowFilter::new(|_| true)), None);
    }

    #[test]
    fn rejects_other_keys() {
        let one = pattern(vec![part(&[0, 0, 2], &[&[0, 0, 4], &[0, 0, 0x27]])]);
        assert!(accepts(&one, &[9, 0xff, 0, 0, 2, 0, 0, 4, 1]) && accepts(&one, &[0, 0, 2, 0, 0, 0x27]));
        assert!(!accepts(&one, &[9, 0xff, 0, 0, 2, 0, 0, 5, 1]) && !accepts(&one, &[0, 0, 2, 0, 0]));
    }

    /// Bytes that HBase decodes in all ways: alone, as characters of two to four bytes, as malformed ones.
    fn byte() -> impl Strategy<Value = u8> {
        prop::sample::select(vec![0, 1, 0x27, 0x7f, 0x80, 0xa9, 0xbf, 0xc3, 0xe2, 0xf0, 0xff])
    }

    proptest! {
        #[test]
        fn accepts_every_key_that_contains_the_parts(
            front in prop::collection::vec(byte(), 0..4),
            prefix in prop::collection::vec(byte(), 0..4),
            endings in prop::collection::vec(prop::collection::vec(byte(), 0..4), 1..6),
            between in prop::collection::vec(byte(), 0..3),
            second in prop::collection::vec(byte(), 1..4),
            back in prop::collection::vec(byte(), 0..4),
        ) {
            for ending in &endings {
                let key = [&front, &prefix, ending, &between, &second, &back].map(Vec::as_slice).concat();
                let parts = vec![
                    KeyPart { prefix: prefix.clone(), endings: endings.clone() },
                    KeyPart { prefix: Vec::new(), endings: vec![second.clone()] },
                ];
                let pattern = pattern(parts);
                prop_assert!(accepts(&pattern, &key), "{} {:02x?}", pattern.text, key);
            }
        }
    }
}
