//! Compression of a family's files in HBase.

use std::fmt;
use std::str::FromStr;

use crate::StoreError;

/// An algorithm. All except [`Compression::Gz`] need native libraries on the region servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// gzip.
    Gz,
    /// LZO, which OpenTSDB's documentation recommends.
    Lzo,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// All algorithms.
    pub const ALL: [Compression; 6] = [
        Self::None,
        Self::Gz,
        Self::Lzo,
        Self::Snappy,
        Self::Lz4,
        Self::Zstd,
    ];

    /// HBase's name of the algorithm: `NONE`, `GZ`, `LZO`, ...
    pub const fn hbase_name(self) -> &'static str {
        match self {
            Self::None => "NONE",
            Self::Gz => "GZ",
            Self::Lzo => "LZO",
            Self::Snappy => "SNAPPY",
            Self::Lz4 => "LZ4",
            Self::Zstd => "ZSTD",
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hbase_name())
    }
}

impl FromStr for Compression {
    type Err = StoreError;

    /// Parses HBase's name, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, StoreError> {
        let known = Self::ALL
            .into_iter()
            .find(|known| known.hbase_name().eq_ignore_ascii_case(text));
        known.ok_or_else(|| StoreError::Invalid {
            detail: format!(
                "`{text}` is not a compression of HBase, expected {}",
                Self::ALL.map(Self::hbase_name).join(", ")
            ),
        })
    }
}
