//! Filters that the region servers apply to row keys.
//!
//! | [`RowFilter`](crate::RowFilter) | Filter of HBase | The server reads |
//! |---|---|---|
//! | ranges of keys | `MultiRowRangeFilter` | these ranges: it seeks from one to the next |
//! | parts of keys | `RowFilter` with a regular expression over bytes | every key, and the cells of keys that have the parts |
//! | seek hints alone | `FirstKeyOnlyFilter`, `KeyOnlyFilter` | every key; the rows of matching keys are requested by their keys |
//!
//! Each of them passes all rows that match, and some others: the client applies the whole filter.
//!
//! Source: HBase 2.6.1, `MultiRowRangeFilter`, `RegexStringComparator.JavaRegexEngine`, `FilterList`.

use std::fmt::Write as _;

use bytes::Bytes;
use prost::Message;

use super::messages::{
    BinaryComparator, ByteArrayComparable, CompareFilter, EQUAL, FilterList, JavaClass, KeyOnlyFilter,
    MultiRowRangeFilter, RegexStringComparator, RowFilterMessage, RowRange,
};
use crate::{KeyPart, Scan};

/// The most ranges of a filter.
pub(super) const MAX_RANGES: usize = 2_000;

/// The longest regular expression, in characters; a longer one is not sent.
const MAX_PATTERN: usize = 64 << 10;

/// `java.util.regex.Pattern.DOTALL`.
const DOTALL: i32 = 32;

/// How the servers filter a scan.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pushed {
    /// Not at all.
    Nothing,
    /// No row can match.
    NoRows,
    /// By a filter that passes few other rows.
    Filter(JavaClass),
    /// By listing keys; the rows of matching keys are read by their keys.
    Keys(JavaClass),
}

impl Pushed {
    /// The filter for a scan.
    pub(super) fn from_scan(scan: &Scan) -> Self {
        let Some(filter) = &scan.filter else {
            return Self::Nothing;
        };
        if !scan.reverse
            && let Some(ranges) = filter.ranges(&scan.start, &scan.stop, MAX_RANGES)
        {
            return if ranges.is_empty() {
                Self::NoRows
            } else {
                Self::Filter(range_filter(ranges))
            };
        }
        if let Some(of_parts) = part_filter(filter.parts()) {
            return Self::Filter(of_parts);
        }
        if filter.has_seek() && !filter.keeps_most() && scan.max_versions <= 1 {
            return Self::Keys(key_only_filter());
        }
        Self::Nothing
    }
}

/// A comparator that requires a value.
pub(super) fn equal_to(value: &[u8]) -> JavaClass {
    let comparator = BinaryComparator {
        comparable: ByteArrayComparable {
            value: Some(Bytes::copy_from_slice(value)),
        },
    };
    class("BinaryComparator", &comparator)
}

fn class(name: &str, message: &impl Message) -> JavaClass {
    JavaClass {
        name: format!("org.apache.hadoop.hbase.filter.{name}"),
        serialized: Some(message.encode_to_vec().into()),
    }
}

fn range_filter(ranges: Vec<(Vec<u8>, Vec<u8>)>) -> JavaClass {
    let range = |(start, stop): (Vec<u8>, Vec<u8>)| RowRange {
        start_row: Some(start.into()),
        start_row_inclusive: Some(true),
        stop_row: Some(stop.into()),
        stop_row_inclusive: Some(false),
    };
    let filter = MultiRowRangeFilter {
        row_range_list: ranges.into_iter().map(range).collect(),
    };
    class("MultiRowRangeFilter", &filter)
}

/// Requires all parts; `None` if there are none, or too many.
fn part_filter(parts: &[KeyPart]) -> Option<JavaClass> {
    let filters = parts.iter().map(|part| {
        let pattern = pattern(part);
        (pattern.len() <= MAX_PATTERN).then(|| {
            let comparator = RegexStringComparator {
                pattern,
                pattern_flags: DOTALL,
                // Each byte is a character.
                charset: "ISO-8859-1".to_owned(),
                engine: Some("JAVA".to_owned()),
            };
            let filter = RowFilterMessage {
                compare_filter: CompareFilter {
                    compare_op: EQUAL,
                    comparator: Some(class("RegexStringComparator", &comparator)),
                },
            };
            class("RowFilter", &filter)
        })
    });
    all(filters.collect::<Option<Vec<_>>>()?)
}

fn key_only_filter() -> JavaClass {
    let key_only = class("KeyOnlyFilter", &KeyOnlyFilter { len_as_val: false });
    let first = JavaClass {
        name: "org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter".to_owned(),
        serialized: Some(Bytes::new()),
    };
    list(vec![first, key_only])
}

/// All filters have to pass; `None` if there are none.
fn all(mut filters: Vec<JavaClass>) -> Option<JavaClass> {
    match filters.len() {
        0 => None,
        1 => filters.pop(),
        _ => Some(list(filters)),
    }
}

fn list(filters: Vec<JavaClass>) -> JavaClass {
    class("FilterList", &FilterList { operator: 1, filters })
}

/// An expression for a part: its prefix, directly followed by one of its endings.
fn pattern(part: &KeyPart) -> String {
    let mut pattern = String::new();
    let escape = |pattern: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(pattern, r"\x{byte:02x}");
        }
    };
    escape(&mut pattern, &part.prefix);
    for (index, ending) in part.endings.iter().enumerate() {
        pattern.push_str(if index == 0 { "(?:" } else { "|" });
        escape(&mut pattern, ending);
    }
    if !part.endings.is_empty() {
        pattern.push(')');
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RowFilter;

    fn part(prefix: &[u8], endings: &[&[u8]]) -> KeyPart {
        KeyPart {
            prefix: prefix.to_vec(),
            endings: endings.iter().map(|ending| ending.to_vec()).collect(),
        }
    }

    #[test]
    fn a_part_is_an_expression_over_bytes() {
        let one = part(&[0, 0xff], &[b"a", &[b'\\', 0x80]]);
        assert_eq!(pattern(&one), r"\x00\xff(?:\x61|\x5c\x80)");
        assert_eq!(pattern(&part(b"a", &[])), r"\x61");
    }

    #[test]
    fn the_most_precise_filter_is_sent() {
        let of = |filter: RowFilter, reverse: bool| {
            let mut scan = Scan::range("a", "z");
            (scan.filter, scan.reverse) = (Some(filter), reverse);
            match Pushed::from_scan(&scan) {
                Pushed::Filter(class) | Pushed::Keys(class) => {
                    class.name.rsplit('.').next().unwrap().to_owned()
                }
                other => format!("{other:?}"),
            }
        };
        let plain = || RowFilter::new(|_| true);
        let parts = || plain().with_parts(vec![part(b"a", &[b"b"])]).with_seek(|_| None);
        let ranges =
            |ranges: Vec<(Vec<u8>, Vec<u8>)>| parts().with_ranges(move |_, _, _| Some(ranges.clone()));
        assert_eq!(of(plain(), false), "Nothing");
        assert_eq!(of(plain().with_seek(|_| None), false), "FilterList");
        assert_eq!(
            of(plain().with_seek(|_| None).keeping_most(true), false),
            "Nothing"
        );
        assert_eq!(of(parts(), false), "RowFilter");
        assert_eq!(
            of(ranges(vec![(b"a".to_vec(), b"b".to_vec())]), false),
            "MultiRowRangeFilter"
        );
        assert_eq!(
            of(ranges(vec![(b"a".to_vec(), b"b".to_vec())]), true),
            "RowFilter",
            "ranges ascend"
        );
        assert_eq!(of(ranges(Vec::new()), false), "NoRows");
    }
}
