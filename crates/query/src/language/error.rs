//! Why a text of the query language is refused, in the words of OpenTSDB.

use std::fmt;

use super::hex::METRIC_DIGITS;
use crate::filter::FilterError;
use crate::function::downsample::DownsampleError;

/// Why a text is no sub-query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LanguageError {
    /// Fewer than two parts; of `tsuid` as well OpenTSDB says `m`.
    #[error("Invalid parameter m={text} (not enough :-separated parts)")]
    TooFewParts {
        /// The text.
        text: String,
    },
    /// More than five parts.
    #[error("Invalid parameter m={text} (too many :-separated parts)")]
    TooManyParts {
        /// The text.
        text: String,
    },
    /// No aggregator.
    #[error("Missing the aggregation function")]
    NoAggregator,
    /// An unknown aggregator.
    #[error("No such aggregation function: {name}")]
    UnknownAggregator {
        /// The name.
        name: String,
    },
    /// A downsampling that cannot be read.
    #[error(transparent)]
    Downsample(#[from] DownsampleError),
    /// A filter that cannot be read.
    #[error("When parsing {block} '{tag}': {error}")]
    Filter {
        /// In which braces.
        block: Block,
        /// What is there.
        tag: String,
        /// Why it cannot be read.
        error: FilterError,
    },
    /// Rate options that do not begin behind `rate`.
    #[error("Invalid rate options specification: {text}")]
    RateOptions {
        /// The text.
        text: String,
    },
    /// More rate options than there are.
    #[error(
        "Incorrect number of values in rate options specification, must be counter[,counter max \
         value,reset value], recieved: {count} parts"
    )]
    RateOptionCount {
        /// How many.
        count: usize,
    },
    /// A counter's maximum that is no number.
    #[error("Max value of counter was not a number, received '{text}'")]
    CounterMax {
        /// The text.
        text: String,
    },
    /// A reset value that is no number.
    #[error("Reset value of counter was not a number, received '{text}'")]
    ResetValue {
        /// The text.
        text: String,
    },
    /// Nothing at all.
    #[error("The query string was empty")]
    Empty,
    /// A part without a character.
    #[error("String index out of range: 0")]
    EmptyPart,
    /// Braces that do not end the text.
    #[error("Missing '}}' at the end of: {text}")]
    Unclosed {
        /// The text.
        text: String,
    },
    /// A brace that closes in front of the first that opens.
    #[error("begin {}, end {closes}, length {length}", .opens + 1)]
    ClosedBefore {
        /// Where the first one opens.
        opens: usize,
        /// Where one closes.
        closes: usize,
        /// Length of the text.
        length: usize,
    },
    /// Something in the braces that is no `key=value`.
    #[error("When parsing {block} '{tag}': invalid tag: {tag}")]
    Tag {
        /// In which braces.
        block: Block,
        /// What is there.
        tag: String,
    },
    /// Nothing where the metric is to stand.
    #[error("Metric cannot be null or empty")]
    NoMetric,
    /// Braces without a metric.
    #[error("Missing the metric or tsuids, provide at least one")]
    NoSource,
    /// A TSUID that is too short for a metric.
    #[error("begin 0, end {METRIC_DIGITS}, length {digits}")]
    TsuidWithoutMetric {
        /// Its length.
        digits: usize,
    },
    /// TSUIDs of two metrics.
    #[error("One or more TSUIDs did not share the same metric [{first}] [{other}]")]
    TsuidMetrics {
        /// Digits of the first one's metric.
        first: String,
        /// Digits of another's.
        other: String,
    },
    /// No UID where one is to stand.
    #[error("UID was empty")]
    NoUid,
    /// UIDs that are not hex.
    #[error("contains illegal character for hexBinary: {text}")]
    Hex {
        /// The text.
        text: String,
    },
    /// A part that OpenTSDB knows and this server does not.
    #[error("Not supported: {part}")]
    NotSupported {
        /// The part.
        part: String,
    },
}

/// Which braces behind a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Block {
    /// The first, which groups.
    Tag,
    /// The second, which only filters.
    Filter,
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tag => "tag",
            Self::Filter => "filter",
        })
    }
}
