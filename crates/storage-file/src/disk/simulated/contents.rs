//! The bytes of a file, and the durable ones among them.

use std::io::{self, ErrorKind};

use super::random::Random;

/// A write of a sector is atomic.
const SECTOR: usize = 512;

/// The content of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    bytes: Vec<u8>,
    /// The number of leading bytes that are durable.
    synced: usize,
    /// The durable content, if bytes of it were removed and the removal is not durable.
    before_cut: Option<Vec<u8>>,
    /// No byte behind this one becomes durable, because a sync failed.
    sync_limit: Option<usize>,
}

impl Contents {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn sync(&mut self) {
        self.synced = self.sync_limit.unwrap_or(usize::MAX).min(self.bytes.len());
        self.before_cut = None;
    }

    /// Lets the bytes that are not durable never become so.
    pub(super) fn lose_unsynced(&mut self) {
        self.sync_limit.get_or_insert(self.synced);
    }

    /// Replaces the bytes that are not durable by zeros.
    pub(super) fn drop_unsynced(&mut self) {
        self.lose_unsynced();
        self.bytes[self.synced..].fill(0);
    }

    /// Removes the bytes behind the first `len` and returns their number.
    pub(super) fn cut(&mut self, len: u64) -> io::Result<u64> {
        let len = usize::try_from(len).map_err(|_| ErrorKind::UnexpectedEof)?;
        let removed = self
            .bytes
            .len()
            .checked_sub(len)
            .ok_or(ErrorKind::UnexpectedEof)?;
        if len < self.synced {
            self.before_cut
                .get_or_insert_with(|| self.bytes[..self.synced].to_vec());
            self.synced = len;
        }
        self.sync_limit = self.sync_limit.filter(|limit| *limit < len);
        self.bytes.truncate(len);
        Ok(removed as u64)
    }

    pub(super) fn flip_bit(&mut self, bit: u64) -> bool {
        let byte = usize::try_from(bit / 8)
            .ok()
            .and_then(|index| self.bytes.get_mut(index));
        if let Some(byte) = byte {
            *byte ^= 1 << (bit % 8);
            return true;
        }
        false
    }

    /// The content that remains after a power loss.
    pub(super) fn surviving(&self, random: Option<&mut Random>) -> Self {
        let mut bytes = self.surviving_bytes(random);
        bytes.shrink_to_fit();
        Self {
            synced: bytes.len(),
            bytes,
            ..Self::default()
        }
    }

    fn surviving_bytes(&self, random: Option<&mut Random>) -> Vec<u8> {
        let durable = || match &self.before_cut {
            Some(bytes) => bytes.clone(),
            None => self.bytes[..self.synced].to_vec(),
        };
        let Some(random) = random else {
            return durable();
        };
        if self.before_cut.is_some() && random.coin() {
            return durable();
        }
        let mut bytes = self.bytes.clone();
        bytes.truncate(self.synced + random.up_to(bytes.len() - self.synced));
        match random.up_to(2) {
            0 => {}
            1 => {
                let written = self.synced + random.up_to(bytes.len() - self.synced);
                bytes[written..].fill(0);
            }
            _ => {
                // The sector of the last durable byte was written with it.
                let mut start = self.synced;
                while start < bytes.len() {
                    let end = (start / SECTOR + 1) * SECTOR;
                    let end = end.min(bytes.len());
                    if random.coin() {
                        bytes[start..end].fill(0);
                    }
                    start = end;
                }
            }
        }
        bytes
    }
}
