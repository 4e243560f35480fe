//! A series as the write path names it, and its TSUID.

use std::sync::atomic::{AtomicU32, Ordering};

use oxtsdb_point_store::{PointStore, SeriesNumber};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{RowKeyLayout, Tsuid, UidKind};
use triomphe::ThinArc;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::changes::ChangedUids;

/// A series, ready to be written to. Clones share it.
///
/// The cache has a million of them and more, so all of it is one allocation: 16 bytes of the reference count and the length, the
/// head, and the TSUID. With three tags of 3 bytes each it takes 61 bytes, a line of the processor's cache.
#[derive(Clone, Debug)]
pub struct Series(ThinArc<Head, u8>);

#[derive(Debug)]
struct Head {
    /// The hour of the clock in which its row of table `tsdb-meta` was stored last, in hours since the
    /// epoch; 0: not yet by this process.
    tracked_hour: AtomicU32,
    /// Its number in the store of points; [`u32::MAX`]: not known yet.
    number: AtomicU32,
    /// The fingerprint of its key in the cache, and the first step of the cache's clock at which it is expired there; 0 if it is in
    /// no cache.
    fingerprint: Fingerprint,
    expires_at: AtomicU32,
}

impl Series {
    /// Creates a series that is not tracked yet, without its number.
    pub fn new(tsuid: &Tsuid) -> Self {
        let head = Head {
            tracked_hour: AtomicU32::new(0),
            number: AtomicU32::new(u32::MAX),
            fingerprint: Fingerprint::default(),
            expires_at: AtomicU32::new(0),
        };
        Self(ThinArc::from_header_and_slice(head, tsuid.as_bytes()))
    }

    /// A copy of the series as an entry of a cache.
    pub(super) fn cached(&self, fingerprint: Fingerprint, expires_at: u32) -> Self {
        let head = Head {
            tracked_hour: AtomicU32::new(self.tracked_hour()),
            number: AtomicU32::new(self.head().number.load(Ordering::Relaxed)),
            fingerprint,
            expires_at: AtomicU32::new(expires_at),
        };
        Self(ThinArc::from_header_and_slice(head, self.tsuid()))
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
        &self.0.slice
    }

    /// The fingerprint of its key in the cache.
    #[inline]
    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.head().fingerprint
    }

    /// The first step of the cache's clock at which it is expired.
    #[inline]
    pub(super) fn expires_at(&self) -> u32 {
        self.head().expires_at.load(Ordering::Relaxed)
    }

    /// Sets the step at which it expires.
    pub(super) fn set_expires_at(&self, step: u32) {
        self.head().expires_at.store(step, Ordering::Relaxed);
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
    /// `TimeSeries.labels` of Prometheus remote write 1.0, with the metric among them.
    RemoteWrite,
}

impl SeriesRef<'_> {
    /// The key of the series in the cache, written to `buffer`.
    pub fn key<'b>(&self, buffer: &'b mut Vec<u8>) -> SeriesKey<'b> {
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
            Self::Text { text, .. } => return text.key(buffer),
            Self::Tsuid(tsuid) => {
                buffer.push(0xfe);
                buffer.extend_from_slice(tsuid);
            }
        }
        SeriesKey(buffer)
    }
}

impl SeriesText<'_> {
    /// The key of the series in the cache, written to `buffer`.
    #[inline]
    pub(super) fn key<'b>(&self, buffer: &'b mut Vec<u8>) -> SeriesKey<'b> {
        let Self { syntax, metric, tags } = self;
        buffer.clear();
        buffer.push(syntax.first_byte());
        buffer.extend_from_slice(metric.as_bytes());
        buffer.push(0xff);
        buffer.extend_from_slice(tags.as_bytes());
        SeriesKey(buffer)
    }
}

/// The key of a series in the cache.
///
/// ```text
///   names    metric | FF | tagk | FF | tagv | FF | tagk | ...
///   TSUID    FE | TSUID
///   text     FA (remote write), FB (protobuf), FC (JSON) or FD (telnet) | metric | FF | tags
/// ```
///
/// FA to FF never occur in UTF-8, so no two series have one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesKey<'a>(&'a [u8]);

/// The key of a series in 96 bits: the highest of its XXH3 with 128 bits and a random seed.
///
/// Two keys with one fingerprint would be taken for one series. With 100 million keys the probability is 6 × 10^-14, and callers
/// cannot construct such keys, as they do not know the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint([u32; 3]);

impl Fingerprint {
    /// The fingerprint of a key.
    #[inline]
    pub(super) fn new(key: SeriesKey<'_>, seed: u64) -> Self {
        let hash = xxh3_128_with_seed(key.0, seed);
        let word = |shift: u32| (hash >> shift & 0xffff_ffff) as u32;
        Self([word(96), word(64), word(32)])
    }

    /// The hash by which a table finds it.
    #[inline]
    pub(super) const fn table_hash(self) -> u64 {
        (self.0[0] as u64) << 32 | self.0[1] as u64
    }

    /// A number below `count`, from bits that [`Self::table_hash`] does not use.
    #[inline]
    pub(super) const fn shard(self, count: usize) -> usize {
        self.0[2] as usize % count
    }
}

impl Syntax {
    fn first_byte(self) -> u8 {
        match self {
            Self::Telnet => 0xfd,
            Self::Json => 0xfc,
            Self::Protobuf => 0xfb,
            Self::RemoteWrite => 0xfa,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(series: SeriesRef<'_>) -> Vec<u8> {
        let mut buffer = b"before".to_vec();
        series.key(&mut buffer);
        buffer
    }

    #[test]
    fn a_series_of_three_tags_is_one_line_of_the_processors_cache() {
        let (counts, tsuid) = (2 * size_of::<usize>(), 3 + 3 * 6);
        assert_eq!(counts + size_of::<Head>() + tsuid, 61);
        assert_eq!(size_of::<Series>(), 8);
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
