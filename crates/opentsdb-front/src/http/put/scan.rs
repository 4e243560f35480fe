//! Scans JSON bodies as clients usually send them, in one pass and without a copy.
//!
//! ```text
//!   body    point | "[" [ point { "," point } ] "]"
//!   point   "{" the four fields, once each, in any order "}"
//!   field   "metric": text | "timestamp": digits | "value": text or number | "tags": tags
//!   tags    "{" text ":" text { "," text ":" text } "}"
//!   text    a string of printable characters without escapes
//! ```
//!
//! Returns nothing for all other bodies, valid or not, which [`body`](super::body) parses. Tags are checked but not
//! parsed: a known series is looked up by their text.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::point::{DEDUPLICATED_TAGS, PutPoint, PutTags};

/// Digits of a timestamp, at most; they fit in 63 bits.
const MAX_TIMESTAMP_DIGITS: usize = 18;

/// Scans a body of at most `max_points` points.
pub(super) fn scan(body: &str, max_points: usize) -> Option<Vec<Option<PutPoint<'_>>>> {
    let mut scanner = Scanner { text: body, at: 0 };
    // A point has about 100 characters; a wrong guess only costs a copy.
    let mut points = Vec::with_capacity((body.len() / 100 + 1).min(max_points));
    if scanner.peek()? == b'[' {
        scanner.at += 1;
        loop {
            if points.len() == max_points {
                return None;
            }
            points.push(Some(scanner.point()?));
            if !scanner.comma_or(b']')? {
                break;
            }
        }
    } else {
        points.push(Some(scanner.point()?));
    }
    scanner.peek().is_none().then_some(points)
}

/// The tags of a text that [`scan`] has returned. Of tags with one key, the last value counts, in the place of the
/// first.
pub(super) fn tags(text: &str) -> SmallVec<[(&str, &str); 8]> {
    let mut scanner = Scanner { text, at: 0 };
    let mut tags = SmallVec::<[(&str, &str); 8]>::new();
    while let Some((key, value)) = scanner.tag() {
        match tags.iter_mut().find(|(earlier, _)| *earlier == key) {
            Some(earlier) => earlier.1 = value,
            None => tags.push((key, value)),
        }
        if scanner.expect(b',').is_none() {
            break;
        }
    }
    tags
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// The next byte behind white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.as_bytes().get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Whether a comma is next; if not, `end` is.
    fn comma_or(&mut self, end: u8) -> Option<bool> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Some(true),
            byte if byte == end => Some(false),
            _ => None,
        }
    }

    fn point(&mut self) -> Option<PutPoint<'a>> {
        let (mut metric, mut timestamp, mut value, mut tags) = (None, None, None, None);
        self.expect(b'{')?;
        loop {
            let name = self.text()?;
            self.expect(b':')?;
            let is_first = match name {
                "metric" => metric.replace(self.text()?).is_none(),
                "timestamp" => timestamp.replace(self.timestamp()?).is_none(),
                "value" => value.replace(self.value()?).is_none(),
                "tags" => tags.replace(self.tags()?).is_none(),
                _ => false,
            };
            if !is_first {
                return None;
            }
            if !self.comma_or(b'}')? {
                break;
            }
        }
        Some(PutPoint {
            metric: Some(Cow::Borrowed(metric?)),
            timestamp: timestamp?,
            value: Some(Cow::Borrowed(value?)),
            tags: PutTags::Text(tags?),
        })
    }

    fn text(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        let end = start + text_len(self.rest());
        self.at = end + 1;
        (self.text.as_bytes().get(end)? == &b'"').then_some(())?;
        self.text.get(start..end)
    }

    fn timestamp(&mut self) -> Option<i64> {
        let first = self.peek()?;
        let mut number = 0_i64;
        let mut digits = 0;
        for byte in self.rest() {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            if digits == MAX_TIMESTAMP_DIGITS {
                return None;
            }
            number = number * 10 + i64::from(digit);
            digits += 1;
        }
        self.at += digits;
        // JSON has no leading zeros. In any other number, neither a comma nor a brace follows the digits.
        (digits > 0 && (first != b'0' || digits == 1)).then_some(number)
    }

    /// The text of a string or number.
    fn value(&mut self) -> Option<&'a str> {
        if self.peek()? == b'"' {
            return self.text();
        }
        let start = self.at;
        self.at += usize::from(self.rest().first() == Some(&b'-'));
        let whole = self.at;
        self.digits()?;
        if self.text.as_bytes().get(whole) == Some(&b'0') && self.at - whole > 1 {
            return None;
        }
        if self.rest().first() == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let [b'e' | b'E', rest @ ..] = self.rest() {
            self.at += 1 + usize::from(matches!(rest, [b'+' | b'-', ..]));
            self.digits()?;
        }
        self.text.get(start..self.at)
    }

    fn digits(&mut self) -> Option<()> {
        let digits = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        self.at += digits;
        (digits > 0).then_some(())
    }

    /// The text between the braces.
    fn tags(&mut self) -> Option<&'a str> {
        self.expect(b'{')?;
        let start = self.at;
        for _ in 0..DEDUPLICATED_TAGS {
            self.tag()?;
            if !self.comma_or(b'}')? {
                return self.text.get(start..self.at - 1);
            }
        }
        None
    }

    fn tag(&mut self) -> Option<(&'a str, &'a str)> {
        let key = self.text()?;
        self.expect(b':')?;
        Some((key, self.text()?))
    }
}

/// Bytes before the first quote, backslash or control character.
fn text_len(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_be_bytes(*word);
        let ends = zeros(word ^ repeat(b'"')) | zeros(word ^ repeat(b'\\')) | zeros(word & repeat(0xe0));
        if ends != 0 {
            return index * 8 + ends.leading_zeros() as usize / 8;
        }
    }
    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    words.len() * 8 + tail.iter().position(is_end).unwrap_or(tail.len())
}

/// The upper bit of each byte that is 0.
const fn zeros(word: u64) -> u64 {
    !(((word & repeat(0x7f)) + repeat(0x7f)) | word | repeat(0x7f))
}

/// A word of equal bytes.
const fn repeat(byte: u8) -> u64 {
    u64::from_be_bytes([byte; 8])
}

#[cfg(test)]
mod tests;
