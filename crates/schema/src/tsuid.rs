//! TSUIDs: the identity of a series.
//!
//! ```text
//!   metric UID | tagk UID | tagv UID | tagk UID | tagv UID | ...
//!       3      |    3     |    3     |    3     |    3     |       bytes (the deployment's widths)
//! ```
//!
//! A TSUID is a row key without salt and base time, and the row key of table `tsdb-meta`. It has at least one
//! tag, and tags ascend by tagk UID (not by name), so that a series has a unique TSUID. Its text form is
//! upper-case hex.
//!
//! Source: OpenTSDB 2.4, `UniqueId.getTSUIDFromKey`, `Tags.resolveOrCreateAll`.

use std::fmt;

use smallvec::SmallVec;
use thiserror::Error;

use crate::hex_text::excerpt;
use crate::uid::{MetricUid, TagkUid, TagvUid, Uid, UidWidths};

/// The identity of a series. Ordered by bytes, as HBase orders rows.
///
/// Four tags of the default widths are stored inline.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tsuid(SmallVec<[u8; 32]>);

/// Why bytes, text or UIDs are not a TSUID.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TsuidError {
    /// No tags; every series has at least one.
    #[error("series of metric {metric} has no tags, at least 1 is needed")]
    NoTags {
        /// The metric's UID.
        metric: MetricUid,
    },
    /// Two tags with one key.
    #[error("tag key {tagk} is there twice, with the values {first} and {second}")]
    DuplicateTagk {
        /// The key's UID.
        tagk: TagkUid,
        /// A value of it.
        first: TagvUid,
        /// Another, or the same.
        second: TagvUid,
    },
    /// The bytes are not a metric followed by one or more complete tags.
    #[error("TSUID `{tsuid}` has {length} bytes, expected {metric} and one or more times {tag} bytes")]
    Length {
        /// The bytes, as hex.
        tsuid: String,
        /// Their number.
        length: usize,
        /// The metric's width.
        metric: usize,
        /// The width of a tag: tagk and tagv.
        tag: usize,
    },
    /// A tag key that is not greater than its predecessor.
    #[error("TSUID `{tsuid}` has tag key {tagk} after {previous}, expected ascending tag keys")]
    NotAscending {
        /// The bytes, as hex.
        tsuid: String,
        /// The preceding key.
        previous: TagkUid,
        /// The key out of order.
        tagk: TagkUid,
    },
    /// Text that is not hex.
    #[error("`{text}` is not a TSUID, expected hex")]
    Hex {
        /// The rejected text.
        text: String,
    },
}

impl Tsuid {
    /// The TSUID of a metric and its tags, which it sorts.
    ///
    /// # Errors
    ///
    /// [`TsuidError::NoTags`] and [`TsuidError::DuplicateTagk`]. The maximum number of tags is a setting of the
    /// deployment, checked before UIDs are assigned.
    pub fn new(metric: MetricUid, tags: &mut [(TagkUid, TagvUid)]) -> Result<Tsuid, TsuidError> {
        if tags.is_empty() {
            return Err(TsuidError::NoTags { metric });
        }
        tags.sort_unstable();
        for (&(tagk, first), &(next, second)) in tags.iter().zip(tags.iter().skip(1)) {
            if tagk == next {
                return Err(TsuidError::DuplicateTagk { tagk, first, second });
            }
        }
        let mut bytes = SmallVec::from_slice(metric.as_bytes());
        for (tagk, tagv) in tags.iter() {
            bytes.extend_from_slice(tagk.as_bytes());
            bytes.extend_from_slice(tagv.as_bytes());
        }
        Ok(Tsuid(bytes))
    }

    /// Validates a stored TSUID.
    ///
    /// # Errors
    ///
    /// [`TsuidError::Length`] and [`TsuidError::NotAscending`].
    pub fn from_bytes(stored: &[u8], widths: &UidWidths) -> Result<Tsuid, TsuidError> {
        let tag = widths.tag_bytes();
        let tags = stored.len().checked_sub(widths.metric.bytes());
        if !tags.is_some_and(|bytes| bytes > 0 && bytes.is_multiple_of(tag)) {
            return Err(TsuidError::Length {
                tsuid: excerpt(stored),
                length: stored.len(),
                metric: widths.metric.bytes(),
                tag,
            });
        }
        let tsuid = Tsuid(SmallVec::from_slice(stored));
        let mut previous: Option<&[u8]> = None;
        // Bytes ascend as UIDs of one width do.
        for (tagk, _) in tsuid.tag_bytes(widths) {
            if let Some(previous) = previous.filter(|previous| *previous >= tagk) {
                return Err(TsuidError::NotAscending {
                    tsuid: excerpt(stored),
                    previous: TagkUid::new(first_uid(previous)),
                    tagk: TagkUid::new(first_uid(tagk)),
                });
            }
            previous = Some(tagk);
        }
        Ok(tsuid)
    }

    /// Parses hex of either case.
    ///
    /// # Errors
    ///
    /// [`TsuidError::Hex`], and the errors of [`Tsuid::from_bytes`].
    pub fn parse(text: &str, widths: &UidWidths) -> Result<Tsuid, TsuidError> {
        let bytes = hex::decode(text).map_err(|_| TsuidError::Hex {
            text: text.to_owned(),
        })?;
        Tsuid::from_bytes(&bytes, widths)
    }

    /// The stored bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The metric. `widths` must be the widths of the TSUID, otherwise the result is meaningless.
    pub fn metric(&self, widths: &UidWidths) -> MetricUid {
        let width = widths.metric.bytes();
        MetricUid::new(first_uid(self.0.get(..width).unwrap_or(&self.0)))
    }

    /// The tags, ascending by tagk UID. `widths` as for [`Tsuid::metric`].
    pub fn tags(&self, widths: &UidWidths) -> TagPairs<'_> {
        TagPairs::new(self.0.get(widths.metric.bytes()..).unwrap_or_default(), widths)
    }

    /// The bytes of the tags, in their order: the UIDs of tagk and tagv. `widths` as for [`Tsuid::metric`].
    pub fn tag_bytes(&self, widths: &UidWidths) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> + use<'_> {
        let tags = self.0.get(widths.metric.bytes()..).unwrap_or_default();
        let tagk = widths.tagk.bytes();
        tags.chunks_exact(widths.tag_bytes())
            .map(move |pair| pair.split_at(tagk))
    }
}

impl fmt::Display for Tsuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode_upper(&self.0))
    }
}

impl fmt::Debug for Tsuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tsuid({self})")
    }
}

impl AsRef<[u8]> for Tsuid {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Allows looking up maps keyed by TSUIDs by bytes.
impl std::borrow::Borrow<[u8]> for Tsuid {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// The tags of a TSUID or row key, in stored order.
#[derive(Debug, Clone)]
pub struct TagPairs<'a> {
    tagk_width: usize,
    pairs: std::slice::ChunksExact<'a, u8>,
}

impl<'a> TagPairs<'a> {
    /// The tags in `bytes`: pairs of a tagk and a tagv UID. Ignores an incomplete pair at the end.
    pub fn new(bytes: &'a [u8], widths: &UidWidths) -> TagPairs<'a> {
        TagPairs {
            tagk_width: widths.tagk.bytes(),
            pairs: bytes.chunks_exact(widths.tag_bytes()),
        }
    }
}

impl Iterator for TagPairs<'_> {
    type Item = (TagkUid, TagvUid);

    fn next(&mut self) -> Option<(TagkUid, TagvUid)> {
        let (tagk, tagv) = self.pairs.next()?.split_at_checked(self.tagk_width)?;
        Some((TagkUid::from_bytes(tagk).ok()?, TagvUid::from_bytes(tagv).ok()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.pairs.size_hint()
    }
}

impl ExactSizeIterator for TagPairs<'_> {}

/// The UID of 1 to 8 bytes; a zero for other lengths, which no valid width produces.
fn first_uid(bytes: &[u8]) -> Uid {
    Uid::from_bytes(bytes).unwrap_or(Uid::ZERO)
}

#[cfg(test)]
mod tests;
