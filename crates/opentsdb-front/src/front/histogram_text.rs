//! Histograms as HTTP and telnet clients send them: bytes in base64, and OpenTSDB's error texts for them.
//!
//! Source: OpenTSDB 2.4, `HistogramPojo.base64StringToBytes`, `SimpleHistogram.fromHistogram`; asynchbase,
//! `Bytes.pretty`; JAXB, `DatatypeConverter.parseBase64Binary`.

use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use oxtsdb_ingest::NewHistogram;
use oxtsdb_metadata::uids::series::SeriesRef;
use oxtsdb_schema::{Histogram, HistogramCodecs, HistogramError, Timestamp};

/// The fewest bytes that OpenTSDB accepts of a client.
const SHORTEST: usize = 6;

/// The message without a configuration of histograms.
pub(crate) const DISABLED: &str =
    "Histogram storage has not been enabled. Check the 'tsd.core.histograms.config' configuration.";

/// A histogram of a client that breaks no rule.
#[derive(Debug, PartialEq)]
pub(crate) struct CheckedHistogram<'a> {
    pub(crate) metric: &'a str,
    pub(crate) timestamp: Timestamp,
    /// The value of its cell.
    pub(crate) value: Vec<u8>,
    /// Its tags, in the client's order.
    pub(crate) tags: Vec<(&'a str, &'a str)>,
}

impl CheckedHistogram<'_> {
    /// The histogram to write.
    pub(crate) fn new_histogram(&self) -> NewHistogram<'_> {
        NewHistogram {
            series: SeriesRef::Names {
                metric: self.metric,
                tags: &self.tags,
            },
            timestamp: self.timestamp,
            value: &self.value,
        }
    }
}

/// Error of a client's bytes that are not a histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SentError {
    /// Fewer than 6 bytes, with OpenTSDB's message.
    TooShort(String),
    /// An unknown codec, or bytes that do not decode.
    Histogram(HistogramError),
}

/// Decodes the bytes of a client, which have no codec id.
pub(crate) fn decode(codecs: &HistogramCodecs, id: u8, bytes: &[u8]) -> Result<Histogram, SentError> {
    if id == codecs.simple() && bytes.len() < SHORTEST {
        let text = format!("Byte array shorter than 6 bytes detected: {}", pretty(bytes));
        return Err(SentError::TooShort(text));
    }
    codecs.decode(id, bytes).map_err(SentError::Histogram)
}

/// Decodes base64 as leniently as OpenTSDB: other characters are skipped, and so is a group at the end that is not
/// complete.
pub(crate) fn decode_base64(text: &str) -> Vec<u8> {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let digits: Vec<u8> = text.bytes().filter(is_digit).collect();
    let (groups, _) = digits.as_chunks::<4>();
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for group in groups {
        let used = group
            .iter()
            .position(|digit| *digit == b'=')
            .unwrap_or(group.len());
        // One digit is less than a byte. Bits behind the last byte are dropped.
        let mut padded = *group;
        padded.iter_mut().skip(used).for_each(|digit| *digit = b'A');
        if let Ok(decoded) = BASE64_STANDARD_NO_PAD.decode(padded) {
            bytes.extend_from_slice(decoded.get(..used.saturating_sub(1)).unwrap_or_default());
        }
    }
    bytes
}

/// Bytes as OpenTSDB shows them: as text if at least half of them are ASCII, else as a list of signed numbers.
fn pretty(bytes: &[u8]) -> String {
    let is_ascii = |byte: &u8| (b' '..=b'~').contains(byte);
    let ascii = bytes.iter().filter(|byte| is_ascii(byte)).count();
    if ascii < bytes.len() / 2 {
        let numbers: Vec<String> = bytes.iter().map(|byte| byte.cast_signed().to_string()).collect();
        return format!("[{}]", numbers.join(", "));
    }
    let mut text = String::from("\"");
    for byte in bytes {
        match byte {
            byte if is_ascii(byte) => text.push(char::from(*byte)),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            byte => {
                // Writing to a string does not fail.
                let _ = write!(text, "\\x{byte:02X}");
            }
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_base64_as_leniently_as_opentsdb() {
        for (text, bytes) in [
            ("AAE=", &[0, 1][..]),
            ("AA E=\n", &[0, 1]),
            (
                "AAEAAAAAP4AAAAUAAA==",
                &[0, 1, 0, 0, 0, 0, 0x3f, 0x80, 0, 0, 5, 0, 0],
            ),
            ("host=a", &[0x86, 0x8b, 0x2d]),
            ("%%%%", &[]),
            ("A===", &[]),
            ("", &[]),
        ] {
            assert_eq!(decode_base64(text), bytes, "{text}");
        }
    }

    #[test]
    fn texts_are_opentsdbs() {
        let codecs = HistogramCodecs::with_simple(42);
        let text = |bytes: &[u8]| match decode(&codecs, 42, bytes) {
            Err(SentError::TooShort(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(text(&[0, 1]), "Byte array shorter than 6 bytes detected: [0, 1]");
        assert_eq!(text(&[]), "Byte array shorter than 6 bytes detected: \"\"");
        assert_eq!(
            text(&[0x86, 0x8b, 0x2d]),
            "Byte array shorter than 6 bytes detected: \"\\x86\\x8B-\""
        );
        assert_eq!(
            decode(&codecs, 7, &[]),
            Err(SentError::Histogram(HistogramError::UnknownCodec { id: 7 }))
        );
    }
}
