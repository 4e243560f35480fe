//! The content of a frame of the journal: the changes of a group, evaluated.
//!
//! ```text
//!   content   change ...
//!   change    shared | rest | value length + 1, or 0 if the key is removed | rest of the key | value
//! ```
//!
//! Keys ascend; a key is the first `shared` bytes of the key before it and its own rest. Numbers are varints. Replaying
//! frames in their order restores the cells, whatever the clock says then.

use std::collections::BTreeMap;

use oxtsdb_storage_file::varint::{self, Reader};

/// Keys with their new values; `None` removes a key.
pub(super) type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Appends the content of a frame.
pub(super) fn encode(buffer: &mut Vec<u8>, changes: &Changes) {
    let mut previous: &[u8] = &[];
    for (key, value) in changes {
        let shared = previous.iter().zip(key).take_while(|(a, b)| a == b).count();
        let rest = key.get(shared..).unwrap_or_default();
        varint::put(buffer, shared as u64);
        varint::put(buffer, rest.len() as u64);
        varint::put(buffer, value.as_ref().map_or(0, |value| value.len() as u64 + 1));
        buffer.extend_from_slice(rest);
        buffer.extend_from_slice(value.as_deref().unwrap_or_default());
        previous = key;
    }
}

/// Calls `apply` for each change of a frame. Fails if the content is none.
pub(super) fn decode(
    content: &[u8],
    mut apply: impl FnMut(&[u8], Option<&[u8]>),
) -> Result<(), &'static str> {
    let mut reader = Reader(content);
    let mut key = Vec::new();
    while !reader.0.is_empty() {
        let mut change = || {
            let (shared, rest, value) = (reader.length()?, reader.length()?, reader.length()?);
            (shared <= key.len()).then(|| key.truncate(shared))?;
            key.extend_from_slice(reader.bytes(rest)?);
            match value.checked_sub(1) {
                Some(length) => reader.bytes(length).map(Some),
                None => Some(None),
            }
        };
        let value = change().ok_or("a change cannot be decoded")?;
        apply(&key, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn changes_have_the_documented_bytes() {
        let changes = Changes::from([
            (b"abc".to_vec(), Some(b"xy".to_vec())),
            (b"abd".to_vec(), None),
            (b"b".to_vec(), Some(Vec::new())),
        ]);
        let mut bytes = Vec::new();
        encode(&mut bytes, &changes);
        assert_eq!(bytes, b"\x00\x03\x03abcxy\x02\x01\x00d\x00\x01\x01b");
    }

    proptest! {
        #[test]
        fn decode_reverses_encode(changes: Changes) {
            let mut bytes = Vec::new();
            encode(&mut bytes, &changes);
            let mut decoded = Changes::new();
            decode(&bytes, |key, value| drop(decoded.insert(key.to_vec(), value.map(<[u8]>::to_vec)))).unwrap();
            prop_assert_eq!(decoded, changes);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes, |_, _| ());
        }
    }
}
