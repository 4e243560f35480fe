//! Row keys of table `tsdb`: one row holds one hour of one series.
//!
//! ```text
//!   salt | metric UID | base time | tagk UID | tagv UID | tagk UID | tagv UID | ...
//!   0..8 |     3      |     4     |    3     |    3     |    3     |    3     |     bytes
//! ```
//!
//! UIDs have the deployment's widths (3 by default), the base time is seconds since the epoch, and everything
//! is big endian. HBase sorts keys as unsigned bytes, so the rows of a metric are in order of time: a query is
//! one range scan per metric and salt bucket. Tag pairs ascend by tagk UID, so that a series has a unique key.
//!
//! Rows of global annotations have no tags; their salt and metric are zeros.
//!
//! Source: OpenTSDB 2.4, `IncomingDataPoints.rowKeyTemplate`, `Tags.resolveOrCreateAll`,
//! `TsdbQuery.getScanner`, `Annotation.getRowKey`.

use std::fmt;

use smallvec::SmallVec;
use thiserror::Error;

use crate::hex_text::excerpt;
use crate::salt::SaltLayout;
use crate::timestamp::{BaseTime, HOUR_SECONDS};
use crate::tsuid::{TagPairs, Tsuid, TsuidError};
use crate::uid::{MetricUid, UidWidths};

/// The layout of a deployment's row keys. By default OpenTSDB's: no salt, UIDs of 3 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RowKeyLayout {
    /// The salt before the metric.
    pub salt: SaltLayout,
    /// The widths of the UIDs.
    pub widths: UidWidths,
}

/// Bytes of the base time.
const BASE_TIME_BYTES: usize = size_of::<u32>();

/// A row key. Ordered by bytes, as HBase orders rows; up to 64 bytes are stored inline.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey(SmallVec<[u8; 64]>);

/// Why bytes are not a row key of table `tsdb`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RowKeyError {
    /// Shorter than salt, metric and base time.
    #[error("row key `{key}` has {actual} bytes, expected at least {expected}")]
    TooShort {
        /// The key, as hex.
        key: String,
        /// Bytes of salt, metric and base time.
        expected: usize,
        /// Bytes of the key.
        actual: usize,
    },
    /// A truncated tag.
    #[error("row key `{key}` has {length} bytes of tags, expected a multiple of {tag}")]
    PartialTag {
        /// The key, as hex.
        key: String,
        /// Bytes after the base time.
        length: usize,
        /// Bytes of a tag.
        tag: usize,
    },
    /// No tags; only the metric UID of global annotations has none.
    #[error("row key `{key}` has no tags, at least 1 is needed")]
    NoTags {
        /// The key, as hex.
        key: String,
    },
    /// A base time that is not the start of an hour.
    #[error("row key `{key}` has the base time {base_time}, expected a multiple of {HOUR_SECONDS}")]
    BaseTime {
        /// The key, as hex.
        key: String,
        /// The stored base time, in seconds.
        base_time: u32,
    },
}

impl RowKey {
    /// The key of one hour of a series. `tsuid` must have the widths of `layout`.
    pub fn new(layout: &RowKeyLayout, tsuid: &Tsuid, base: BaseTime) -> RowKey {
        let mut key = SmallVec::new();
        parts(layout, tsuid.as_bytes(), base, |part| key.extend_from_slice(part));
        RowKey(key)
    }

    /// The key of the row with an hour's global annotations.
    pub fn global_annotations(layout: &RowKeyLayout, base: BaseTime) -> RowKey {
        let mut key = SmallVec::from_elem(0, layout.salt.width() + layout.widths.metric.bytes());
        key.extend_from_slice(&base.seconds().to_be_bytes());
        RowKey(key)
    }

    /// The stored bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Appends the key of one hour of a series to `out`. `tsuid` must have the widths of `layout`.
pub fn write_row_key(layout: &RowKeyLayout, tsuid: &[u8], base: BaseTime, out: &mut Vec<u8>) {
    out.reserve(layout.salt.width() + tsuid.len() + BASE_TIME_BYTES);
    parts(layout, tsuid, base, |part| out.extend_from_slice(part));
}

/// Passes the parts of a row key to `part`, in order.
#[inline]
fn parts(layout: &RowKeyLayout, tsuid: &[u8], base: BaseTime, mut part: impl FnMut(&[u8])) {
    if layout.salt.width() > 0 {
        part(layout.salt.bytes_of(layout.salt.bucket(tsuid)).as_bytes());
    }
    let (metric, tags) = tsuid
        .split_at_checked(layout.widths.metric.bytes())
        .unwrap_or((tsuid, &[]));
    part(metric);
    part(&base.seconds().to_be_bytes());
    part(tags);
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode_upper(&self.0))
    }
}

impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowKey({self})")
    }
}

impl AsRef<[u8]> for RowKey {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// A decoded row key, borrowing from its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowKeyRef<'a> {
    widths: UidWidths,
    salt: &'a [u8],
    metric: MetricUid,
    metric_bytes: &'a [u8],
    base_time: BaseTime,
    tags: &'a [u8],
}

impl<'a> RowKeyRef<'a> {
    /// Decodes a key.
    ///
    /// The salt and the order of the tags are not validated, since reading needs neither; see
    /// [`RowKeyRef::has_valid_salt`] and [`RowKeyRef::tsuid`].
    ///
    /// # Errors
    ///
    /// [`RowKeyError`]: the row was written with other widths, or is damaged.
    pub fn decode(bytes: &'a [u8], layout: &RowKeyLayout) -> Result<RowKeyRef<'a>, RowKeyError> {
        let RowKeyLayout { salt, widths } = *layout;
        let split = || {
            let (salt, rest) = bytes.split_at_checked(salt.width())?;
            let (metric, rest) = rest.split_at_checked(widths.metric.bytes())?;
            let (base_time, tags) = rest.split_first_chunk()?;
            // Cannot fail: the slice has the width of a UID.
            let uid = MetricUid::from_bytes(metric).ok()?;
            Some((salt, uid, metric, u32::from_be_bytes(*base_time), tags))
        };
        let (salt, metric, metric_bytes, base_time, tags) = split().ok_or_else(|| RowKeyError::TooShort {
            key: excerpt(bytes),
            expected: salt.width() + widths.metric.bytes() + BASE_TIME_BYTES,
            actual: bytes.len(),
        })?;
        if !tags.len().is_multiple_of(widths.tag_bytes()) {
            return Err(RowKeyError::PartialTag {
                key: excerpt(bytes),
                length: tags.len(),
                tag: widths.tag_bytes(),
            });
        }
        if tags.is_empty() && metric.uid().number() != 0 {
            return Err(RowKeyError::NoTags { key: excerpt(bytes) });
        }
        let base_time = BaseTime::from_seconds_exact(base_time).map_err(|_| RowKeyError::BaseTime {
            key: excerpt(bytes),
            base_time,
        })?;
        Ok(RowKeyRef {
            widths,
            salt,
            metric,
            metric_bytes,
            base_time,
            tags,
        })
    }

    /// The salt, of the layout's width.
    pub const fn salt(&self) -> &'a [u8] {
        self.salt
    }

    /// The metric; number 0 in the row of global annotations.
    pub const fn metric(&self) -> MetricUid {
        self.metric
    }

    /// The metric's UID as stored.
    pub const fn metric_bytes(&self) -> &'a [u8] {
        self.metric_bytes
    }

    /// The hour.
    pub const fn base_time(&self) -> BaseTime {
        self.base_time
    }

    /// The tags in stored order, which is ascending by tagk UID in every row that a writer produces.
    pub fn tags(&self) -> TagPairs<'a> {
        TagPairs::new(self.tags, &self.widths)
    }

    /// The tags as stored: pairs of tagk and tagv UIDs. Empty for global annotations only.
    pub const fn tag_bytes(&self) -> &'a [u8] {
        self.tags
    }

    /// Whether this is the row of an hour's global annotations, which belong to no series.
    pub const fn is_global(&self) -> bool {
        self.tags.is_empty()
    }

    /// Replaces the content of `out` by the bytes of the series' TSUID. Not validated; for scans that group rows by
    /// series.
    pub fn tsuid_bytes(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.metric_bytes);
        out.extend_from_slice(self.tags);
    }

    /// The series' TSUID.
    ///
    /// # Errors
    ///
    /// [`TsuidError::Length`] for global annotations, [`TsuidError::NotAscending`] for an order of tags that no
    /// writer produces.
    pub fn tsuid(&self) -> Result<Tsuid, TsuidError> {
        let mut bytes = SmallVec::<[u8; 64]>::from_slice(self.metric_bytes);
        bytes.extend_from_slice(self.tags);
        Tsuid::from_bytes(&bytes, &self.widths)
    }

    /// Whether the salt is the one that the layout assigns to this series. A row with another salt is found only by
    /// scans, never by its key.
    pub fn has_valid_salt(&self, layout: &RowKeyLayout) -> bool {
        if self.is_global() {
            return self.salt.iter().all(|byte| *byte == 0);
        }
        let mut tsuid = Vec::with_capacity(64);
        self.tsuid_bytes(&mut tsuid);
        layout.salt.bytes_of(layout.salt.bucket(&tsuid)).as_bytes() == self.salt
    }
}

/// The row keys of a metric in one bucket: from `start`, inclusive, to `stop`, exclusive.
///
/// A reader must visit all of [`SaltLayout::buckets`]; without salt that is bucket 0. A `stop` of
/// [`BaseTime::MAX`], at which [`BaseTime::next_hour`] saturates, includes that last hour.
pub fn metric_range(
    layout: &RowKeyLayout,
    metric: MetricUid,
    start: BaseTime,
    stop: BaseTime,
    bucket: u32,
) -> (Vec<u8>, Vec<u8>) {
    let salt = layout.salt.bytes_of(bucket);
    let key = |seconds: u32| [salt.as_bytes(), metric.as_bytes(), &seconds.to_be_bytes()].concat();
    let stop = if stop == BaseTime::MAX {
        u32::MAX
    } else {
        stop.seconds()
    };
    (key(start.seconds()), key(stop))
}

/// The row keys of a metric in all buckets, as [`metric_range`]: ascending ranges.
pub fn metric_ranges(
    layout: &RowKeyLayout,
    metric: MetricUid,
    start: BaseTime,
    stop: BaseTime,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut ranges: Vec<_> = layout
        .salt
        .buckets()
        .map(|bucket| metric_range(layout, metric, start, stop, bucket))
        .collect();
    // With more buckets than the bytes of the salt can distinguish, some ranges are equal.
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

#[cfg(test)]
mod tests;
