//! The query language of OpenTSDB's GET parameters.
//!
//! ```text
//!   m     = AGGREGATOR [":" PART]... ":" METRIC ["{" groupby "}" ["{" filters "}"]]
//!   tsuid = AGGREGATOR [":" PART]... ":" HEX ["," HEX]...
//!   PART  = "rate" ["{" ("counter" | "dropcounter") ["," [max] ["," reset]] "}"]
//!         | DOWNSAMPLE, which begins with a digit
//!         | "explicit_tags" | "percentiles[" NUMBER ["," NUMBER]... "]" | "show-histogram-buckets"
//!         | "pre-agg" | "rollup_" USAGE
//! ```
//!
//! Parts may have any order; unknown parts are ignored. With one pair of braces its tags group the result; with two
//! pairs the first groups and the second only filters. Errors are found in OpenTSDB's order: first in the braces after
//! the metric, then in the parts, then in aggregator and downsampling.
//!
//! Error messages are OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.parseMTypeSubQuery`, `QueryRpc.parseTsuidTypeSubQuery`,
//! `QueryRpc.parseRateOptions`, `Tags.parseWithMetricAndFilters`.

mod error;
mod hex;
pub mod text;
pub mod time;

use jiff::tz::TimeZone;
use oxtsdb_schema::value::parse_java_float;

use crate::filter::TagFilter;
use crate::function::aggregator::Aggregator;
use crate::function::downsample::Downsample;
use crate::function::rate::RateOptions;
use crate::histogram::HistogramResults;
use crate::rollup::{RollupRequest, RollupUsage};
use crate::spec::{SeriesFilter, Source, SubQuery};
pub use error::{Block, LanguageError};
pub use hex::{parse_tsuids, parse_uids};

/// A parsed parameter `m` or `tsuid`.
///
/// As in OpenTSDB, aggregator, downsampling and TSUIDs are checked only after the start and end of the query; see
/// [`Expression::sub_query`].
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    /// Name of the aggregator.
    pub aggregator: String,
    /// The part after the last colon.
    pub series: SeriesExpression,
    /// Filters of a metric.
    pub tags: Vec<TagFilter>,
    /// Downsampling; the last, if there are several.
    pub downsample: Option<String>,
    /// The rate.
    pub rate: Option<RateOptions>,
    /// Whether the rate has options.
    pub with_rate_options: bool,
    /// Only series with exactly the tags of the filters.
    pub explicit_tags: bool,
    /// Percentiles of histograms.
    pub percentiles: Vec<f32>,
    /// Whether to return buckets of histograms.
    pub histogram_buckets: bool,
    /// The tables to read.
    pub rollup: RollupRequest,
}

/// The series of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum SeriesExpression {
    /// The series of a metric.
    Metric(String),
    /// TSUIDs as they are written.
    Tsuids(Vec<String>),
}

impl Expression {
    /// Parses a parameter `m`.
    ///
    /// # Errors
    ///
    /// [`LanguageError`], except the errors of [`Expression::sub_query`].
    pub fn from_metric(text: &str) -> Result<Self, LanguageError> {
        Self::parse(text, |last| {
            if last.is_empty() {
                return Err(LanguageError::NoMetric);
            }
            let (metric, tags) = metric_and_filters(last)?;
            Ok((SeriesExpression::Metric(metric), tags))
        })
    }

    /// Parses a parameter `tsuid`.
    ///
    /// # Errors
    ///
    /// As [`Expression::from_metric`].
    pub fn from_tsuids(text: &str) -> Result<Self, LanguageError> {
        let mut expression = Self::parse(text, |last| {
            let tsuids = fields(last, ',').map(str::to_owned).collect();
            Ok((SeriesExpression::Tsuids(tsuids), Vec::new()))
        })?;
        // `explicit_tags` is one of the unknown parts here.
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
            percentiles: Vec::new(),
            histogram_buckets: false,
            rollup: RollupRequest::default(),
        };
        for part in middle {
            expression.part(part)?;
        }
        Ok(expression)
    }

    fn part(&mut self, part: &str) -> Result<(), LanguageError> {
        let lower = part.to_ascii_lowercase();
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
        } else if lower.starts_with("pre-agg") {
            self.rollup.pre_aggregate = true;
        } else if lower.starts_with("rollup_") {
            self.rollup.usage = Some(RollupUsage::parse(part));
        } else if lower.starts_with("explicit_tags") {
            self.explicit_tags = true;
        } else if lower.starts_with("percentiles") {
            self.percentiles = parse_percentiles(part)?;
        } else if lower.starts_with("show-histogram-buckets") {
            self.histogram_buckets = true;
        }
        Ok(())
    }

    /// Returns the sub-query; calendars are in `zone`.
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
        let sub_query = SubQuery {
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
            histogram: None,
            rollup: self.rollup,
        };
        match HistogramResults::from_parameters(self.percentiles, self.histogram_buckets) {
            Some(results) => Ok(sub_query.with_histograms(results)?),
            None => Ok(sub_query),
        }
    }
}

/// Parses `percentiles[50,99.9]`. As in OpenTSDB, text around the brackets is ignored.
fn parse_percentiles(text: &str) -> Result<Vec<f32>, LanguageError> {
    let numbers = text
        .split_once('[')
        .and_then(|(_, rest)| Some(rest.split_once(']')?.0));
    let numbers = numbers.ok_or_else(|| LanguageError::Percentiles {
        text: text.to_owned(),
    })?;
    let numbers = numbers.split(',').map(|number| {
        parse_java_float(number).ok_or_else(|| LanguageError::PercentileNumber {
            text: number.trim().to_owned(),
        })
    });
    numbers.collect()
}

/// Parses a parameter `m`; calendars are in `zone`.
///
/// # Errors
///
/// [`LanguageError`].
pub fn parse_metric_query(text: &str, zone: &TimeZone) -> Result<SubQuery, LanguageError> {
    Expression::from_metric(text)?.sub_query(zone)
}

/// The first part of a parameter `m` that OpenTSDB ignores, or takes for another one by its first letters: `avg-1m`,
/// `rat`, `rates`. Its HTTP interface has to accept them; a person who mistypes a part gets other values than requested.
pub fn unknown_part(text: &str) -> Option<&str> {
    let parts: Vec<&str> = text.split(':').collect();
    let [_, middle @ .., _] = parts.as_slice() else {
        return None;
    };
    middle.iter().copied().find(|part| !is_known_part(part))
}

/// Whether a part is one of the grammar. Downsampling is parsed by [`Downsample`].
fn is_known_part(part: &str) -> bool {
    let lower = part.to_ascii_lowercase();
    let options = |name: &str, open: char, close: char| {
        let rest = lower.strip_prefix(name)?.strip_prefix(open)?;
        Some(rest.strip_suffix(close)?.split(',').next()?.to_owned())
    };
    part.starts_with(|c: char| c.is_ascii_digit())
        || ["rate", "explicit_tags", "pre-agg", "show-histogram-buckets"].contains(&lower.as_str())
        || options("rate", '{', '}').is_some_and(|kind| ["counter", "dropcounter"].contains(&kind.as_str()))
        || options("percentiles", '[', ']').is_some()
        || RollupUsage::named(part).is_some()
}

/// Parses a parameter `tsuid`; calendars are in `zone`.
///
/// # Errors
///
/// [`LanguageError`].
pub fn parse_tsuid_query(text: &str, zone: &TimeZone) -> Result<SubQuery, LanguageError> {
    Expression::from_tsuids(text)?.sub_query(zone)
}

/// Parses a series, `METRIC` or `METRIC{TAGK=TAGV,...}`, and returns the metric and the tags.
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

/// Parses `rate{...}`. As in OpenTSDB, any last character counts as the closing brace.
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
    let parts: Vec<&str> = fields(inner.as_str(), ',').collect();
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

/// Parses `METRIC`, `METRIC{groupby}` or `METRIC{groupby}{filters}`. The first pair ends at the first closing brace,
/// the second starts at the last opening brace; text between them is ignored.
fn metric_and_filters(text: &str) -> Result<(String, Vec<TagFilter>), LanguageError> {
    let (metric, inner) = metric_and_braces(text)?;
    let inner = inner.unwrap_or_default();
    let closed_before = match (text.find('{'), text.find('}')) {
        (Some(opens), Some(closes)) if closes < opens && !inner.is_empty() => {
            Some(LanguageError::ClosedBefore {
                opens,
                closes,
                length: text.len(),
            })
        }
        _ => None,
    };
    // Without another opening brace the second pair is the first.
    let last = inner.rsplit('{').next().unwrap_or(inner);
    let (group_by, filter) = match inner.split_once('}') {
        _ if closed_before.is_some() => ("", last),
        None => (inner, ""),
        Some((group_by, _)) => (group_by, last),
    };
    let mut filters = Vec::new();
    if !filter.is_empty() {
        for tag in fields(filter, ',') {
            filters.push(tag_filter(Block::Filter, tag)?);
        }
    }
    // OpenTSDB parses the filters before the tags, where this fails.
    if let Some(error) = closed_before {
        return Err(error);
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
    let mut filter = TagFilter::from_tag(key, value).map_err(|error| LanguageError::Filter {
        block,
        tag: tag.to_owned(),
        error,
    })?;
    filter.group_by = block == Block::Tag;
    Ok(filter)
}

/// The metric and the text between the first and the last brace.
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

/// Splits like Java: trailing empty fields are dropped, so separators alone have no fields. An empty text is one empty
/// field.
fn fields(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let kept = text.trim_end_matches(separator);
    let is_nothing = kept.is_empty() && !text.is_empty();
    kept.split(separator).filter(move |_| !is_nothing)
}

#[cfg(test)]
mod tests;
