//! The JSON of stored documents, byte for byte as OpenTSDB serialises it.
//!
//! OpenTSDB edits a document by check-and-put against its own serialisation of what it has read, so a document with
//! other bytes can never be edited by it again. [`to_bytes`] serialises a type's fields in the order of their
//! declaration:
//!
//! ```text
//!   blanks      none
//!   escapes     \" \\ \b \f \n \r \t, \u00XX (upper-case hex) for other characters below 0x20, and both surrogates of
//!               characters above U+FFFF (\uD83D\uDE00); all others raw, UTF-8
//!   doubles     Java's text form: 100.0, 1.0E10; NaN and infinities as the strings "NaN", "Infinity", "-Infinity"
//! ```
//!
//! Source: Jackson's `JsonGenerator` with its defaults, as OpenTSDB 2.4's `JSON.serializeToBytes` calls it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter, Serializer};

use crate::java;

/// Serialises a document.
///
/// # Panics
///
/// If the type's `Serialize` fails: a map with keys that are not strings.
pub fn to_bytes<T: Serialize + ?Sized>(document: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    let mut serializer = Serializer::with_formatter(&mut bytes, Jackson(CompactFormatter));
    if let Err(error) = document.serialize(&mut serializer) {
        panic!("a stored document has string keys only: {error}");
    }
    bytes
}

/// The etag of a stored document: 16 hexadecimal digits that depend on its bytes only, the same in every process.
/// Empty if nothing is stored.
pub fn etag(stored: Option<&[u8]>) -> String {
    stored.map_or_else(String::new, |bytes| format!("{:016x}", hash(bytes)))
}

/// A hash of bytes that is the same in every process: FNV-1a, 64 bits. Not for bytes that an adversary chooses.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Serialises a double as Jackson does: a number if it is finite, else a string. For `serialize_with`, because
/// `serde_json` has no form for other doubles.
///
/// # Errors
///
/// Errors of the serializer.
pub fn double<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() {
        serializer.serialize_f64(*value)
    } else {
        serializer.serialize_str(&java::double_to_string(*value))
    }
}

/// Jackson's choices where they differ from `serde_json`'s.
struct Jackson(CompactFormatter);

impl Formatter for Jackson {
    fn write_f64<W: Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let mut text = Vec::with_capacity(24);
        java::write_double(&mut text, value);
        writer.write_all(&text)
    }

    fn write_string_fragment<W: Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((start, wide)) = rest.char_indices().find(|(_, char)| *char > '\u{ffff}') {
            let (before, behind) = rest.split_at(start);
            writer.write_all(before.as_bytes())?;
            for unit in wide.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04X}")?;
            }
            rest = behind.get(wide.len_utf8()..).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_char_escape<W: Write + ?Sized>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        match escape {
            CharEscape::AsciiControl(control) => write!(writer, "\\u{control:04X}"),
            other => self.0.write_char_escape(writer, other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Document {
        text: &'static str,
        custom: Option<BTreeMap<&'static str, &'static str>>,
        #[serde(serialize_with = "double")]
        max: f64,
        #[serde(serialize_with = "double")]
        start_value: f64,
        retention: i32,
    }

    #[test]
    fn serialises_as_jackson_does() {
        let document = Document {
            text: "a/\"b\" \\ \n\t\u{8}\u{c}\u{1f} é 日本 \u{7f}\u{2028}/ 😀.",
            custom: Some([("k", "v")].into()),
            max: f64::NAN,
            start_value: 1e10,
            retention: 30,
        };
        assert_eq!(
            String::from_utf8(to_bytes(&document)).unwrap(),
            "{\"text\":\"a/\\\"b\\\" \\\\ \\n\\t\\b\\f\\u001F é 日本 \u{7f}\u{2028}/ \\uD83D\\uDE00.\",\"custom\":{\"k\":\"v\"},\"max\":\"NaN\",\
             \"startValue\":1.0E10,\"retention\":30}"
        );
        let document = Document {
            text: "",
            custom: None,
            max: 100.0,
            start_value: f64::NEG_INFINITY,
            retention: 0,
        };
        assert_eq!(
            to_bytes(&document),
            br#"{"text":"","custom":null,"max":100.0,"startValue":"-Infinity","retention":0}"#
        );
    }

    #[test]
    fn etags_identify_bytes() {
        assert_eq!(etag(None), "");
        assert_eq!(etag(Some(b"")), "cbf29ce484222325");
        assert_ne!(etag(Some(b"a")), etag(Some(b"b")));
    }
}
