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
//! since an answer without them would be wrong.
//!
//! The texts of the errors are OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.parseMTypeSubQuery`, `QueryRpc.parseTsuidTypeSubQuery`,
//! `QueryRpc.parseRateOptions`, `Tags.parseWithMetricAndFilters`.

use jiff::tz::TimeZone;

use super::downsample::{Downsample, DownsampleError};
use super::filter::{FilterError, TagFilter};
use super::function::Aggregator;
use super::rate::RateOptions;
use super::spec::{SeriesFilter, Source, SubQuery};

/// Why a text is no sub-query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LanguageError {
    /// Fewer than two parts.
    #[error("Invalid parameter {parameter}={text} (not enough :-separated parts)")]
    TooFewParts {
        /// `m` or `tsuid`.
        parameter: &'static str,
        /// The text.
        text: String,
    },
    /// More than five parts.
    #[error("Invalid parameter {parameter}={text} (too many :-separated parts)")]
    TooManyParts {
        /// `m` or `tsuid`.
        parameter: &'static str,
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
    /// A filter that cannot be read. A fault of the server in OpenTSDB (500).
    #[error("When parsing tag '{tag}': {error}")]
    Filter {
        /// What is there.
        tag: String,
        /// Why it cannot be read.
        error: FilterError,
    },
    /// Rate options without their braces.
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
    /// Braces that do not end the text. A fault of the server in OpenTSDB (500).
    #[error("Missing '}}' at the end of: {text}")]
    Unclosed {
        /// The text.
        text: String,
    },
    /// Something in the braces that is no `key=value`. A fault of the server in OpenTSDB (500).
    #[error("When parsing tag '{tag}': invalid tag: {tag}")]
    Tag {
        /// What is there.
        tag: String,
    },
    /// No metric. A fault of the server in OpenTSDB (500).
    #[error("Metric cannot be null or empty")]
    NoMetric,
    /// A TSUID that is not hex.
    #[error("Invalid TSUID: {text}")]
    Tsuid {
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

/// Reads the value of a parameter `m`. Calendars are those of the zone.
///
/// # Errors
///
/// [`LanguageError`].
pub fn parse_metric_query(text: &str, zone: &TimeZone) -> Result<SubQuery, LanguageError> {
    let head = Head::parse("m", text, zone)?;
    let (metric, tags) = metric_and_filters(head.last)?;
    let explicit_tags = head.explicit_tags;
    let filter = SeriesFilter { tags, explicit_tags };
    Ok(head.with_source(Source::Metric(metric), filter))
}

/// Reads the value of a parameter `tsuid`. Calendars are those of the zone.
///
/// # Errors
///
/// [`LanguageError`].
pub fn parse_tsuid_query(text: &str, zone: &TimeZone) -> Result<SubQuery, LanguageError> {
    let head = Head::parse("tsuid", text, zone)?;
    let tsuids = head.last.split(',').map(parse_tsuid).collect::<Result<_, _>>()?;
    Ok(head.with_source(Source::Tsuids(tsuids), SeriesFilter::default()))
}

/// Reads a series by its names, `METRIC` or `METRIC{TAGK=TAGV,...}`: the metric and the tags.
///
/// # Errors
///
/// [`LanguageError::NoMetric`], [`LanguageError::Unclosed`] and [`LanguageError::Tag`].
pub fn parse_series(text: &str) -> Result<(String, Vec<(String, String)>), LanguageError> {
    let (metric, inner) = metric_and_braces(text)?;
    let tags = tags_of(inner).map(|tag| tag.map(|(key, value)| (key.to_owned(), value.to_owned())));
    Ok((metric.to_owned(), tags.collect::<Result<_, _>>()?))
}

/// Reads the hex of a TSUID, of either case. Its length is checked when it is looked up.
///
/// # Errors
///
/// [`LanguageError::Tsuid`].
pub fn parse_tsuid(text: &str) -> Result<Vec<u8>, LanguageError> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?))
        .collect();
    bytes
        .filter(|bytes| rest.is_empty() && !bytes.is_empty())
        .ok_or_else(|| LanguageError::Tsuid {
            text: text.to_owned(),
        })
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

/// What stands before the metric or the TSUIDs.
struct Head<'a> {
    aggregator: Aggregator,
    downsample: Option<Downsample>,
    rate: Option<RateOptions>,
    explicit_tags: bool,
    last: &'a str,
}

impl<'a> Head<'a> {
    fn parse(parameter: &'static str, text: &'a str, zone: &TimeZone) -> Result<Self, LanguageError> {
        let parts: Vec<&str> = text.split(':').collect();
        let [aggregator, middle @ .., last] = parts.as_slice() else {
            return Err(LanguageError::TooFewParts {
                parameter,
                text: text.to_owned(),
            });
        };
        if parts.len() > 5 {
            return Err(LanguageError::TooManyParts {
                parameter,
                text: text.to_owned(),
            });
        }
        let mut head = Self {
            aggregator: parse_aggregator(aggregator)?,
            downsample: None,
            rate: None,
            explicit_tags: false,
            last,
        };
        for part in middle {
            head.part(part, zone)?;
        }
        Ok(head)
    }

    fn part(&mut self, part: &str, zone: &TimeZone) -> Result<(), LanguageError> {
        let lower = part.to_ascii_lowercase();
        let unsupported = ["pre-agg", "rollup_", "percentiles[", "show-histogram-buckets"];
        if lower.starts_with("rate") {
            self.rate = Some(parse_rate(part)?);
        } else if part.starts_with(|c: char| c.is_ascii_digit()) {
            self.downsample = Some(Downsample::parse(part, zone, false)?);
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

    fn with_source(self, source: Source, filter: SeriesFilter) -> SubQuery {
        SubQuery {
            source,
            filter,
            aggregator: self.aggregator,
            downsample: self.downsample,
            rate: self.rate,
        }
    }
}

/// Reads `rate` or `rate{...}`.
fn parse_rate(text: &str) -> Result<RateOptions, LanguageError> {
    let mut options = RateOptions::default();
    let Some(rest) = text.get("rate".len()..).filter(|rest| !rest.is_empty()) else {
        return Ok(options);
    };
    let inner = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let inner = inner.ok_or_else(|| LanguageError::RateOptions {
        text: text.to_owned(),
    })?;
    let parts: Vec<&str> = inner.split(',').collect();
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

/// Reads `METRIC`, `METRIC{groupby}` or `METRIC{groupby}{filters}`.
fn metric_and_filters(text: &str) -> Result<(String, Vec<TagFilter>), LanguageError> {
    let (metric, inner) = metric_and_braces(text)?;
    let (group_by, filter) = inner.split_once("}{").unwrap_or((inner, ""));
    let mut filters = Vec::new();
    for (tags, groups) in [(filter, false), (group_by, true)] {
        for tag in tags_of(tags) {
            let (key, value) = tag?;
            let mut parsed = TagFilter::of_tag(key, value).map_err(|error| LanguageError::Filter {
                tag: format!("{key}={value}"),
                error,
            })?;
            parsed.group_by = groups;
            filters.push(parsed);
        }
    }
    Ok((metric.to_owned(), filters))
}

/// The metric, and what is between the first brace and the last.
fn metric_and_braces(text: &str) -> Result<(&str, &str), LanguageError> {
    let (metric, inner) = match text.split_once('{') {
        None => (text, ""),
        Some((metric, braces)) => {
            let unclosed = || LanguageError::Unclosed {
                text: text.to_owned(),
            };
            (metric, braces.strip_suffix('}').ok_or_else(unclosed)?)
        }
    };
    if metric.is_empty() {
        return Err(LanguageError::NoMetric);
    }
    Ok((metric, inner))
}

/// The pairs of `k=v,k=v`.
fn tags_of(text: &str) -> impl Iterator<Item = Result<(&str, &str), LanguageError>> {
    text.split(',').filter(|tag| !tag.is_empty()).map(|tag| {
        tag.split_once('=')
            .filter(|(key, value)| !key.is_empty() && !value.is_empty() && !value.contains('='))
            .ok_or_else(|| LanguageError::Tag { tag: tag.to_owned() })
    })
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
            ("rate{counter", "Invalid rate options specification: rate{counter"),
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
            (":m", "Missing the aggregation function"),
            ("sum:m{host=a", "Missing '}' at the end of: m{host=a"),
            ("sum:m{host}", "When parsing tag 'host': invalid tag: host"),
            (
                "sum:m{host=a=b}",
                "When parsing tag 'host=a=b': invalid tag: host=a=b",
            ),
            ("sum:{host=a}", "Metric cannot be null or empty"),
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
        let query = parse_tsuid_query("none:rate:00000a,00000B", &TimeZone::UTC).unwrap();
        assert_eq!(query.source, Source::Tsuids(vec![vec![0, 0, 10], vec![0, 0, 11]]));
        assert!(query.rate.is_some());
        for text in ["sum:0", "sum:0x", "sum:", "sum:00,,00", "sum:日本"] {
            assert!(
                matches!(
                    parse_tsuid_query(text, &TimeZone::UTC),
                    Err(LanguageError::Tsuid { .. })
                ),
                "{text}"
            );
        }
    }
}
