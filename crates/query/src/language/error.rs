//! Errors of the query language, with OpenTSDB's messages.

use std::fmt;

use crate::filter::FilterError;
use crate::function::downsample::DownsampleError;
use crate::histogram::HistogramQueryError;

/// Hex digits of the metric that OpenTSDB expects in TSUIDs.
pub(super) const METRIC_DIGITS: usize = 6;

/// A text is not a valid sub-query.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LanguageError {
    /// Fewer than two parts; as in OpenTSDB the message has `m` also for `tsuid`.
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
    /// A downsampling specification that does not parse.
    #[error(transparent)]
    Downsample(#[from] DownsampleError),
    /// A filter that does not parse.
    #[error("When parsing {block} '{tag}': {error}")]
    Filter {
        /// The kind of braces.
        block: Block,
        /// The tag.
        tag: String,
        /// The reason.
        error: FilterError,
    },
    /// Rate options that do not start after `rate`.
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
    /// Percentiles that are not in brackets.
    #[error("Malformated percentile query paramater: {text}")]
    Percentiles {
        /// The text.
        text: String,
    },
    /// A percentile that is no number.
    #[error("{}", not_a_float(text))]
    PercentileNumber {
        /// The text.
        text: String,
    },
    /// A sub-query that cannot be one of histograms.
    #[error(transparent)]
    Histogram(#[from] HistogramQueryError),
    /// An empty text.
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
    /// A closing brace before the first opening one.
    #[error("begin {}, end {closes}, length {length}", .opens + 1)]
    ClosedBefore {
        /// Position of the first opening brace.
        opens: usize,
        /// Position of a closing brace.
        closes: usize,
        /// Length of the text.
        length: usize,
    },
    /// Text in the braces that is no `key=value`.
    #[error("When parsing {block} '{tag}': invalid tag: {tag}")]
    Tag {
        /// The kind of braces.
        block: Block,
        /// The tag.
        tag: String,
    },
    /// An empty metric.
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
    /// An empty UID.
    #[error("UID was empty")]
    NoUid,
    /// UIDs that are not hex.
    #[error("contains illegal character for hexBinary: {text}")]
    Hex {
        /// The text.
        text: String,
    },
}

/// Java's message for a text that is not a float.
fn not_a_float(text: &str) -> String {
    if text.is_empty() {
        return "empty String".to_owned();
    }
    format!("For input string: \"{text}\"")
}

/// A pair of braces after a metric.
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
