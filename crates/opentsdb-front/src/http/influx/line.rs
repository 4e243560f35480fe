//! Lines.
//!
//! ```text
//!   line         = measurement *("," key "=" value) " " field *("," field) [" " timestamp]
//!   field        = key "=" (number | integer "i" | unsigned "u" | boolean | quoted text)
//!   escapes      `\,` `\ ` in all names, `\=` in keys and values of tags and in keys of fields, `\"` `\\` in quoted texts
//! ```
//!
//! A line ends at a line feed outside of quotes. Empty lines and lines that begin with `#` are no points.
//!
//! Source: <https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/>.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter};
use oxtsdb_schema::Value;
use oxtsdb_schema::value::ValueError;

use crate::http::mapped::MOST_TAGS;

/// The most fields of a line; each field is a series with the measurement in its name.
const MOST_FIELDS: usize = 1000;

/// The most bytes of a measurement.
const MOST_MEASUREMENT: usize = 1024;

/// A line.
#[derive(Debug, PartialEq)]
pub(super) struct Line<'a> {
    pub(super) measurement: Cow<'a, str>,
    pub(super) tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub(super) fields: Vec<(Cow<'a, str>, FieldValue)>,
    /// In the unit of the request.
    pub(super) timestamp: Option<i64>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldValue {
    /// A number; an error if it is not finite.
    Number(Result<Value, ValueError>),
    /// A text, which no series has.
    Text,
}

/// A line that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineError<'a> {
    pub(super) reason: &'static str,
    /// The line as it was sent.
    pub(super) text: &'a [u8],
}

/// The lines of a body, with their numbers from 1.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    rest: &'a [u8],
    count: usize,
}

impl<'a> Lines<'a> {
    /// The lines of a part of a body, after `count` others.
    pub(super) const fn new(rest: &'a [u8], count: usize) -> Self {
        Self { rest, count }
    }

    /// The bytes that are left.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Lines that have ended.
    pub(super) const fn ended(&self) -> usize {
        self.count
    }

    /// Takes bytes up to the next line feed, and the line feed.
    fn take_line(&mut self) -> &'a [u8] {
        let end = memchr(b'\n', self.rest).unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.take_to(rest.get(1..).unwrap_or_default());
        line.trim_ascii_end()
    }

    /// Takes bytes up to `rest`, and counts the lines that end there.
    fn take_to(&mut self, rest: &'a [u8]) {
        let taken = self.rest.get(..self.rest.len() - rest.len()).unwrap_or_default();
        self.count += memchr_iter(b'\n', taken).count();
        self.rest = rest;
    }
}

impl<'a> Iterator for Lines<'a> {
    /// The number of the first line of a point, and the point.
    type Item = (usize, Result<Line<'a>, LineError<'a>>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.take_to(self.rest.trim_ascii_start());
            match self.rest.first() {
                None => return None,
                Some(b'#') => _ = self.take_line(),
                Some(_) => break,
            }
        }
        let number = self.count + 1;
        let mut parser = Parser { rest: self.rest };
        let line = match parser.line() {
            Ok(line) => {
                self.take_to(parser.rest);
                Ok(line)
            }
            Err(reason) => Err(LineError {
                reason,
                text: self.take_line(),
            }),
        };
        Some((number, line))
    }
}

const UNCLOSED: &str = "a quoted text has no end";

struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    fn line(&mut self) -> Result<Line<'a>, &'static str> {
        let measurement = self.name(b", ")?;
        if measurement.is_empty() {
            return Err("the measurement is empty");
        }
        if measurement.len() > MOST_MEASUREMENT {
            return Err("the measurement has more than 1024 bytes");
        }
        let mut tags = Vec::new();
        while self.takes(b',') {
            let key = self.name(b"=, ")?;
            if key.is_empty() || !self.takes(b'=') {
                return Err("a tag is not KEY=VALUE");
            }
            let value = self.name(b", ")?;
            if value.is_empty() {
                return Err("a tag has an empty value");
            }
            if tags.len() == MOST_TAGS {
                return Err("more than 64 tags");
            }
            tags.push((key, value));
        }
        self.spaces("fields are missing")?;
        let mut fields = Vec::new();
        loop {
            let key = self.name(b"=, ")?;
            if key.is_empty() || !self.takes(b'=') {
                return Err("a field is not KEY=VALUE");
            }
            if fields.len() == MOST_FIELDS {
                return Err("more than 1000 fields");
            }
            fields.push((key, self.value()?));
            if !self.takes(b',') {
                break;
            }
        }
        let mut timestamp = None;
        if !self.ends() {
            self.spaces("a field's value is followed by something else")?;
            if !self.ends() {
                let text = std::str::from_utf8(self.token(b" ")).ok();
                let number = text.and_then(|text| text.parse().ok());
                timestamp = Some(number.ok_or("the timestamp is no integer of 64 bits")?);
                self.skip_spaces();
                if !self.ends() {
                    return Err("the timestamp is followed by something else");
                }
            }
        }
        Ok(Line {
            measurement,
            tags,
            fields,
            timestamp,
        })
    }

    fn takes(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    /// Whether the line ends here.
    fn ends(&self) -> bool {
        self.rest.first().is_none_or(|byte| is_end(*byte))
    }

    fn skip_spaces(&mut self) {
        let spaces = self.rest.iter().take_while(|byte| **byte == b' ').count();
        self.rest = self.rest.get(spaces..).unwrap_or_default();
    }

    /// Takes one space or more.
    fn spaces(&mut self, otherwise: &'static str) -> Result<(), &'static str> {
        let before = self.rest.len();
        self.skip_spaces();
        if self.rest.len() == before {
            return Err(otherwise);
        }
        Ok(())
    }

    /// Takes bytes up to one of `ends`, or to the end of the line.
    fn token(&mut self, ends: &[u8]) -> &'a [u8] {
        let end = self
            .rest
            .iter()
            .position(|byte| ends.contains(byte) || is_end(*byte));
        let (token, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        token
    }

    /// Takes a name, up to a byte of `ends` that is not escaped.
    fn name(&mut self, ends: &[u8]) -> Result<Cow<'a, str>, &'static str> {
        let mut is_escaped = false;
        let mut end = 0;
        while let Some(byte) = self.rest.get(end) {
            if *byte == b'\\' && self.rest.get(end + 1).is_some_and(|next| is_special(*next)) {
                is_escaped = true;
                end += 2;
                continue;
            }
            if ends.contains(byte) || is_end(*byte) {
                break;
            }
            end += 1;
        }
        let (name, rest) = self.rest.split_at(end.min(self.rest.len()));
        self.rest = rest;
        let name = std::str::from_utf8(name).map_err(|_| "not valid UTF-8")?;
        if !is_escaped {
            return Ok(Cow::Borrowed(name));
        }
        let mut plain = String::with_capacity(name.len());
        let mut characters = name.chars().peekable();
        while let Some(character) = characters.next() {
            let next = characters.peek().copied();
            match (character, next.and_then(|next| u8::try_from(next).ok())) {
                ('\\', Some(next)) if is_special(next) => {}
                _ => plain.push(character),
            }
        }
        Ok(Cow::Owned(plain))
    }

    fn value(&mut self) -> Result<FieldValue, &'static str> {
        if self.takes(b'"') {
            let mut end = 0;
            while let Some(byte) = self.rest.get(end) {
                match byte {
                    b'\\' => end += 2,
                    b'"' => {
                        self.rest = self.rest.get(end + 1..).unwrap_or_default();
                        return Ok(FieldValue::Text);
                    }
                    _ => end += 1,
                }
            }
            return Err(UNCLOSED);
        }
        let text = std::str::from_utf8(self.token(b", ")).map_err(|_| "not valid UTF-8")?;
        number(text)
            .map(FieldValue::Number)
            .ok_or("a field's value is no number, boolean or quoted text")
    }
}

/// Bytes that end a line outside of quotes.
const fn is_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

/// Bytes that a backslash escapes in names.
const fn is_special(byte: u8) -> bool {
    matches!(byte, b',' | b'=' | b' ')
}

/// A number or a boolean.
fn number(text: &str) -> Option<Result<Value, ValueError>> {
    match text {
        "t" | "T" | "true" | "True" | "TRUE" => return Some(Ok(Value::Int(1))),
        "f" | "F" | "false" | "False" | "FALSE" => return Some(Ok(Value::Int(0))),
        _ => {}
    }
    if let Some(integer) = text.strip_suffix('i') {
        return integer.parse().ok().map(|integer| Ok(Value::Int(integer)));
    }
    if let Some(unsigned) = text.strip_suffix('u') {
        let unsigned: u64 = unsigned.parse().ok()?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "beyond 64 signed bits only a double has it"
        )]
        return Some(match i64::try_from(unsigned) {
            Ok(integer) => Ok(Value::Int(integer)),
            Err(_) => Value::double(unsigned as f64),
        });
    }
    // Rust also reads words, such as `inf`.
    let is_number = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    is_number.then(|| text.parse().ok()).flatten().map(Value::double)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str) -> Result<Line<'_>, &'static str> {
        let mut lines = Lines::new(text.as_bytes(), 0);
        let (_, line) = lines.next().unwrap();
        assert_eq!(lines.rest(), b"", "{text}");
        line.map_err(|error| error.reason)
    }

    fn pairs(line: &Line<'_>) -> Vec<(String, String)> {
        let pairs = line.tags.iter();
        pairs
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }

    #[test]
    fn reads_measurement_tags_fields_and_timestamp() {
        let line =
            one("cpu,host=a,cpu=cpu0 idle=97.5,count=3i,up=t,size=18446744073709551615u 1700000000000000000")
                .unwrap();
        assert_eq!(line.measurement, "cpu");
        assert_eq!(
            pairs(&line),
            [("host".into(), "a".into()), ("cpu".into(), "cpu0".into())]
        );
        let number = |value| FieldValue::Number(Ok(value));
        assert_eq!(
            line.fields,
            [
                ("idle".into(), number(Value::double(97.5).unwrap())),
                ("count".into(), number(Value::Int(3))),
                ("up".into(), number(Value::Int(1))),
                (
                    "size".into(),
                    number(Value::double(18_446_744_073_709_551_615.0).unwrap())
                ),
            ]
        );
        assert_eq!(line.timestamp, Some(1_700_000_000_000_000_000));
        let line = one("m v=-1.5e3").unwrap();
        assert_eq!((line.timestamp, line.tags.len()), (None, 0));
    }

    #[test]
    fn escapes_are_read() {
        let line = one(r#"my\ m\,x,k\ \=1=v\,\ 2,path=C:\dir f\ 1="a \"quoted\", text=1 \\",g=2 5"#).unwrap();
        assert_eq!(line.measurement, "my m,x");
        assert_eq!(
            pairs(&line),
            [("k =1".into(), "v, 2".into()), ("path".into(), r"C:\dir".into())]
        );
        assert_eq!(line.fields[0], ("f 1".into(), FieldValue::Text));
        assert_eq!((line.fields.len(), line.timestamp), (2, Some(5)));
    }

    #[test]
    fn lines_are_independent() {
        let body = "# comment\n\na v=1 1\r\nbad\nb v=\"two\nlines\",w=2 2\n  c v=3  3  \nd v=\"open";
        let lines: Vec<_> = Lines::new(body.as_bytes(), 0)
            .map(|(number, line)| {
                let line = line.map(|line| (line.measurement.to_string(), line.timestamp));
                (number, line.map_err(|error| error.reason))
            })
            .collect();
        assert_eq!(
            lines,
            [
                (3, Ok(("a".into(), Some(1)))),
                (4, Err("fields are missing")),
                (5, Ok(("b".into(), Some(2)))),
                (7, Ok(("c".into(), Some(3)))),
                (8, Err(UNCLOSED)),
            ]
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (line, reason) in [
            (",a=b v=1", "the measurement is empty"),
            ("m,a v=1", "a tag is not KEY=VALUE"),
            ("m,=b v=1", "a tag is not KEY=VALUE"),
            ("m,a= v=1", "a tag has an empty value"),
            ("m", "fields are missing"),
            ("m ", "a field is not KEY=VALUE"),
            ("m,a=b", "fields are missing"),
            ("m v", "a field is not KEY=VALUE"),
            ("m v=", "a field's value is no number, boolean or quoted text"),
            ("m v=1x", "a field's value is no number, boolean or quoted text"),
            ("m v=NaN", "a field's value is no number, boolean or quoted text"),
            (
                "m v=9223372036854775808i",
                "a field's value is no number, boolean or quoted text",
            ),
            ("m v=1,", "a field is not KEY=VALUE"),
            ("m v=\"a\"x 1", "a field's value is followed by something else"),
            ("m v=1 1.5", "the timestamp is no integer of 64 bits"),
            ("m v=1 1 2", "the timestamp is followed by something else"),
        ] {
            assert_eq!(one(line), Err(reason), "{line}");
        }
        let line = one("m v=1e999").unwrap();
        assert!(matches!(&line.fields[..], [(_, FieldValue::Number(Err(_)))]));
        let many = format!("m{} v=1", ",a=b".repeat(65));
        assert_eq!(one(&many), Err("more than 64 tags"));
    }

    proptest! {
        #[test]
        fn no_body_panics_and_every_byte_is_taken(body in "[ab,= \\\\\"\n#1i.\u{e9}-]{0,60}") {
            let mut lines = Lines::new(body.as_bytes(), 0);
            while lines.next().is_some() {}
            prop_assert_eq!(lines.rest(), b"");
        }

        #[test]
        fn escaped_names_are_read_back(measurement in "[a-z ,=]{1,8}", key in "[a-z ,=]{1,8}", value in "[a-z ,=]{1,8}") {
            let escaped = |name: &str| name.replace(',', "\\,").replace('=', "\\=").replace(' ', "\\ ");
            let text = format!("{},{}={} {}=1i 7", escaped(&measurement), escaped(&key), escaped(&value), escaped(&key));
            let line = one(&text).unwrap();
            prop_assert_eq!(&line.measurement, &measurement);
            prop_assert_eq!(pairs(&line), vec![(key.clone(), value)]);
            prop_assert_eq!(&line.fields[0].0, &key);
        }
    }
}
