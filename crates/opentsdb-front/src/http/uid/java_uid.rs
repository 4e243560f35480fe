//! UIDs and TSUIDs in requests, with the errors of Java.
//!
//! Source: OpenTSDB 2.4, `UniqueId.stringToUid`, `UniqueId.stringToUniqueIdType`, `UniqueId.getNameAsync`; Java's
//! `DatatypeConverter.parseHexBinary`, `Arrays.toString`.

use oxtsdb_schema::{Uid, UidKind, UidWidth};

/// Decodes hex; a missing first digit is 0. The error is the text of Java's exception.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    if text.is_empty() {
        return Err("UID was empty".to_owned());
    }
    let text = if text.len().is_multiple_of(2) {
        text.to_owned()
    } else {
        format!("0{text}")
    };
    hex::decode(&text).map_err(|_| format!("contains illegal character for hexBinary: {text}"))
}

/// The kind that a text names.
pub(super) fn kind(text: &str) -> Result<UidKind, String> {
    match text.to_ascii_lowercase().as_str() {
        "metric" | "metrics" => Ok(UidKind::Metric),
        "tagk" => Ok(UidKind::Tagk),
        "tagv" => Ok(UidKind::Tagv),
        _ => Err(format!("Invalid type requested: {text}")),
    }
}

/// A UID of a kind.
pub(super) fn uid(kind: UidKind, width: UidWidth, bytes: &[u8]) -> Result<Uid, String> {
    match Uid::from_bytes(bytes) {
        Ok(uid) if uid.width() == width => Ok(uid),
        _ => Err(format!(
            "Wrong id.length = {} which is != {width} required for '{kind}'",
            bytes.len()
        )),
    }
}

/// A UID without a name.
pub(super) fn no_such_uid(kind: UidKind, uid: Uid) -> String {
    format!("No such unique ID for '{kind}': {}", array(uid))
}

/// Signed bytes as Java prints them.
pub(super) fn array(uid: Uid) -> String {
    let bytes: Vec<String> = uid
        .as_bytes()
        .iter()
        .map(|byte| byte.cast_signed().to_string())
        .collect();
    format!("[{}]", bytes.join(", "))
}
