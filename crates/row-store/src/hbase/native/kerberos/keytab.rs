//! Keytabs: files with keys of principals.
//!
//! ```text
//!   05 02 | i32 length | u16 n | realm | n components | u32 type of name | u32 time | u8 version | u16 encryption | key | u32 version
//! ```
//!
//! Strings and the key have a u16 length before them; all is big endian. A negative length is a gap. The last version, if it is
//! there and not 0, replaces the short one.
//!
//! Source: MIT Kerberos 1.20, `doc/formats/keytab_file_format`.

use std::collections::BTreeSet;
use std::path::Path;

use bytes::Buf;
use kerbcore::{Enctype, KerberosKey};

use super::principal::Principal;

/// The longest file that is read, in bytes.
const MAX_LENGTH: u64 = 16 << 20;

/// The encryption types that are used, by preference: MIT's order, with the ones first that every Java knows. RC4 and DES are broken.
pub(super) const ENCRYPTIONS: [Enctype; 4] = [
    Enctype::Aes256CtsHmacSha1_96,
    Enctype::Aes128CtsHmacSha1_96,
    Enctype::Aes256CtsHmacSha384_192,
    Enctype::Aes128CtsHmacSha256_128,
];

/// A key of a principal.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) version: u32,
    pub(super) key: KerberosKey,
}

/// An entry of a file.
struct Entry {
    principal: Principal,
    version: u32,
    encryption: i32,
    key: Vec<u8>,
}

/// The usable keys of a principal in a file, at least one.
///
/// # Errors
///
/// The file cannot be read, is no keytab, or has no such key.
pub(super) fn keys(path: &Path, principal: &Principal) -> Result<Vec<Key>, String> {
    let read = || match std::fs::metadata(path)?.len() {
        length if length > MAX_LENGTH => Err(std::io::Error::other(format!(
            "has {length} bytes, at most {MAX_LENGTH} are read"
        ))),
        _ => std::fs::read(path),
    };
    let found = read().map_err(|error| error.to_string());
    let found = found.and_then(|data| keys_of(&data, principal));
    found.map_err(|reason| format!("{} (--hbase-kerberos-keytab): {reason}", path.display()))
}

fn keys_of(data: &[u8], principal: &Principal) -> Result<Vec<Key>, String> {
    let entries = entries(data)?;
    let (own, others): (Vec<_>, Vec<_>) = entries
        .into_iter()
        .partition(|entry| entry.principal == *principal);
    if own.is_empty() {
        let names: BTreeSet<_> = others
            .iter()
            .map(|entry| format!("`{}`", entry.principal))
            .collect();
        let names: Vec<_> = names.into_iter().collect();
        return Err(format!(
            "has no key of `{principal}` (--hbase-kerberos-principal); it has keys of: {}",
            names.join(", ")
        ));
    }
    let types: BTreeSet<_> = own.iter().map(|entry| entry.encryption).collect();
    let mut keys = Vec::new();
    for entry in own {
        let is_used = Enctype::from_i32(entry.encryption).is_some_and(|found| ENCRYPTIONS.contains(&found));
        if is_used {
            let key =
                KerberosKey::from_i32(entry.encryption, entry.key).map_err(|error| error.to_string())?;
            let version = entry.version;
            keys.push(Key { version, key });
        }
    }
    if keys.is_empty() {
        return Err(format!(
            "has keys of `{principal}` of the encryption types {types:?} only; expected one of 17 to 20 (AES)"
        ));
    }
    Ok(keys)
}

fn entries(mut data: &[u8]) -> Result<Vec<Entry>, String> {
    match data.split_off(..2) {
        Some([5, 2]) => {}
        Some([5, 1]) => return Err("is a keytab of version 1, expected version 2".to_owned()),
        _ => return Err("is no keytab".to_owned()),
    }
    let mut entries = Vec::new();
    while !data.is_empty() {
        let damaged = || "is no valid keytab: an entry ends too early".to_owned();
        let length = data.try_get_i32().map_err(|_| damaged())?;
        let size = usize::try_from(length.unsigned_abs()).map_err(|_| damaged())?;
        let entry = data.split_off(..size).ok_or_else(damaged)?;
        if length > 0 {
            entries.push(read_entry(entry).ok_or_else(damaged)?);
        }
    }
    Ok(entries)
}

fn read_entry(mut entry: &[u8]) -> Option<Entry> {
    let count = entry.try_get_u16().ok()?;
    let realm = text(&mut entry)?;
    let components = (0..count).map(|_| text(&mut entry)).collect::<Option<Vec<_>>>()?;
    let _name_type = entry.try_get_u32().ok()?;
    let _time = entry.try_get_u32().ok()?;
    let short = u32::from(entry.try_get_u8().ok()?);
    let encryption = i32::from(entry.try_get_i16().ok()?);
    let key = counted(&mut entry)?.to_vec();
    let long = entry.try_get_u32().unwrap_or_default();
    Some(Entry {
        principal: Principal { components, realm },
        version: if long == 0 { short } else { long },
        encryption,
        key,
    })
}

fn counted<'a>(entry: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = entry.try_get_u16().ok()?;
    entry.split_off(..usize::from(length))
}

fn text(entry: &mut &[u8]) -> Option<String> {
    counted(entry).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::BufMut as _;

    use super::*;

    pub(in super::super) fn entry(
        principal: &str,
        (version, encryption): (u8, u16),
        long: Option<u32>,
    ) -> Vec<u8> {
        let principal: Principal = principal.parse().unwrap();
        let mut entry = Vec::new();
        entry.put_u16(u16::try_from(principal.components.len()).unwrap());
        for text in std::iter::once(&principal.realm).chain(&principal.components) {
            entry.put_u16(u16::try_from(text.len()).unwrap());
            entry.put_slice(text.as_bytes());
        }
        entry.put_u32(1);
        entry.put_u32(0);
        entry.put_u8(version);
        entry.put_u16(encryption);
        let length: u16 = if encryption == 18 { 32 } else { 16 };
        entry.put_u16(length);
        entry.put_bytes(version, usize::from(length));
        if let Some(long) = long {
            entry.put_u32(long);
        }
        let mut framed = Vec::new();
        framed.put_i32(i32::try_from(entry.len()).unwrap());
        framed.extend(entry);
        framed
    }

    pub(in super::super) fn keytab(entries: &[Vec<u8>]) -> Vec<u8> {
        [&[5, 2][..], &entries.concat()].concat()
    }

    #[test]
    fn keys_of_a_principal_are_found_behind_gaps_and_others() {
        let gap = [&(-3_i32).to_be_bytes()[..], b"xyz"].concat();
        let data = keytab(&[
            entry("other@R", (1, 18), None),
            gap,
            entry("a/b@R", (2, 17), Some(258)),
            entry("a/b@R", (3, 18), Some(0)),
            entry("a/b@R", (4, 23), None),
        ]);
        let keys = keys_of(&data, &"a/b@R".parse().unwrap()).unwrap();
        let found: Vec<_> = keys
            .iter()
            .map(|key| (key.version, key.key.enctype().to_i32()))
            .collect();
        assert_eq!(found, [(258, 17), (3, 18)]);
        assert_eq!(keys[1].key.key(), [3; 32]);
    }

    #[test]
    fn the_keys_that_there_are_instead_are_named() {
        let data = keytab(&[entry("other@R", (1, 18), None), entry("old@R", (1, 23), None)]);
        let error = |principal: &str| keys_of(&data, &principal.parse().unwrap()).unwrap_err();
        let missing = error("a@R");
        assert!(
            missing.contains("no key of `a@R`") && missing.contains("`other@R`"),
            "{missing}"
        );
        assert!(error("old@R").contains("{23}"), "{}", error("old@R"));
    }

    #[test]
    fn damaged_files_are_errors() {
        let whole = keytab(&[entry("a@R", (1, 18), None)]);
        let principal: Principal = "a@R".parse().unwrap();
        for length in 0..whole.len() {
            let error = keys_of(&whole[..length], &principal).unwrap_err();
            assert!(
                error.contains("keytab") || error.contains("no key of"),
                "{length}: {error}"
            );
        }
        assert!(keys_of(&[5, 1], &principal).unwrap_err().contains("version 1"));
        assert!(
            keys_of(b"[libdefaults]", &principal)
                .unwrap_err()
                .contains("is no keytab")
        );
        let other_length = [&whole[..2], &i32::MIN.to_be_bytes(), &whole[6..]].concat();
        assert!(keys_of(&other_length, &principal).is_err());
    }
}
