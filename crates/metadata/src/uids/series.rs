//! A series as the write path names it, and its TSUID.

use std::hash::{BuildHasher, Hasher as _};
use std::sync::atomic::{AtomicU32, Ordering};

use oxtsdb_point_store::{PointStore, SeriesNumber};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{RowKeyLayout, Tsuid, UidKind};
use triomphe::ThinArc;

use super::changes::ChangedUids;

/// A series, ready to be written to. Clones share it.
///
/// The cache has a million of them and more, so all of it is one allocation: 16 bytes of the reference count and the length, the
/// head, the TSUID, and behind it the key in the cache; no key if the series is in no cache.
#[derive(Clone, Debug)]
pub struct Series(ThinArc<Head, u8>);

#[derive(Debug)]
struct Head {
    tsuid_len: u32,
    /// The hour of the clock in which its row of table `tsdb-meta` was stored last, in hours since the
    /// epoch; 0: not yet by this process.
    tracked_hour: AtomicU32,
    /// Its number in the store of points; [`u32::MAX`]: not known yet.
    number: AtomicU32,
}

impl Series {
    /// Creates a series that is not tracked yet, without its number.
    pub fn new(tsuid: &Tsuid) -> Self {
        let bytes = tsuid.as_bytes();
        let head = Head {
            // A TSUID has at most 64 tags, of 16 bytes each.
            tsuid_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            tracked_hour: AtomicU32::new(0),
            number: AtomicU32::new(u32::MAX),
        };
        Self(ThinArc::from_header_and_slice(head, bytes))
    }

    /// A copy of the series with its key in a cache.
    pub(super) fn with_key(&self, key: SeriesKey<'_>) -> Self {
        let mut bytes = Vec::with_capacity(self.tsuid().len() + key.byte_len());
        bytes.extend_from_slice(self.tsuid());
        key.append_to(&mut bytes);
        let head = Head {
            tsuid_len: self.head().tsuid_len,
            tracked_hour: AtomicU32::new(self.tracked_hour()),
            number: AtomicU32::new(self.head().number.load(Ordering::Relaxed)),
        };
        Self(ThinArc::from_header_and_slice(head, &bytes))
    }

    #[inline]
    fn head(&self) -> &Head {
        &self.0.header.header
    }

    /// Its address, by which clones are known.
    #[inline]
    pub fn address(&self) -> usize {
        self.0.heap_ptr().addr()
    }

    /// The TSUID.
    #[inline]
    pub fn tsuid(&self) -> &[u8] {
        &self.0.slice[..self.head().tsuid_len as usize]
    }

    /// The key in the cache.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        &self.0.slice[self.head().tsuid_len as usize..]
    }

    /// Bytes of the TSUID and the key.
    pub(super) fn byte_len(&self) -> usize {
        self.0.slice.len()
    }

    /// Reads the memory of the series, so that it is in the processor's cache.
    #[inline]
    pub(super) fn touch(&self) -> u32 {
        self.head().tsuid_len
    }

    /// Whether one of its UIDs is in the set.
    pub fn uses(&self, layout: &RowKeyLayout, uids: &ChangedUids) -> bool {
        let Ok(tsuid) = Tsuid::from_bytes(self.tsuid(), &layout.widths) else {
            return false;
        };
        let contains = |kind, uid| uids.contains(&(kind, uid));
        contains(UidKind::Metric, tsuid.metric(&layout.widths).uid())
            || tsuid.tags(&layout.widths).any(|(tagk, tagv)| {
                contains(UidKind::Tagk, tagk.uid()) || contains(UidKind::Tagv, tagv.uid())
            })
    }

    /// Its number in the store of points; a process has one store.
    ///
    /// # Errors
    ///
    /// As [`PointStore::numbers`].
    #[inline]
    pub fn number(&self, store: &dyn PointStore) -> Result<SeriesNumber, StoreError> {
        match self.head().number.load(Ordering::Relaxed) {
            u32::MAX => {
                let numbers = store.numbers(&[self.tsuid()])?;
                let number = numbers.first().copied().unwrap_or(SeriesNumber(u32::MAX));
                self.head().number.store(number.0, Ordering::Relaxed);
                Ok(number)
            }
            number => Ok(SeriesNumber(number)),
        }
    }

    /// See [`Series::set_tracked_hour`]; 0: never.
    #[inline]
    pub fn tracked_hour(&self) -> u32 {
        self.head().tracked_hour.load(Ordering::Relaxed)
    }

    /// Notes that the series' row of table `tsdb-meta` was stored in this hour of the clock.
    pub fn set_tracked_hour(&self, hour: u32) {
        self.head().tracked_hour.store(hour, Ordering::Relaxed);
    }
}

/// A series as a point names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeriesRef<'a> {
    /// By names; tags in the order given.
    Names {
        /// Metric name.
        metric: &'a str,
        /// Key and value of each tag.
        tags: &'a [(&'a str, &'a str)],
    },
    /// By names that were parsed from the text of a request.
    Text {
        /// The text, which is the key in the cache.
        text: SeriesText<'a>,
        /// Key and value of each tag, parsed from `text`.
        tags: &'a [(&'a str, &'a str)],
    },
    /// By TSUID, as it came.
    Tsuid(&'a [u8]),
}

/// A series to be resolved, or one that is known already.
#[derive(Debug)]
pub enum Requested<'a> {
    /// Resolved before.
    Known(Series),
    /// To be looked up in the cache, then by the UID service.
    Series(SeriesRef<'a>),
}

impl<'a> From<SeriesRef<'a>> for Requested<'a> {
    fn from(series: SeriesRef<'a>) -> Self {
        Self::Series(series)
    }
}

/// The text of a request that identifies a series: equal texts have equal names, so that the series is known without
/// parsing them. Texts that differ may have equal names too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeriesText<'a> {
    /// The syntax of `tags`.
    pub syntax: Syntax,
    /// Metric name.
    pub metric: &'a str,
    /// All tags with what separates them.
    pub tags: &'a str,
}

/// How the tags of a [`SeriesText`] are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syntax {
    /// `host=web01 dc=lga`
    Telnet,
    /// `"host":"web01","dc":"lga"`
    Json,
    /// Fields of a message; see [`oxtsdb_proto::write_view`].
    Protobuf,
}

impl<'a> SeriesRef<'a> {
    /// The key of the series in the cache; `buffer` may hold it.
    pub fn key<'b>(&self, buffer: &'b mut Vec<u8>) -> SeriesKey<'b>
    where
        'a: 'b,
    {
        buffer.clear();
        match *self {
            Self::Names { metric, tags } => {
                buffer.extend_from_slice(metric.as_bytes());
                for (tagk, tagv) in tags {
                    buffer.push(0xff);
                    buffer.extend_from_slice(tagk.as_bytes());
                    buffer.push(0xff);
                    buffer.extend_from_slice(tagv.as_bytes());
                }
            }
            Self::Text { text, .. } => return SeriesKey::Text(text),
            Self::Tsuid(tsuid) => {
                buffer.push(0xfe);
                buffer.extend_from_slice(tsuid);
            }
        }
        SeriesKey::Bytes(buffer)
    }
}

/// The key of a series in the cache.
///
/// ```text
///   names    metric | FF | tagk | FF | tagv | FF | tagk | ...
///   TSUID    FE | TSUID
///   text     FB (protobuf), FC (JSON) or FD (telnet) | metric | FF | tags
/// ```
///
/// FB to FF never occur in UTF-8, so no two series have one key.
#[derive(Clone, Copy, Debug)]
pub enum SeriesKey<'a> {
    /// All bytes, of names or a TSUID.
    Bytes(&'a [u8]),
    /// Without a copy of the text.
    Text(SeriesText<'a>),
}

impl SeriesKey<'_> {
    pub(crate) fn hash(&self, hasher: &impl BuildHasher) -> u64 {
        let mut hasher = hasher.build_hasher();
        match self {
            Self::Bytes(bytes) => hasher.write(bytes),
            Self::Text(text) => {
                hasher.write(text.metric.as_bytes());
                hasher.write(text.tags.as_bytes());
            }
        }
        hasher.finish()
    }

    /// Whether this is the key with these bytes.
    #[inline]
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Bytes(own) => *own == bytes,
            Self::Text(text) => {
                let (metric, tags) = (text.metric.as_bytes(), text.tags.as_bytes());
                bytes.len() == 2 + metric.len() + tags.len()
                    && bytes[0] == text.syntax.first_byte()
                    && bytes[1..=metric.len()] == *metric
                    && bytes[1 + metric.len()] == 0xff
                    && bytes[2 + metric.len()..] == *tags
            }
        }
    }

    /// The number of its bytes.
    pub(crate) const fn byte_len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Text(text) => 2 + text.metric.len() + text.tags.len(),
        }
    }

    /// Appends its bytes.
    pub(crate) fn append_to(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => buffer.extend_from_slice(bytes),
            Self::Text(SeriesText { syntax, metric, tags }) => {
                buffer.push(syntax.first_byte());
                buffer.extend_from_slice(metric.as_bytes());
                buffer.push(0xff);
                buffer.extend_from_slice(tags.as_bytes());
            }
        }
    }
}

impl Syntax {
    fn first_byte(self) -> u8 {
        match self {
            Self::Telnet => 0xfd,
            Self::Json => 0xfc,
            Self::Protobuf => 0xfb,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(series: SeriesRef<'_>) -> Vec<u8> {
        let (mut buffer, mut bytes) = (Vec::new(), Vec::new());
        let key = series.key(&mut buffer);
        key.append_to(&mut bytes);
        assert!(key.is(&bytes));
        assert_eq!(key.byte_len(), bytes.len());
        bytes
    }

    #[test]
    fn names_that_run_together_are_different_keys() {
        let names = |metric, tags| key(SeriesRef::Names { metric, tags });
        let text = |syntax, metric, tags| {
            let text = SeriesText { syntax, metric, tags };
            key(SeriesRef::Text { text, tags: &[] })
        };
        assert_ne!(
            text(Syntax::Telnet, "ab", "c=d"),
            text(Syntax::Telnet, "a", "bc=d")
        );
        assert_ne!(text(Syntax::Telnet, "a", "b"), text(Syntax::Json, "a", "b"));
        assert_ne!(text(Syntax::Telnet, "a", ""), names("a", &[]));
        assert_ne!(names("ab", &[("c", "d")]), names("a", &[("bc", "d")]));
        assert_ne!(
            names("a", &[("b", "c"), ("d", "e")]),
            names("a", &[("d", "e"), ("b", "c")])
        );
        assert_ne!(names("a", &[]), key(SeriesRef::Tsuid(b"a")));
    }
}
