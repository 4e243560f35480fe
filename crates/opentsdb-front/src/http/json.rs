//! JSON as it is written into responses.

use oxtsdb_schema::java;

/// Writes a text in quotes.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut plain = 0;
    for (position, byte) in text.bytes().enumerate() {
        if byte >= b' ' && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(text.as_bytes().get(plain..position).unwrap_or_default());
        plain = position + 1;
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => out.extend_from_slice(format!("\\u{control:04X}").as_bytes()),
        }
    }
    out.extend_from_slice(text.as_bytes().get(plain..).unwrap_or_default());
    out.push(b'"');
}

/// Writes texts as an array.
pub(crate) fn write_strings<T: AsRef<str>>(out: &mut Vec<u8>, texts: impl IntoIterator<Item = T>) {
    out.push(b'[');
    for (place, text) in texts.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_string(out, text.as_ref());
    }
    out.push(b']');
}

/// Writes an object of text values, in the order given.
pub(crate) fn write_map<K: AsRef<str>, V: AsRef<str>>(
    out: &mut Vec<u8>,
    pairs: impl IntoIterator<Item = (K, V)>,
) {
    out.push(b'{');
    for (place, (key, value)) in pairs.into_iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_string(out, key.as_ref());
        out.push(b':');
        write_string(out, value.as_ref());
    }
    out.push(b'}');
}

/// Writes a double as Java prints it; NaN and infinities, which JSON has no numbers for, as texts.
///
/// Source: Jackson, `JsonGenerator.Feature.QUOTE_NON_NUMERIC_NUMBERS`.
pub(crate) fn write_double(out: &mut Vec<u8>, number: f64) {
    if number.is_finite() {
        return java::write_double(out, number);
    }
    out.push(b'"');
    java::write_double(out, number);
    out.push(b'"');
}

/// Writes an integer.
pub(crate) fn write_integer(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_round_trip() {
        for text in [
            "",
            "plain",
            "quote \" slash \\ /",
            "\n\r\t\u{0}\u{1f}\u{7f}",
            "é 日本 🦀",
        ] {
            let mut out = Vec::new();
            write_string(&mut out, text);
            let back: String = serde_json::from_slice(&out).unwrap();
            assert_eq!(back, text);
        }
    }

    #[test]
    fn arrays_and_objects_keep_their_order() {
        let mut out = Vec::new();
        write_map(&mut out, [("z", "1"), ("a", "2")]);
        write_strings(&mut out, ["b", "a"]);
        write_integer(&mut out, -7_i64);
        assert_eq!(out, br#"{"z":"1","a":"2"}["b","a"]-7"#);
    }
}
