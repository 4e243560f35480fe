//! Salt: a row key prefix that spreads series over buckets, and so over region servers.
//!
//! ```text
//!   b    = metric UID ++ tag pairs                  (the TSUID; the base time is not hashed)
//!   h    = 1; for each byte x of b: h = 31 h + x    (x signed, h wrapping in 32 signed bits)
//!   n    = |h rem buckets|
//!   salt = the low `width` bytes of n, big endian
//! ```
//!
//! All hours of a series are in one bucket, and a scan of a metric visits every bucket. Keys of global
//! annotations have zeros in place of the salt.
//!
//! Source: OpenTSDB 2.4, `RowKey.prefixKeyWithSalt`, `Const.SALT_WIDTH`, `Const.SALT_BUCKETS`.

use thiserror::Error;

/// The number of salt bytes of a deployment's row keys and the number of buckets. A property of the tables, as
/// UID widths are. Off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaltLayout {
    width: u8,
    buckets: u32,
}

/// An invalid salt layout.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SaltError {
    /// A width outside 0 to 8.
    #[error("{bytes} bytes is not a salt width, expected 0 to 8")]
    Width {
        /// The rejected width.
        bytes: usize,
    },
    /// A number of buckets outside 1 to 2147483647.
    #[error("{buckets} is not a number of salt buckets, expected 1 to 2147483647")]
    Buckets {
        /// The rejected number.
        buckets: u32,
    },
}

/// OpenTSDB's default of `tsd.storage.salt.buckets`.
pub const BUCKETS_DEFAULT: u32 = 20;

impl SaltLayout {
    /// No salt.
    pub const OFF: SaltLayout = SaltLayout {
        width: 0,
        buckets: BUCKETS_DEFAULT,
    };

    /// Checks `tsd.storage.salt.width`, in bytes, and `tsd.storage.salt.buckets`. A width of 0
    /// turns salt off, whatever the buckets.
    ///
    /// # Errors
    ///
    /// [`SaltError`] for a width above 8, no buckets, or more than 31 bits can count.
    pub fn new(width: usize, buckets: u32) -> Result<SaltLayout, SaltError> {
        if i32::try_from(buckets).is_err() || buckets == 0 {
            return Err(SaltError::Buckets { buckets });
        }
        match u8::try_from(width) {
            Ok(width @ 0..=8) => Ok(SaltLayout { width, buckets }),
            _ => Err(SaltError::Width { bytes: width }),
        }
    }

    /// Salt bytes of each row key, 0 to 8; 0 if salt is off.
    pub const fn width(self) -> usize {
        self.width as usize
    }

    /// The number of buckets; meaningless if salt is off.
    pub const fn bucket_count(self) -> u32 {
        self.buckets
    }

    /// The bucket of a series.
    pub fn bucket(self, tsuid: &[u8]) -> u32 {
        let hash = tsuid.iter().fold(1_i32, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(i32::from(byte.cast_signed()))
        });
        // `new` ensures that the number of buckets is positive.
        hash.wrapping_rem(self.buckets.cast_signed()).unsigned_abs()
    }

    /// Appends the salt of a series' row keys to `out`; nothing if salt is off.
    pub fn salt(self, tsuid: &[u8], out: &mut Vec<u8>) {
        if self.width > 0 {
            out.extend_from_slice(self.bytes_of(self.bucket(tsuid)).as_bytes());
        }
    }

    /// The salt of a bucket: its number in `width` bytes, dropping higher bytes.
    pub fn bytes_of(self, bucket: u32) -> SaltBytes {
        let dropped = u64::MAX.checked_shl(8 * u32::from(self.width)).unwrap_or(0);
        SaltBytes {
            bytes: (u64::from(bucket) & !dropped).to_be_bytes(),
            width: self.width,
        }
    }

    /// The buckets that a scan must visit, ascending: one per distinct salt. Without salt that is bucket 0; if the
    /// width has fewer values than there are buckets, one bucket per value.
    pub fn buckets(self) -> std::ops::Range<u32> {
        match self.width {
            0 => 0..1,
            width @ 1..=3 => 0..self.buckets.min(1 << (8 * width)),
            _ => 0..self.buckets,
        }
    }
}

impl Default for SaltLayout {
    fn default() -> SaltLayout {
        SaltLayout::OFF
    }
}

/// The salt of one bucket, stored inline. Salts of one layout are in the order of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SaltBytes {
    bytes: [u8; 8],
    width: u8,
}

impl SaltBytes {
    /// 0 to 8 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(8 - usize::from(self.width)..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
