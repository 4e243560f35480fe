//! The manifest: the tables that the folder must have.
//!
//! ```text
//!   MANIFEST   "oxtsdbcm" | version (4) | crc (4) | id of the store (16) | count | table ...
//!   table      first commit | last commit | first key | last key, each: length | bytes
//! ```
//!
//! Numbers without a size are varints. The CRC is the CRC-32 of zlib, of everything behind it. Tables are in the order of
//! their commits, without a gap.
//!
//! Names are the truth: a table counts once it has its name, and replaces all tables within its range of commits.
//! The manifest is the witness: commits that it lists must be in a table. It is replaced after the tables have changed,
//! and before the journal loses the commits of a new table, so an older manifest lists commits that are in other tables
//! by now, and is right nevertheless.

use oxtsdb_storage_file::varint::{self, Reader};

use super::table::{CommitRange, StoreId};

const MAGIC: [u8; 8] = *b"oxtsdbcm";
const VERSION: u32 = 1;
const HEADER: usize = 16;

/// A longer manifest is not read.
pub(super) const MAX_MANIFEST_BYTES: u64 = 1 << 30;

/// The content of the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) store: StoreId,
    pub(super) tables: Vec<Listed>,
}

/// A table that must be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) commits: CommitRange,
    /// First and last key; empty without keys.
    pub(super) keys: (Vec<u8>, Vec<u8>),
}

impl Manifest {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = self.store.to_vec();
        varint::put(&mut body, self.tables.len() as u64);
        for table in &self.tables {
            varint::put(&mut body, table.commits.first);
            varint::put(&mut body, table.commits.last);
            for key in [&table.keys.0, &table.keys.1] {
                varint::put(&mut body, key.len() as u64);
                body.extend_from_slice(key);
            }
        }
        let crc = crc32fast::hash(&body).to_be_bytes();
        [MAGIC.as_slice(), &VERSION.to_be_bytes(), &crc, &body].concat()
    }

    /// Decodes a manifest; the error is the reason why it is invalid.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let mut reader = Reader(bytes);
        if reader.array() != Some(MAGIC) {
            return Err("it is no manifest of cells");
        }
        if reader.array().map(u32::from_be_bytes) != Some(VERSION) {
            return Err("the version of the manifest is unknown");
        }
        let body = bytes.get(HEADER..).unwrap_or_default();
        if reader.array().map(u32::from_be_bytes) != Some(crc32fast::hash(body)) {
            return Err("the checksum does not match");
        }
        let mut manifest = || {
            let store = reader.array()?;
            let tables = (0..reader.number()?).map(|_| {
                let commits = CommitRange {
                    first: reader.number()?,
                    last: reader.number()?,
                };
                let mut key = || {
                    let length = reader.length()?;
                    reader.bytes(length).map(<[u8]>::to_vec)
                };
                let keys = (key()?, key()?);
                Some(Listed { commits, keys })
            });
            let tables = tables.collect::<Option<_>>()?;
            Some(Self { store, tables })
        };
        manifest().ok_or("it cannot be decoded")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_have_the_documented_bytes() {
        let manifest = Manifest {
            store: [7; 16],
            tables: vec![Listed {
                commits: CommitRange { first: 1, last: 300 },
                keys: (b"a".to_vec(), b"bc".to_vec()),
            }],
        };
        let bytes = manifest.encode();
        assert_eq!(bytes[..12], *b"oxtsdbcm\0\0\0\x01");
        assert_eq!(
            bytes[16..],
            [&[7; 16][..], b"\x01\x01\xac\x02\x01a\x02bc"].concat()
        );
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            Manifest::decode(&damaged).unwrap_err();
            Manifest::decode(&bytes[..index]).unwrap_err();
        }
    }
}
