//! A point of a body as it was sent.

use std::borrow::Cow;
use std::ops::Range;

/// Tags of one point up to which a repeated key replaces the earlier one. A point with more tags
/// is rejected anyway, and a search for repeated keys among many takes quadratic time.
pub(super) const DEDUPLICATED_TAGS: usize = 64;

/// One point as it was sent; nothing is checked yet.
#[derive(Debug, Default)]
pub(crate) struct PutPoint<'a> {
    /// Metric.
    pub(crate) metric: Option<Cow<'a, str>>,
    /// Timestamp; 0 if missing.
    pub(crate) timestamp: i64,
    /// Source text of the value.
    pub(crate) value: Option<Cow<'a, str>>,
    /// Tags.
    pub(crate) tags: PutTags<'a>,
}

impl PutPoint<'_> {
    /// Whether it has a tag.
    pub(crate) fn has_tags(&self) -> bool {
        match &self.tags {
            PutTags::Missing => false,
            PutTags::Parsed(tags) => !tags.is_empty(),
            PutTags::Text(_) => true,
        }
    }
}

/// The tags of a point.
#[derive(Debug, Default)]
pub(crate) enum PutTags<'a> {
    /// No tag object.
    #[default]
    Missing,
    /// Where they lie in the table of tags of the body; may be empty.
    Parsed(Range<usize>),
    /// The text between the braces of a plain object with one tag or more.
    Text(&'a str),
}
