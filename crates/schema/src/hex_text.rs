//! Bytes as hexadecimal text, the way OpenTSDB's tools print them: upper case, two digits a byte.

use std::fmt;

/// Shows bytes as upper-case hex: `000F42`.
pub(crate) struct HexText<'a>(pub(crate) &'a [u8]);

impl fmt::Display for HexText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

/// At most this many bytes of a cell are repeated in an error: a cell can have megabytes.
const SHOWN: usize = 32;

/// The hex text of `bytes` for an error message: the first 32 bytes, and how many there are if
/// there are more.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN) {
        Some(start) if bytes.len() > SHOWN => {
            format!("{}... ({} bytes)", HexText(start), bytes.len())
        }
        _ => HexText(bytes).to_string(),
    }
}

/// Reads hex of either case; `None` if `text` has an odd length or another character.
pub(crate) fn parse(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect()
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        b'A'..=b'F' => Some(character - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_both_cases_and_prints_upper_case() {
        assert_eq!(parse("000f42"), Some(vec![0x00, 0x0f, 0x42]));
        assert_eq!(parse("000F42"), Some(vec![0x00, 0x0f, 0x42]));
        assert_eq!(HexText(&[0x00, 0x0f, 0x42]).to_string(), "000F42");
    }

    #[test]
    fn rejects_invalid_hex() {
        for text in ["0", "000", "0g", "+1", " 0", "é"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn excerpt_reports_the_full_length() {
        assert_eq!(excerpt(&[1; 32]), "01".repeat(32));
        assert_eq!(excerpt(&[1; 33]), format!("{}... (33 bytes)", "01".repeat(32)));
    }
}
