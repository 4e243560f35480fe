//! The properties of a table; drawn in [`super`].

use oxtsdb_storage_file::varint::{self, Reader};

use super::{CommitRange, StoreId};

/// The properties of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) store: StoreId,
    pub(crate) commits: CommitRange,
    pub(crate) entries: u64,
    /// First and last key, both inclusive; empty without entries.
    pub(crate) first_key: Vec<u8>,
    pub(crate) last_key: Vec<u8>,
    pub(crate) expiring: Vec<Expiring>,
}

/// The columns of a family with a time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiring {
    pub(crate) table: u16,
    pub(crate) family: u8,
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
    /// The newest timestamp, in ms.
    pub(crate) newest_ms: i64,
}

impl Properties {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.store.to_vec();
        for number in [self.commits.first, self.commits.last, self.entries] {
            varint::put(&mut bytes, number);
        }
        for key in [&self.first_key, &self.last_key] {
            varint::put(&mut bytes, key.len() as u64);
            bytes.extend_from_slice(key);
        }
        varint::put(&mut bytes, self.expiring.len() as u64);
        for expiring in &self.expiring {
            varint::put(&mut bytes, u64::from(expiring.table));
            varint::put(&mut bytes, u64::from(expiring.family));
            varint::put(&mut bytes, expiring.bytes);
            varint::put(&mut bytes, varint::zigzag(expiring.newest_ms));
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let store = reader.array()?;
        let commits = CommitRange {
            first: reader.number()?,
            last: reader.number()?,
        };
        let entries = reader.number()?;
        let mut key = || {
            let length = reader.length()?;
            reader.bytes(length).map(<[u8]>::to_vec)
        };
        let (first_key, last_key) = (key()?, key()?);
        let expiring = (0..reader.number()?)
            .map(|_| {
                Some(Expiring {
                    table: u16::try_from(reader.number()?).ok()?,
                    family: u8::try_from(reader.number()?).ok()?,
                    bytes: reader.number()?,
                    newest_ms: reader.signed()?,
                })
            })
            .collect::<Option<_>>()?;
        reader.0.is_empty().then_some(Self {
            store,
            commits,
            entries,
            first_key,
            last_key,
            expiring,
        })
    }
}
