//! Names and UIDs in messages.

use oxtsdb_schema::UidKind;
use oxtsdb_schema::name::excerpt;

/// Bytes of a UID that are shown: a wrong one may be as long as a row key.
const SHOWN_BYTES: usize = 16;

/// A stored name as text, or its start.
pub(super) fn shown_name(stored: &[u8]) -> String {
    let text: String = stored.iter().map(|byte| char::from(*byte)).collect();
    excerpt(&text).escape_debug().to_string()
}

/// A stored UID as hex, or its start.
pub(super) fn shown_uid(stored: &[u8]) -> String {
    match stored.get(..SHOWN_BYTES) {
        Some(start) if stored.len() > SHOWN_BYTES => format!("{}…", hex::encode_upper(start)),
        _ => hex::encode_upper(stored),
    }
}

/// `metrics 000001 has the name `a``.
pub(super) fn mapping(kind: UidKind, uid: &[u8], name: &[u8]) -> String {
    format!("{kind} {} has the name `{}`", shown_uid(uid), shown_name(name))
}
