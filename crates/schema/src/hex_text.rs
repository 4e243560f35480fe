//! Stored bytes as hexadecimal text in error messages: upper case, as OpenTSDB's tools print them.

/// The most bytes of a value that an error message repeats; a cell can have megabytes.
const EXCERPT_BYTES: usize = 32;

/// `bytes` as hex for an error message: the first 32 bytes, followed by the total length if there are more.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    match bytes.get(..EXCERPT_BYTES) {
        Some(start) if bytes.len() > EXCERPT_BYTES => {
            format!("{}... ({} bytes)", hex::encode_upper(start), bytes.len())
        }
        _ => hex::encode_upper(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_reports_the_full_length() {
        assert_eq!(excerpt(&[1; 32]), "01".repeat(32));
        assert_eq!(excerpt(&[1; 33]), format!("{}... (33 bytes)", "01".repeat(32)));
    }
}
