//! Limits the number of values in a JSON body, because a few bytes of JSON can take hundreds in memory.
//!
//! [`count_checked`] limits all values of a body before it is parsed: nested lists, maps, unknown fields.
//! [`FirstOf`] limits a list of large elements.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use memchr::{memchr2, memchr3_iter};
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::http::error::HttpError;

/// Most values in the body of a query: elements of arrays and members of objects. At about 100 bytes each they
/// take 50 MiB. A thousand sub-queries with a hundred tags each have a fifth of them.
const MAX_VALUES: usize = 500_000;

/// Counts the values of a body and rejects more than [`MAX_VALUES`].
pub(crate) fn count_checked(content: &[u8]) -> Result<usize, HttpError> {
    let values = count_values(content, MAX_VALUES);
    if values <= MAX_VALUES {
        return Ok(values);
    }
    Err(HttpError::bad_request(format!(
        "body has more than {MAX_VALUES} JSON values"
    )))
}

/// The number of values in a JSON text; counting stops above `limit`. For other bytes the number is arbitrary.
fn count_values(content: &[u8], limit: usize) -> usize {
    let mut count = 0;
    let mut rest = content;
    while !rest.is_empty() && count <= limit {
        let text = memchr::memchr(b'"', rest).unwrap_or(rest.len());
        let (plain, rest_of_text) = rest.split_at(text);
        // A comma precedes each value but the first of an array or object.
        count += memchr3_iter(b',', b'[', b'{', plain).count();
        rest = after_string(rest_of_text);
    }
    count
}

/// The bytes after the string at their start.
fn after_string(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes.get(1..).unwrap_or_default();
    while let Some(place) = memchr2(b'"', b'\\', rest) {
        let is_end = rest.get(place) == Some(&b'"');
        let skipped = if is_end { 1 } else { 2 };
        rest = rest.get(place + skipped..).unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}

/// The first `MAX` elements of an array. Further elements are counted and dropped: `{},` has 3 bytes in a body
/// and takes about a hundred in memory.
#[derive(Clone, Debug)]
pub(in crate::http) struct FirstOf<T, const MAX: usize> {
    pub(in crate::http) kept: Vec<T>,
    /// Number of all elements.
    pub(in crate::http) count: usize,
}

impl<T, const MAX: usize> Default for FirstOf<T, MAX> {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            count: 0,
        }
    }
}

impl<T, const MAX: usize> Deref for FirstOf<T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.kept
    }
}

impl<'a, T, const MAX: usize> IntoIterator for &'a FirstOf<T, MAX> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.iter()
    }
}

impl<T: Serialize, const MAX: usize> Serialize for FirstOf<T, MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.kept.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for FirstOf<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FirstOfVisitor(PhantomData))
    }
}

struct FirstOfVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for FirstOfVisitor<T, MAX> {
    type Value = FirstOf<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut first = FirstOf::default();
        while first.kept.len() < MAX
            && let Some(element) = elements.next_element()?
        {
            first.kept.push(element);
        }
        first.count = first.kept.len();
        if first.count == MAX {
            while elements.next_element::<IgnoredAny>()?.is_some() {
                first.count += 1;
            }
        }
        Ok(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_drops_elements_beyond_the_limit() {
        for (text, kept, count) in [("[]", 0, 0), ("[1,2,3]", 3, 3), (r#"[1,2,3,{"a":[4]},5]"#, 3, 5)] {
            let first: FirstOf<u8, 3> = serde_json::from_str(text).unwrap();
            assert_eq!((first.kept.len(), first.count), (kept, count), "{text}");
        }
    }

    #[test]
    fn counts_nested_values() {
        let count = |text: &str| count_values(text.as_bytes(), usize::MAX);
        assert_eq!(count(r#"{"a":[1,2,{"b":3,"c":[]}],"d":4}"#), 8);
        assert_eq!(count("[{},{},{}]"), 6);
        // Separators within strings do not count.
        assert_eq!(count(r#"["a,b","{[\",\\",","]"#), 3);
        assert_eq!(count(r#"["not closed,,,"#), 1);
        assert_eq!(
            count_values(b"[1,2,3,4,5] {\"\":{},\"\":{}}", 3),
            6,
            "counting stops above the limit"
        );
    }

    #[test]
    fn rejects_bodies_with_too_many_values() {
        let body = |values: usize| format!("[{}]", vec!["\"\""; values].join(","));
        assert_eq!(count_checked(body(MAX_VALUES).as_bytes()).unwrap(), MAX_VALUES);
        let error = count_checked(body(MAX_VALUES + 1).as_bytes()).unwrap_err();
        assert_eq!(error.message, "body has more than 500000 JSON values");
    }

    proptest::proptest! {
        #[test]
        fn counts_arbitrary_bytes(bytes: Vec<u8>) {
            count_values(&bytes, usize::MAX);
        }
    }
}
