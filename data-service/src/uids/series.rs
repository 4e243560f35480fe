//! A series as the write path names it, and its row key.

use std::sync::atomic::{AtomicU32, Ordering};

use oxtsdb_schema::{BaseTime, RowKey, RowKeyLayout, Tsuid, UidKind};

use super::changes::UidSet;

/// A series, ready to be written to.
#[derive(Debug)]
pub(crate) struct Series {
    /// The key of its row of hour 0.
    key: RowKey,
    /// Where the base time lies in the key.
    base_time_at: usize,
    salt_width: usize,
    /// The hour of the clock in which its row of table `tsdb-meta` was stored last, in hours since the
    /// epoch; 0: not yet by this process.
    tracked_hour: AtomicU32,
}

/// Bytes of the base time in a row key.
const BASE_TIME_BYTES: usize = 4;

impl Series {
    pub(crate) fn new(layout: &RowKeyLayout, tsuid: &Tsuid) -> Self {
        let base_time_at = layout.salt.width() + layout.widths.metric.bytes();
        Self {
            key: RowKey::new(layout, tsuid, BaseTime::MIN),
            base_time_at,
            salt_width: layout.salt.width(),
            tracked_hour: AtomicU32::new(0),
        }
    }

    /// Appends the key of the row of hour 0; see [`set_base_time`].
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// Where [`set_base_time`] is to put the base time.
    pub(crate) fn base_time_at(&self) -> usize {
        self.base_time_at
    }

    /// The TSUID: the key without salt and base time.
    pub(crate) fn tsuid(&self) -> Vec<u8> {
        let key = self.key();
        let (metric, tags) = (
            &key[self.salt_width..self.base_time_at],
            &key[self.base_time_at + BASE_TIME_BYTES..],
        );
        [metric, tags].concat()
    }

    /// Whether one of its UIDs is in the set.
    pub(crate) fn uses(&self, layout: &RowKeyLayout, uids: &UidSet) -> bool {
        let Ok(tsuid) = Tsuid::from_bytes(&self.tsuid(), &layout.widths) else {
            return false;
        };
        let contains = |kind, uid| uids.contains(&(kind, uid));
        contains(UidKind::Metric, tsuid.metric(&layout.widths).uid())
            || tsuid.tags(&layout.widths).any(|(tagk, tagv)| {
                contains(UidKind::Tagk, tagk.uid()) || contains(UidKind::Tagv, tagv.uid())
            })
    }

    /// See [`Series::set_tracked_hour`]; 0: never.
    #[inline]
    pub(crate) fn tracked_hour(&self) -> u32 {
        self.tracked_hour.load(Ordering::Relaxed)
    }

    /// Notes that the series' row of table `tsdb-meta` was stored in this hour of the clock.
    pub(crate) fn set_tracked_hour(&self, hour: u32) {
        self.tracked_hour.store(hour, Ordering::Relaxed);
    }
}

/// Makes a series' key that of an hour.
pub(crate) fn set_base_time(key: &mut [u8], base_time_at: usize, base: BaseTime) {
    key[base_time_at..base_time_at + BASE_TIME_BYTES].copy_from_slice(&base.seconds().to_be_bytes());
}

/// A series as a point names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeriesRef<'a> {
    /// By names; tags in the order given.
    Names {
        metric: &'a str,
        tags: &'a [(&'a str, &'a str)],
    },
    /// By TSUID, as it came.
    Tsuid(&'a [u8]),
}

impl SeriesRef<'_> {
    /// Puts the key of the cache into `key`, in place of what was there.
    ///
    /// FE and FF never occur in UTF-8, so no two series have one key.
    pub(crate) fn write_key(&self, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Names { metric, tags } => {
                key.extend_from_slice(metric.as_bytes());
                for (tagk, tagv) in *tags {
                    key.push(0xff);
                    key.extend_from_slice(tagk.as_bytes());
                    key.push(0xff);
                    key.extend_from_slice(tagv.as_bytes());
                }
            }
            Self::Tsuid(tsuid) => {
                key.push(0xfe);
                key.extend_from_slice(tsuid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidths;

    use super::*;

    fn key(series: SeriesRef<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        series.write_key(&mut key);
        key
    }

    #[test]
    fn names_that_run_together_are_different_keys() {
        let names = |metric, tags| key(SeriesRef::Names { metric, tags });
        assert_ne!(names("ab", &[("c", "d")]), names("a", &[("bc", "d")]));
        assert_ne!(
            names("a", &[("b", "c"), ("d", "e")]),
            names("a", &[("d", "e"), ("b", "c")])
        );
        assert_ne!(names("a", &[]), key(SeriesRef::Tsuid(b"a")));
    }

    #[test]
    fn a_row_key_gets_the_hour_behind_salt_and_metric() {
        let layout = RowKeyLayout {
            salt: oxtsdb_schema::SaltLayout::new(1, 20).unwrap(),
            widths: UidWidths::default(),
        };
        let tsuid = Tsuid::from_bytes(&[0, 0, 1, 0, 0, 1, 0, 0, 2], &layout.widths).unwrap();
        let series = Series::new(&layout, &tsuid);
        let base = BaseTime::of_seconds(1_346_846_400);
        let mut made = series.key().to_vec();
        set_base_time(&mut made, series.base_time_at(), base);
        assert_eq!(made, RowKey::new(&layout, &tsuid, base).as_bytes());
    }
}
