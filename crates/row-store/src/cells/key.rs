//! Keys and values of the tree: a key for each column of each row, with the column's versions as its value.
//!
//! ```text
//!   key              table (2) | row | family (1) | qualifier
//!   row, qualifier   groups of 8 bytes, each followed by a mark (1):
//!                    0 to 8   the last group: that many bytes, then zeros
//!                    9        further groups follow
//!   qualifier        longer than 1,024 bytes: its first 128 groups, all with mark 9, and a hash (16) of all of it
//!
//!   value            if the key has a hash: length (4) | qualifier; then at least one version, newest first
//!   version          time in ms (8) | length (4) | the cell's value
//! ```
//!
//! Numbers are big endian. Unsigned bytewise order of the keys is the order of table, row, family and qualifier, since
//! a shorter row is padded with zeros and has the smaller mark. Rows and qualifiers delimit themselves, so that no key
//! is a prefix of another one, and no other row's cells lie between the cells of a row. The longest row of 32,767 bytes
//! takes 36,864; the hash keeps keys below 64 KiB. Qualifiers that agree in their first 1,024 bytes are in the order of
//! their hashes, and a read sorts them.
//!
//! The time is not part of the key: a cell that is overwritten would then leave a tombstone for each older version,
//! and each read of a counter would pass over all of them. A column is also found by one look-up with a filter.
//!
//! Key `00 00` has the store's time when it last wrote, 8 bytes; no table has id 0.

use xxhash_rust::xxh3::xxh3_128;

use super::set_aside::Gap;

/// Key of the time of the last write.
pub(super) const TIME_KEY: [u8; 2] = [0, 0];

/// Greater than the keys of all tables but the last possible one.
pub(super) const LAST: [u8; 3] = [0xff; 3];

/// Greater than all keys: the mark behind a group is smaller.
pub(super) const AFTER_ALL: [u8; 12] = [0xff; 12];

const GROUP: usize = 8;
const MORE: u8 = 9;
/// The longest qualifier that a key contains.
const MAX_INLINE: usize = 1_024;
const HASH: usize = 16;
/// Greater than all families.
const AFTER_FAMILIES: u8 = 0xff;

fn put(key: &mut Vec<u8>, mut bytes: &[u8]) {
    while bytes.len() > GROUP {
        let (group, rest) = bytes.split_at(GROUP);
        key.extend_from_slice(group);
        key.push(MORE);
        bytes = rest;
    }
    key.extend_from_slice(bytes);
    key.resize(key.len() + GROUP - bytes.len(), 0);
    key.push(u8::try_from(bytes.len()).unwrap_or(0));
}

fn put_qualifier(key: &mut Vec<u8>, qualifier: &[u8]) {
    match qualifier.split_at_checked(MAX_INLINE) {
        Some((first, rest)) if !rest.is_empty() => {
            put(key, first);
            if let Some(mark) = key.last_mut() {
                *mark = MORE;
            }
            key.extend_from_slice(&hash(qualifier));
        }
        _ => put(key, qualifier),
    }
}

fn hash(bytes: &[u8]) -> [u8; HASH] {
    xxh3_128(bytes).to_be_bytes()
}

/// The prefix of the keys of a row; not greater than any key of a later row.
pub(super) fn row_prefix(table: u16, row: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(row.len() / GROUP * (GROUP + 1) + 40);
    key.extend_from_slice(&table.to_be_bytes());
    put(&mut key, row);
    key
}

/// Begin (inclusive) and end (exclusive) of the keys with a prefix of a row or family.
pub(super) fn bounds(prefix: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    // A family or the first group of a qualifier follows such a prefix.
    let mut end = prefix.clone();
    end.extend_from_slice(&[AFTER_FAMILIES; GROUP + 1]);
    (prefix, end)
}

/// The prefix of the keys of a row's family.
pub(super) fn family_prefix(row_prefix: &[u8], family: u8) -> Vec<u8> {
    [row_prefix, &[family]].concat()
}

/// The key of a column.
pub(super) fn column(row_prefix: &[u8], family: u8, qualifier: &[u8]) -> Vec<u8> {
    let mut key =
        Vec::with_capacity(row_prefix.len() + 2 * (GROUP + 1) + qualifier.len() / GROUP * (GROUP + 1));
    key.extend_from_slice(row_prefix);
    key.push(family);
    put_qualifier(&mut key, qualifier);
    key
}

/// A version of a column: its time and its value.
pub(super) type Version<'a> = (i64, &'a [u8]);

/// The stored value of a column with these versions.
pub(super) fn stored(long_qualifier: Option<&[u8]>, versions: &[Version<'_>]) -> Vec<u8> {
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
    let bytes = |(_, value): &Version<'_>| value.len() + 12;
    let mut stored = Vec::with_capacity(versions.iter().map(bytes).sum());
    if let Some(qualifier) = long_qualifier {
        stored.extend_from_slice(&length(qualifier));
        stored.extend_from_slice(qualifier);
    }
    for (time, value) in versions {
        stored.extend_from_slice(&time.to_be_bytes());
        stored.extend_from_slice(&length(value));
        stored.extend_from_slice(value);
    }
    stored
}

/// The qualifier, if a key does not contain it.
pub(super) fn long_qualifier(qualifier: &[u8]) -> Option<&[u8]> {
    (qualifier.len() > MAX_INLINE).then_some(qualifier)
}

fn take_with_length<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (taken, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Takes the groups of a row or qualifier off `bytes` and appends their content to `out`, if given; returns whether
/// all `most` groups have mark 9.
fn take(bytes: &mut &[u8], most: usize, mut out: Option<&mut Vec<u8>>) -> Option<bool> {
    for _ in 0..most {
        let (group, rest) = bytes.split_first_chunk::<{ GROUP + 1 }>()?;
        let (group, mark) = group.split_at(GROUP);
        let mark = *mark.first()?;
        let length = usize::from(mark.min(MORE - 1));
        *bytes = rest;
        if let Some(out) = &mut out {
            out.extend_from_slice(group.get(..length)?);
        }
        match mark {
            MORE => {}
            0..MORE => return Some(false),
            _ => return None,
        }
    }
    Some(true)
}

/// The length of the row's prefix of a key.
pub(super) fn row_prefix_len(key: &[u8]) -> Option<usize> {
    let mut rest = key.get(2..)?;
    take(&mut rest, usize::MAX, None)?;
    Some(key.len() - rest.len())
}

/// The row of a key or row prefix.
pub(super) fn row_of(key: &[u8]) -> Option<Vec<u8>> {
    let mut row = Vec::new();
    take(&mut key.get(2..)?, usize::MAX, Some(&mut row))?;
    Some(row)
}

/// A column of a row.
pub(super) struct Column<'a> {
    pub(super) family: u8,
    /// The qualifier if it is not in the key; otherwise it is in the buffer.
    pub(super) long_qualifier: Option<&'a [u8]>,
    versions: &'a [u8],
}

impl<'a> Column<'a> {
    /// Decodes the part of a key that follows the row's prefix, and a stored value. Replaces `qualifier`.
    pub(super) fn decode(after_row: &[u8], stored: &'a [u8], qualifier: &mut Vec<u8>) -> Option<Self> {
        let (family, mut rest) = after_row.split_first()?;
        qualifier.clear();
        let is_long = take(&mut rest, MAX_INLINE / GROUP, Some(qualifier))?;
        let mut versions = stored;
        let mut long_qualifier = None;
        if is_long {
            rest = rest.get(HASH..)?;
            long_qualifier = Some(take_with_length(&mut versions)?);
        }
        rest.is_empty().then_some(Self {
            family: *family,
            long_qualifier,
            versions,
        })
    }

    /// The versions, newest first; `None` for one that cannot be decoded.
    pub(super) fn versions(&self) -> impl Iterator<Item = Option<Version<'a>>> + use<'a> {
        let mut rest = self.versions;
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| {
                let version = take_version(&mut rest);
                if version.is_none() {
                    rest = &[];
                }
                version
            })
        })
    }
}

fn take_version<'a>(bytes: &mut &'a [u8]) -> Option<Version<'a>> {
    let (time, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some((i64::from_be_bytes(*time), take_with_length(bytes)?))
}

/// Converts a gap between keys of cells to one between rows (table id and row key). Rows at both ends may have lost
/// cells, so the gap includes them.
pub(super) fn rows_of(gap: Gap) -> Gap {
    let row = |key: &[u8], end: &[u8]| match (key.get(..2), row_of(key)) {
        (Some(table), Some(row)) => [table, &row, end].concat(),
        (Some(table), None) => table.to_vec(),
        (None, _) => Vec::new(),
    };
    Gap {
        start: row(&gap.start, &[]),
        stop: row(&gap.stop, &[0]),
        ..gap
    }
}

#[cfg(test)]
mod tests;
