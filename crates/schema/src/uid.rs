//! UIDs: fixed-width numbers that replace names in row keys.
//!
//! Metrics, tag keys and tag values each have a number space, with a width of 1 to 8 bytes that is a property
//! of the deployment's tables (3 by default; storage does not record it). A UID is the number in big endian and
//! sorts as unsigned bytes. Number 0 is never assigned.
//!
//! Source: OpenTSDB 2.4, `UniqueId`, `TSDB.METRICS_QUAL`, `TSDB.TAG_NAME_QUAL`, `TSDB.TAG_VALUE_QUAL`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The number space of a UID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UidKind {
    /// Names of metrics.
    Metric,
    /// Names of tags: tag keys.
    Tagk,
    /// Values of tags.
    Tagv,
}

impl UidKind {
    /// The three kinds, in the order in which the names of a new point are assigned.
    pub const ALL: [UidKind; 3] = [UidKind::Metric, UidKind::Tagk, UidKind::Tagv];

    /// The kind's qualifier in both families of table `tsdb-uid`.
    pub const fn qualifier(self) -> &'static [u8] {
        self.as_str().as_bytes()
    }

    /// The name of the kind, which is its qualifier: `metrics`, `tagk`, `tagv`.
    pub const fn as_str(self) -> &'static str {
        match self {
            UidKind::Metric => "metrics",
            UidKind::Tagk => "tagk",
            UidKind::Tagv => "tagv",
        }
    }

    /// The kind with this qualifier.
    pub fn from_qualifier(qualifier: &[u8]) -> Option<UidKind> {
        UidKind::ALL
            .into_iter()
            .find(|kind| kind.qualifier() == qualifier)
    }
}

impl fmt::Display for UidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for UidKind {
    type Err = UidError;

    /// Parses `metric` or `metrics`, `tagk`, `tagv`; in lower case only, as OpenTSDB does.
    fn from_str(text: &str) -> Result<UidKind, UidError> {
        match text {
            "metric" | "metrics" => Ok(UidKind::Metric),
            "tagk" => Ok(UidKind::Tagk),
            "tagv" => Ok(UidKind::Tagv),
            _ => Err(UidError::UnknownKind {
                text: text.to_owned(),
            }),
        }
    }
}

/// Why a value is not a UID, a width or a kind.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UidError {
    /// A width outside 1 to 8.
    #[error("{bytes} bytes is not a UID width, expected 1 to 8")]
    Width {
        /// The rejected width.
        bytes: usize,
    },
    /// A number that does not fit the width.
    #[error("UID number {number} does not fit {width} bytes, the largest is {max}")]
    TooLarge {
        /// The rejected number.
        number: u64,
        /// The width, in bytes.
        width: u8,
        /// The largest number of that width.
        max: u64,
    },
    /// Text that is not the hex of 1 to 8 bytes.
    #[error("`{text}` is not a UID, expected 1 to 8 bytes as hex")]
    Hex {
        /// The rejected text.
        text: String,
    },
    /// A word that is not a kind.
    #[error("`{text}` is not a kind of UID, expected metrics, tagk or tagv")]
    UnknownKind {
        /// The rejected text.
        text: String,
    },
}

/// The number of bytes of the UIDs of a kind: 1 to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UidWidth(u8);

impl UidWidth {
    /// 3 bytes, OpenTSDB's default.
    pub const DEFAULT: UidWidth = UidWidth(3);

    /// Checks a width in bytes.
    ///
    /// # Errors
    ///
    /// [`UidError::Width`] outside 1 to 8.
    pub fn new(bytes: usize) -> Result<UidWidth, UidError> {
        match u8::try_from(bytes) {
            Ok(width @ 1..=8) => Ok(UidWidth(width)),
            _ => Err(UidError::Width { bytes }),
        }
    }

    /// The width in bytes.
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// The largest number that can be assigned: all bytes `FF`, except that OpenTSDB's signed counter limits 8
    /// bytes to 2^63 - 1.
    pub const fn max_number(self) -> u64 {
        match self.0 {
            8.. => i64::MAX as u64,
            width => (1 << (8 * width)) - 1,
        }
    }
}

impl Default for UidWidth {
    fn default() -> UidWidth {
        UidWidth::DEFAULT
    }
}

impl TryFrom<usize> for UidWidth {
    type Error = UidError;

    fn try_from(bytes: usize) -> Result<UidWidth, UidError> {
        UidWidth::new(bytes)
    }
}

impl fmt::Display for UidWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The widths of a deployment; 3, 3 and 3 by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UidWidths {
    /// `tsd.storage.uid.width.metric`
    pub metric: UidWidth,
    /// `tsd.storage.uid.width.tagk`
    pub tagk: UidWidth,
    /// `tsd.storage.uid.width.tagv`
    pub tagv: UidWidth,
}

impl UidWidths {
    /// The width of `kind`.
    pub const fn get(&self, kind: UidKind) -> UidWidth {
        match kind {
            UidKind::Metric => self.metric,
            UidKind::Tagk => self.tagk,
            UidKind::Tagv => self.tagv,
        }
    }

    /// Bytes of a tag: tagk UID and tagv UID.
    pub const fn tag_bytes(&self) -> usize {
        self.tagk.bytes() + self.tagv.bytes()
    }
}

/// A UID of any kind: 1 to 8 bytes, held inline.
// The derived order is the order of the stored bytes: all bytes after `len` are zero, so UIDs with equal arrays differ only in
// trailing zeros, and the shorter one is smaller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid {
    bytes: [u8; 8],
    len: u8,
}

impl Uid {
    /// One zero byte, which is never assigned.
    pub(crate) const ZERO: Uid = Uid {
        bytes: [0; 8],
        len: 1,
    };

    /// The UID of a number at a width.
    ///
    /// # Errors
    ///
    /// [`UidError::TooLarge`] if the number exceeds [`UidWidth::max_number`].
    pub fn from_number(number: u64, width: UidWidth) -> Result<Uid, UidError> {
        let max = width.max_number();
        if number > max {
            return Err(UidError::TooLarge {
                number,
                width: width.0,
                max,
            });
        }
        // The number fits, so only zeros are shifted out.
        let bytes = (number << (8 * (8 - u32::from(width.0)))).to_be_bytes();
        Ok(Uid { bytes, len: width.0 })
    }

    /// The UID with these stored bytes.
    ///
    /// # Errors
    ///
    /// [`UidError::Width`] unless there are 1 to 8 bytes.
    pub fn from_bytes(stored: &[u8]) -> Result<Uid, UidError> {
        let width = UidWidth::new(stored.len())?;
        let mut bytes = [0; 8];
        bytes.iter_mut().zip(stored).for_each(|(to, from)| *to = *from);
        Ok(Uid { bytes, len: width.0 })
    }

    /// Parses hex of either case, 2 digits per byte.
    ///
    /// # Errors
    ///
    /// [`UidError::Hex`] unless it is the hex of 1 to 8 bytes.
    pub fn parse(text: &str) -> Result<Uid, UidError> {
        let bytes = hex::decode(text).ok();
        let bytes = bytes.filter(|bytes| (1..=8).contains(&bytes.len()));
        Uid::from_bytes(&bytes.ok_or_else(|| UidError::Hex {
            text: text.to_owned(),
        })?)
    }

    /// The stored bytes, big endian.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The number that was assigned.
    pub fn number(&self) -> u64 {
        u64::from_be_bytes(self.bytes) >> (8 * (8 - u32::from(self.len)))
    }

    /// The width in bytes.
    pub const fn width(&self) -> UidWidth {
        UidWidth(self.len)
    }
}

/// Upper-case hex, as OpenTSDB's tools print it: `000F42`.
impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode_upper(self.as_bytes()))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({self})")
    }
}

impl FromStr for Uid {
    type Err = UidError;

    fn from_str(text: &str) -> Result<Uid, UidError> {
        Uid::parse(text)
    }
}

/// Distinct types prevent using a tag value in place of a tag key.
macro_rules! uid_of_kind {
    ($(#[$doc:meta])* $name:ident, $kind:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uid);

        impl $name {
            /// The kind of this type.
            pub const KIND: UidKind = $kind;

            /// Declares that `uid` is of this kind.
            pub const fn new(uid: Uid) -> $name {
                $name(uid)
            }

            /// The UID of a number; see [`Uid::from_number`].
            ///
            /// # Errors
            ///
            /// [`UidError::TooLarge`] if the number does not fit the width.
            pub fn from_number(number: u64, width: UidWidth) -> Result<$name, UidError> {
                Uid::from_number(number, width).map($name)
            }

            /// The UID that is stored as these bytes; see [`Uid::from_bytes`].
            ///
            /// # Errors
            ///
            /// [`UidError::Width`] unless there are 1 to 8 bytes.
            pub fn from_bytes(stored: &[u8]) -> Result<$name, UidError> {
                Uid::from_bytes(stored).map($name)
            }

            /// The UID without its kind.
            pub const fn uid(&self) -> Uid {
                self.0
            }

            /// The stored bytes, big endian.
            pub fn as_bytes(&self) -> &[u8] {
                self.0.as_bytes()
            }
        }

        impl From<Uid> for $name {
            fn from(uid: Uid) -> $name {
                $name(uid)
            }
        }

        impl From<$name> for Uid {
            fn from(uid: $name) -> Uid {
                uid.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

uid_of_kind! {
    /// The UID of a metric.
    MetricUid, UidKind::Metric
}
uid_of_kind! {
    /// The UID of a tag key.
    TagkUid, UidKind::Tagk
}
uid_of_kind! {
    /// The UID of a tag value.
    TagvUid, UidKind::Tagv
}

#[cfg(test)]
mod tests;
