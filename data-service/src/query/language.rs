//! The query language of OpenTSDB's GET parameters.
//!
//! ```text
//!   m     = AGGREGATOR [":" PART]... ":" METRIC ["{" groupby "}" ["{" filters "}"]]
//!   tsuid = AGGREGATOR [":" PART]... ":" HEX ["," HEX]...
//!   PART  = "rate" ["{" ("counter" | "dropcounter") ["," [max] ["," reset]] "}"]
//!         | DOWNSAMPLE, which begins with a digit
//!         | "explicit_tags"
//! ```
//!
//! Parts may come in any order, and unknown ones are ignored. With one pair of braces the tags in it
//! group; with two the first groups and the second filters. Parts of OpenTSDB's that ask for what is
//! not there (`pre-agg`, `rollup_...` but for `rollup_raw`, `percentiles[...]`, `show-histogram-buckets`) are refused,
//! since an answer without them would be wrong. What is wrong is found in OpenTSDB's order: first the braces behind
//! the metric, then the parts, and aggregator and downsampling last.
//!
//! The texts of the errors are OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.parseMTypeSubQuery`, `QueryRpc.parseTsuidTypeSubQuery`,
//! `QueryRpc.parseRateOptions`, `Tags.parseWithMetricAndFilters`.

use std::fmt;

use jiff::tz::TimeZone;

use super::downsample::{Downsample, DownsampleError};
use super::filter::{FilterError, TagFilter};
use super::function::Aggregator;
use super::rate::RateOptions;
use super::spec::{SeriesFilter, Source, SubQuery};

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

/// The value of a parameter `m` or `tsuid`, taken apart.
///
/// OpenTSDB looks at aggregator, downsampling and TSUIDs only when start and end of the query have been read;
/// so does [`Expression::sub_query`].
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    /// Name of the aggregator.
    pub aggregator: String,
    /// What stands behind the last colon.
    pub series: SeriesExpression,
    /// Filters of a metric.
    pub tags: Vec<TagFilter>,
    /// Downsampling; the last, if there are several.
    pub downsample: Option<String>,
    /// The rate.
    pub rate: Option<RateOptions>,
    /// Whether the rate has options.
    pub with_rate_options: bool,
    /// Only series with just the tags of the filters.
    pub explicit_tags: bool,
}

/// Which series an expression names.
#[derive(Clone, Debug, PartialEq)]
pub enum SeriesExpression {
    /// Those of a metric.
    Metric(String),
    /// TSUIDs as they are written.
    Tsuids(Vec<String>),
}

impl Expression {
    /// Reads the value of a parameter `m`.
    ///
    /// # Errors
    ///
    /// [`LanguageError`], but for those of [`Expression::sub_query`].
    pub fn of_metric(text: &str) -> Result<Self, LanguageError> {
        Self::parse(text, |last| {
            if last.is_empty() {
                return Err(LanguageError::NoMetric);
            }
            let (metric, tags) = metric_and_filters(last)?;
            Ok((SeriesExpression::Metric(metric), tags))
        })
    }

    /// Reads the value of a parameter `tsuid`.
    ///
    /// # Errors
    ///
    /// As [`Expression::of_metric`].
    pub fn of_tsuids(text: &str) -> Result<Self, LanguageError> {
        let mut expression = Self::parse(text, |last| {
            let tsuids = pieces(last, ',').map(str::to_owned).collect();
            Ok((SeriesExpression::Tsuids(tsuids), Vec::new()))
        })?;
        // One of the unknown parts here.
        expression.explicit_tags = false;
        Ok(expression)
    }

    fn parse(
        text: &str,
        series_of: impl FnOnce(&str) -> Result<(SeriesExpression, Vec<TagFilter>), LanguageError>,
    ) -> Result<Self, LanguageError> {
        if text.is_empty() {
            return Err(LanguageError::Empty);
        }
        let parts: Vec<&str> = text.split(':').collect();
        let text = || text.to_owned();
        let [aggregator, middle @ .., last] = parts.as_slice() else {
            return Err(LanguageError::TooFewParts { text: text() });
        };
        if parts.len() > 5 {
            return Err(LanguageError::TooManyParts { text: text() });
        }
        let (series, tags) = series_of(last)?;
        let mut expression = Self {
            aggregator: (*aggregator).to_owned(),
            series,
            tags,
            downsample: None,
            rate: None,
            with_rate_options: false,
            explicit_tags: false,
        };
        for part in middle {
            expression.part(part)?;
        }
        Ok(expression)
    }

    fn part(&mut self, part: &str) -> Result<(), LanguageError> {
        let lower = part.to_ascii_lowercase();
        let unsupported = ["pre-agg", "rollup_", "percentiles", "show-histogram-buckets"];
        if part.is_empty() {
            return Err(LanguageError::EmptyPart);
        } else if lower.starts_with("rate") {
            self.with_rate_options = part.contains('{');
            self.rate = Some(if self.with_rate_options {
                parse_rate_options(part)?
            } else {
                RateOptions::default()
            });
        } else if part.starts_with(|c: char| c.is_ascii_digit()) {
            self.downsample = Some(part.to_owned());
        } else if lower == "rollup_raw" {
            // What is read is raw in any case.
        } else if lower.starts_with("explicit_tags") {
            self.explicit_tags = true;
        } else if unsupported.iter().any(|start| lower.starts_with(start)) {
            return Err(LanguageError::NotSupported {
                part: part.to_owned(),
            });
        }
        Ok(())
    }

    /// The sub-query. Calendars are those of the zone.
    ///
    /// # Errors
    ///
    /// [`LanguageError`] for aggregator, source, downsampling and TSUIDs.
    pub fn sub_query(self, zone: &TimeZone) -> Result<SubQuery, LanguageError> {
        let aggregator = parse_aggregator(&self.aggregator)?;
        if self.series == SeriesExpression::Metric(String::new()) {
            return Err(LanguageError::NoSource);
        }
        let downsample = self.downsample.map(|text| Downsample::parse(&text, zone, false));
        Ok(SubQuery {
            aggregator,
            downsample: downsample.transpose()?,
            source: match self.series {
                SeriesExpression::Metric(metric) => Source::Metric(metric),
                SeriesExpression::Tsuids(tsuids) => Source::Tsuids(parse_tsuids(&tsuids)?),
            },
            filter: SeriesFilter {
                tags: self.tags,
                explicit_tags: self.explicit_tags,
            },
            rate: self.rate,
        })
    }
}

/// Reads the value of a parameter `m`. Calendars are those of the zone.
///
/// # Errors
///
/// [`LanguageError`].
pub fn parse_metric_query(text: &str, zone: &TimeZone) -> Result<SubQuery, LanguageError> {
    Expression::of_metric(text)?.sub_query(zone)
}

/// Reads the value of a parameter `tsuid`. Calendars are those of the zone.
///
/// # Errors
///
/// [`LanguageError`].
pub fn parse_tsuid_query(text: &str, zone: &TimeZone) -> Result<SubQuery, LanguageError> {
    Expression::of_tsuids(text)?.sub_query(zone)
}

/// Reads a series by its names, `METRIC` or `METRIC{TAGK=TAGV,...}`: the metric and the tags.
///
/// # Errors
///
/// [`LanguageError::NoMetric`], [`LanguageError::Unclosed`] and [`LanguageError::Tag`].
pub fn parse_series(text: &str) -> Result<(String, Vec<(String, String)>), LanguageError> {
    if text.is_empty() {
        return Err(LanguageError::NoMetric);
    }
    let (metric, inner) = metric_and_braces(text)?;
    let inner = inner.unwrap_or_default();
    if inner.is_empty() {
        return Ok((metric.to_owned(), Vec::new()));
    }
    let tags = inner.split(',').map(|tag| {
        let (key, value) = key_and_value(Block::Tag, tag)?;
        Ok::<_, LanguageError>((key.to_owned(), value.to_owned()))
    });
    Ok((metric.to_owned(), tags.collect::<Result<_, _>>()?))
}

/// Hex digits of a metric in TSUIDs as OpenTSDB takes them apart.
const METRIC_DIGITS: usize = 6;

/// Reads TSUIDs of one metric, in hex of either case. What is behind the metric can be anything of hex: a TSUID
/// with bytes that make no tags is that of no series, and left out.
///
/// # Errors
///
/// [`LanguageError`] for one that has no metric, or another one than the first, or is not hex.
pub fn parse_tsuids(texts: &[impl AsRef<str>]) -> Result<Vec<Vec<u8>>, LanguageError> {
    let mut first: Option<&str> = None;
    for text in texts.iter().map(AsRef::as_ref) {
        let is_long_enough = text.chars().count() >= METRIC_DIGITS;
        let metric = text
            .get(..METRIC_DIGITS)
            .filter(|_| is_long_enough)
            .ok_or_else(|| LanguageError::TsuidWithoutMetric {
                digits: text.chars().count(),
            })?;
        if *first.get_or_insert(metric) != metric {
            return Err(LanguageError::TsuidMetrics {
                first: first.unwrap_or_default().to_owned(),
                other: metric.to_owned(),
            });
        }
    }
    let mut tsuids = Vec::with_capacity(texts.len());
    for text in texts.iter().map(AsRef::as_ref) {
        let (metric, tags) = text.split_at(METRIC_DIGITS.min(text.len()));
        let tsuid = [parse_uids(metric)?, parse_uids(tags)?].concat();
        if tags.len().is_multiple_of(2) {
            tsuids.push(tsuid);
        }
    }
    Ok(tsuids)
}

/// Reads the hex of UIDs, of either case; of an odd number of digits a zero is meant in front.
///
/// # Errors
///
/// [`LanguageError::NoUid`] and [`LanguageError::Hex`].
pub fn parse_uids(text: &str) -> Result<Vec<u8>, LanguageError> {
    if text.is_empty() {
        return Err(LanguageError::NoUid);
    }
    let padded = if text.len().is_multiple_of(2) {
        text.to_owned()
    } else {
        format!("0{text}")
    };
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let (pairs, _) = padded.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect();
    bytes.ok_or(LanguageError::Hex { text: padded })
}

/// Finds an aggregator by its name.
///
/// # Errors
///
/// [`LanguageError::NoAggregator`] and [`LanguageError::UnknownAggregator`].
pub fn parse_aggregator(name: &str) -> Result<Aggregator, LanguageError> {
    if name.is_empty() {
        return Err(LanguageError::NoAggregator);
    }
    Aggregator::parse(name).ok_or_else(|| LanguageError::UnknownAggregator {
        name: name.to_owned(),
    })
}

/// Reads `rate{...}`. The last character is taken for the brace that closes, whatever it is.
fn parse_rate_options(text: &str) -> Result<RateOptions, LanguageError> {
    let malformed = || LanguageError::RateOptions {
        text: text.to_owned(),
    };
    let inner = text.get("rate".len()..).and_then(|rest| rest.strip_prefix('{'));
    let mut inner = inner
        .filter(|inner| !inner.is_empty())
        .ok_or_else(malformed)?
        .chars();
    inner.next_back();
    let parts: Vec<&str> = pieces(inner.as_str(), ',').collect();
    let mut options = RateOptions::default();
    if parts.len() > 3 {
        return Err(LanguageError::RateOptionCount { count: parts.len() });
    }
    if let Some(kind) = parts.first() {
        options.counter = kind.ends_with("counter");
        options.drop_resets = *kind == "dropcounter";
    }
    if let Some(max) = parts.get(1).filter(|max| !max.is_empty()) {
        options.counter_max = max.parse().map_err(|_| LanguageError::CounterMax {
            text: (*max).to_owned(),
        })?;
    }
    if let Some(reset) = parts.get(2).filter(|reset| !reset.is_empty()) {
        options.reset_value = reset.parse().map_err(|_| LanguageError::ResetValue {
            text: (*reset).to_owned(),
        })?;
    }
    Ok(options)
}

/// Reads `METRIC`, `METRIC{groupby}` or `METRIC{groupby}{filters}`. The first braces go as far as the first that
/// closes, the second from the last that opens; what is between them is ignored.
fn metric_and_filters(text: &str) -> Result<(String, Vec<TagFilter>), LanguageError> {
    if let (Some(opens), Some(closes)) = (text.find('{'), text.find('}'))
        && closes < opens
        && text.ends_with('}')
    {
        return Err(LanguageError::ClosedBefore {
            opens,
            closes,
            length: text.len(),
        });
    }
    let (metric, inner) = metric_and_braces(text)?;
    let inner = inner.unwrap_or_default();
    let (group_by, filter) = match inner.split_once('}') {
        None => (inner, ""),
        // Without another brace that opens the second are those of the first.
        Some((group_by, _)) => (group_by, inner.rsplit('{').next().unwrap_or(inner)),
    };
    let mut filters = Vec::new();
    if !filter.is_empty() {
        for tag in pieces(filter, ',') {
            filters.push(tag_filter(Block::Filter, tag)?);
        }
    }
    if !group_by.is_empty() {
        for tag in group_by.split(',') {
            tag_filter(Block::Tag, tag)?.add_to(&mut filters);
        }
    }
    Ok((metric.to_owned(), filters))
}

fn tag_filter(block: Block, tag: &str) -> Result<TagFilter, LanguageError> {
    let (key, value) = key_and_value(block, tag)?;
    let mut filter = TagFilter::of_tag(key, value).map_err(|error| LanguageError::Filter {
        block,
        tag: tag.to_owned(),
        error,
    })?;
    filter.group_by = block == Block::Tag;
    Ok(filter)
}

/// The metric, and what is between the first brace and the last.
fn metric_and_braces(text: &str) -> Result<(&str, Option<&str>), LanguageError> {
    let Some((metric, braces)) = text.split_once('{') else {
        return Ok((text, None));
    };
    let inner = braces.strip_suffix('}').ok_or_else(|| LanguageError::Unclosed {
        text: text.to_owned(),
    })?;
    Ok((metric, Some(inner)))
}

/// A pair `k=v`.
fn key_and_value(block: Block, tag: &str) -> Result<(&str, &str), LanguageError> {
    tag.split_once('=')
        .filter(|(key, value)| !key.is_empty() && !value.is_empty() && !value.contains('='))
        .ok_or_else(|| LanguageError::Tag {
            block,
            tag: tag.to_owned(),
        })
}

/// Splits as Java does: empty pieces at the end do not count, so separators alone have none. An empty text is one
/// empty piece.
fn pieces(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let kept = text.trim_end_matches(separator);
    let is_nothing = kept.is_empty() && !text.is_empty();
    kept.split(separator).filter(move |_| !is_nothing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::downsample::Interval;

    fn parse(text: &str) -> Result<SubQuery, LanguageError> {
        parse_metric_query(text, &TimeZone::UTC)
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    fn filters(text: &str) -> Vec<String> {
        let query = parse(text).unwrap();
        assert_eq!(query.source, Source::Metric("m".to_owned()));
        let shown = |filter: &TagFilter| {
            format!(
                "{}={}{}",
                filter.key,
                filter.matcher,
                if filter.group_by { "^" } else { "" }
            )
        };
        query.filter.tags.iter().map(shown).collect()
    }

    #[test]
    fn parts_come_in_any_order_and_unknown_ones_are_ignored() {
        for text in [
            "sum:1m-avg:rate:explicit_tags:m",
            "sum:explicit_tags:rate:1m-avg:m",
        ] {
            let query = parse(text).unwrap();
            assert_eq!(query.aggregator.name(), "sum");
            assert_eq!(query.rate, Some(RateOptions::default()));
            assert_eq!(
                query.downsample.unwrap().interval,
                Interval::Fixed { length_ms: 60_000 }
            );
            assert!(query.filter.explicit_tags);
        }
        let query = parse("sum:foo:all-sum:m").unwrap();
        assert_eq!((query.downsample, query.rate), (None, None));
    }

    #[test]
    fn the_first_braces_group_and_the_second_filter() {
        assert_eq!(filters("sum:m"), Vec::<String>::new());
        assert_eq!(filters("sum:m{}"), Vec::<String>::new());
        assert_eq!(
            filters("sum:m{host=*,dc=lga}"),
            ["host=wildcard(*)^", "dc=literal_or(lga)^"]
        );
        assert_eq!(
            filters("sum:m{host=*}{dc=wildcard(l*)}"),
            ["dc=wildcard(l*)", "host=wildcard(*)^"]
        );
        assert_eq!(filters("sum:m{}{dc=lga|phx}"), ["dc=literal_or(lga|phx)"]);
        assert_eq!(filters("sum:m{}{,}"), Vec::<String>::new());
        assert_eq!(
            filters("sum:m{host=*}x{dc=l}{dc=p}"),
            ["dc=literal_or(p)", "host=wildcard(*)^"],
            "what is between the first and the last braces is ignored"
        );
    }

    #[test]
    fn rates_have_options() {
        let rate = |text: &str| parse(&format!("sum:{text}:m")).map(|query| query.rate.unwrap());
        let counter = RateOptions {
            counter: true,
            ..RateOptions::default()
        };
        assert_eq!(rate("rate{counter}"), Ok(counter));
        assert_eq!(
            rate("rate{counter,100}"),
            Ok(RateOptions {
                counter_max: 100,
                ..counter
            })
        );
        assert_eq!(
            rate("rate{counter,,5}"),
            Ok(RateOptions {
                reset_value: 5,
                ..counter
            })
        );
        assert_eq!(
            rate("rate{dropcounter,7,5}"),
            Ok(RateOptions {
                counter: true,
                counter_max: 7,
                reset_value: 5,
                drop_resets: true
            })
        );
        // The last character is taken for the brace.
        assert_eq!(rate("rate{counter"), Ok(RateOptions::default()));
        assert_eq!(rate("rate{counter,,"), Ok(counter));
        assert_eq!(rate("ratex"), Ok(RateOptions::default()));
        for (text, expected) in [
            (
                "rate{counter,x}",
                "Max value of counter was not a number, received 'x'",
            ),
            (
                "rate{counter,1,x}",
                "Reset value of counter was not a number, received 'x'",
            ),
            (
                "rate{counter,1,2,3}",
                "Incorrect number of values in rate options specification, must be counter[,counter max \
                 value,reset value], recieved: 4 parts",
            ),
            ("rate{", "Invalid rate options specification: rate{"),
            (
                "raterate{counter}",
                "Invalid rate options specification: raterate{counter}",
            ),
        ] {
            assert_eq!(rate(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn bad_queries_are_refused_in_the_words_of_opentsdb() {
        for (text, expected) in [
            ("m", "Invalid parameter m=m (not enough :-separated parts)"),
            (
                "sum:a:b:c:d:m",
                "Invalid parameter m=sum:a:b:c:d:m (too many :-separated parts)",
            ),
            ("Sum:m", "No such aggregation function: Sum"),
            ("", "The query string was empty"),
            (":m", "Missing the aggregation function"),
            ("Sum:x{:m{", "Missing '}' at the end of: m{"),
            ("Sum::m", "String index out of range: 0"),
            ("sum:m}{a=b}", "begin 3, end 1, length 7"),
            ("sum:m{host=a", "Missing '}' at the end of: m{host=a"),
            ("sum:m{host}", "When parsing tag 'host': invalid tag: host"),
            (
                "sum:m{host=a=b}",
                "When parsing tag 'host=a=b': invalid tag: host=a=b",
            ),
            ("sum:m{a=b,}", "When parsing tag '': invalid tag: "),
            ("sum:m{a=b}{c}", "When parsing filter 'c': invalid tag: c"),
            (
                "sum:m{a=wildcard(b)}",
                "When parsing tag 'a=wildcard(b)': Filter must contain an asterisk",
            ),
            (
                "sum:{host=a}",
                "Missing the metric or tsuids, provide at least one",
            ),
            ("sum:", "Metric cannot be null or empty"),
            ("sum:1m-foo:m", "No such downsampling function: foo"),
            ("sum:percentiles[50]:m", "Not supported: percentiles[50]"),
            ("sum:rollup_fallback:m", "Not supported: rollup_fallback"),
        ] {
            assert_eq!(error(text), expected);
        }
    }

    #[test]
    fn tsuids_are_hex_of_either_case() {
        let query = parse_tsuid_query("none:rate:00000a0B,00000a0,00000a0c,,", &TimeZone::UTC).unwrap();
        assert_eq!(
            query.source,
            Source::Tsuids(vec![vec![0, 0, 10, 11], vec![0, 0, 10, 12]])
        );
        assert!(query.rate.is_some());
        let error = |text: &str| parse_tsuid_query(text, &TimeZone::UTC).unwrap_err().to_string();
        for (text, expected) in [
            ("sum:", "begin 0, end 6, length 0"),
            ("sum:00", "begin 0, end 6, length 2"),
            ("sum:日本", "begin 0, end 6, length 2"),
            ("sum:,000001000001000001", "begin 0, end 6, length 0"),
            ("sum:000001", "UID was empty"),
            ("sum:00000x00", "contains illegal character for hexBinary: 00000x"),
            ("sum:0000010x0", "contains illegal character for hexBinary: 00x0"),
            (
                "sum:00000100,00000200",
                "One or more TSUIDs did not share the same metric [000001] [000002]",
            ),
            (
                "tsuid",
                "Invalid parameter m=tsuid (not enough :-separated parts)",
            ),
        ] {
            assert_eq!(error(text), expected);
        }
    }
}
