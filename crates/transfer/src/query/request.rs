//! OpenTSDB's query language as a request.

use anyhow::{Context as _, anyhow, bail};
use jiff::tz::TimeZone;
use oxtsdb_command::time_zone;
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1 as pb;
use oxtsdb_proto::data::v1::sub_query::RollupUsage as Usage;
use oxtsdb_proto::data::v1::tag_filter::FilterType;
use oxtsdb_query::function::aggregator::{Estimate, Function};
use oxtsdb_query::language::{parse_metric_query, unknown_part};
use oxtsdb_query::{
    Aggregator, CalendarUnit, Downsample, Fill, Interval, RateOptions, RollupUsage, Source, SubQuery,
    TagFilter,
};

/// The request of `START [END] EXPRESSION...`.
///
/// # Errors
///
/// If a word is neither a time nor an expression, or is not supported by the contract.
pub(super) fn request(words: &[String], now_ms: i64, zone: &TimeZone) -> anyhow::Result<pb::QueryRequest> {
    let (times, expressions) = times(words, now_ms, zone)?;
    if expressions.is_empty() {
        bail!("missing expression, for example `sum:1m-avg:sys.cpu.nice{{host=*}}`");
    }
    let queries = expressions.iter().map(|text| sub_query(text, zone));
    Ok(pb::QueryRequest {
        range: Some(times.range),
        allow_any_time: times.allow_any_time,
        queries: queries.collect::<anyhow::Result<_>>()?,
        ..pb::QueryRequest::default()
    })
}

/// `START [END]` as fields of a request.
#[derive(Debug, Default)]
pub(super) struct Times {
    pub(super) range: TimeRange,
    /// Both times have a form that says which instant is meant. Numbers may have another unit than the caller believes.
    pub(super) allow_any_time: bool,
}

/// The times of `START [END]`, and the words after them; END is inclusive, as in OpenTSDB.
///
/// # Errors
///
/// If START is not a time, or END is not after it.
pub(super) fn times<'w>(
    words: &'w [String],
    now_ms: i64,
    zone: &TimeZone,
) -> anyhow::Result<(Times, &'w [String])> {
    let [start, rest @ ..] = words else {
        bail!("missing start time, for example `1h-ago`")
    };
    let start_ms = time_zone::parse(start, now_ms, zone).context("start")?;
    // An expression begins with the name of an aggregator, so it is never a time, nor begins with a digit.
    let end_ms = match rest.first() {
        Some(text) => match time_zone::parse(text, now_ms, zone) {
            Ok(end_ms) => Some(end_ms),
            Err(error) if text.starts_with(|c: char| c.is_ascii_digit()) => return Err(error.context("end")),
            Err(_) => None,
        },
        None => None,
    };
    let (times, expressions) = words.split_at(1 + usize::from(end_ms.is_some()));
    if let Some(end_ms) = end_ms.filter(|end_ms| *end_ms <= start_ms) {
        bail!("end {end_ms} ms is not after start {start_ms} ms");
    }
    let range = TimeRange {
        start: Some(time_range::Start::StartMs(start_ms)),
        // The contract's end is exclusive.
        end: end_ms.map(|end_ms| time_range::End::EndMs(end_ms.saturating_add(1))),
    };
    let times = Times {
        range,
        allow_any_time: !times.iter().any(|text| is_number(text)),
    };
    Ok((times, expressions))
}

/// Whether a time is a number of seconds or milliseconds.
fn is_number(text: &str) -> bool {
    let digits = text.strip_suffix("ms").unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// The parts of an expression between its aggregator and its metric.
const PARTS: &str = "INTERVAL-FUNCTION[-FILL] as in `1m-avg`, rate, rate{counter|dropcounter[,MAX[,RESET]]}, \
                     explicit_tags, pre-agg, rollup_raw, rollup_nofallback, rollup_fallback, rollup_fallback_raw, \
                     percentiles[NUMBER,...] or show-histogram-buckets";

/// A sub-query in the form of `m` of `/api/query`.
///
/// # Errors
///
/// If it is not valid, or is not supported by the contract.
pub(super) fn sub_query(text: &str, zone: &TimeZone) -> anyhow::Result<pb::SubQuery> {
    if let Some(part) = unknown_part(text) {
        bail!("expression `{text}`: unknown part `{part}`, expected {PARTS}");
    }
    let query = parse_metric_query(text, zone).with_context(|| format!("expression `{text}`"))?;
    converted(query).with_context(|| format!("expression `{text}`"))
}

fn converted(query: SubQuery) -> anyhow::Result<pb::SubQuery> {
    let filters = query.filter.tags.into_iter().map(filter);
    let filters = filters.collect::<anyhow::Result<_>>()?;
    let source = match query.source {
        Source::Metric(metric) => pb::sub_query::Source::Metric(pb::sub_query::MetricSource {
            metric,
            filters,
            explicit_tags: query.filter.explicit_tags,
        }),
        Source::Tsuids(tsuids) => pb::sub_query::Source::Tsuids(pb::sub_query::TsuidSource {
            tsuids: tsuids.into_iter().map(Into::into).collect(),
            filters,
        }),
    };
    Ok(pb::SubQuery {
        source: Some(source),
        aggregator: Some(aggregator(query.aggregator)?),
        downsample: query.downsample.map(downsample).transpose()?,
        rate: query.rate.map(rate).transpose()?,
        histograms: query.histogram.map(|results| pb::sub_query::HistogramResults {
            percentiles: results.percentiles,
            buckets: results.buckets,
        }),
        rollup_usage: query.rollup.usage.map_or(Usage::Unspecified, rollup_usage).into(),
        pre_aggregate: query.rollup.pre_aggregate,
    })
}

const fn rollup_usage(usage: RollupUsage) -> Usage {
    match usage {
        RollupUsage::Raw => Usage::Raw,
        RollupUsage::NoFallback => Usage::NoFallback,
        RollupUsage::Fallback => Usage::Fallback,
        RollupUsage::FallbackRaw => Usage::FallbackRaw,
    }
}

fn named_aggregator(name: &str) -> anyhow::Result<pb::Aggregator> {
    let known = Aggregator::parse(name).with_context(|| format!("unknown aggregator `{name}`"))?;
    aggregator(known)
}

/// Percentiles by rank and estimator; the names of functions are OpenTSDB's, in upper case.
fn aggregator(aggregator: Aggregator) -> anyhow::Result<pb::Aggregator> {
    use pb::aggregator::Kind;
    use pb::percentile::Estimator;
    let kind = match aggregator.function() {
        Some(Function::Percentile { percent, of_ints, .. }) => Kind::Percentile(pb::Percentile {
            rank: percent,
            estimator: match of_ints {
                Estimate::Legacy => Estimator::Legacy,
                Estimate::R3 => Estimator::R3,
                Estimate::R7 => Estimator::R7,
            } as i32,
        }),
        _ => {
            let name = aggregator.name();
            let in_contract = format!("AGGREGATE_FUNCTION_{}", name.to_uppercase());
            let function = pb::AggregateFunction::from_str_name(&in_contract)
                .with_context(|| format!("unknown aggregator `{name}`; `tsdb query --help` lists them"))?;
            Kind::Function(function as i32)
        }
    };
    Ok(pb::Aggregator { kind: Some(kind) })
}

fn downsample(downsample: Downsample) -> anyhow::Result<pb::Downsample> {
    let interval = match downsample.interval {
        Interval::Fixed { length_ms } => {
            let length = jiff::SignedDuration::from_millis(length_ms);
            pb::downsample::Interval::Fixed(prost_types::Duration {
                seconds: length.as_secs(),
                nanos: length.subsec_nanos(),
            })
        }
        Interval::Calendar(calendar) => pb::downsample::Interval::Calendar(pb::downsample::Calendar {
            count: u32::try_from(calendar.count)
                .map_err(|_| anyhow!("calendar interval of {} units is too long", calendar.count))?,
            unit: unit(calendar.unit) as i32,
            zone: calendar
                .zone
                .iana_name()
                .ok_or_else(|| {
                    anyhow!(
                        "calendar intervals need a named time zone, for example `--timezone Europe/Paris`"
                    )
                })?
                .to_owned(),
        }),
        Interval::WholeRange => pb::downsample::Interval::WholeRange(pb::downsample::WholeRange {}),
    };
    let fill = match downsample.fill {
        Fill::None => pb::FillPolicy::None,
        Fill::Zero => pb::FillPolicy::Zero,
        Fill::Nan | Fill::Null => pb::FillPolicy::Nan,
    };
    Ok(pb::Downsample {
        interval: Some(interval),
        aggregator: Some(named_aggregator(downsample.name)?),
        fill: fill as i32,
    })
}

fn unit(unit: CalendarUnit) -> pb::downsample::calendar::Unit {
    use pb::downsample::calendar::Unit;
    match unit {
        CalendarUnit::Milliseconds => Unit::Milliseconds,
        CalendarUnit::Seconds => Unit::Seconds,
        CalendarUnit::Minutes => Unit::Minutes,
        CalendarUnit::Hours => Unit::Hours,
        CalendarUnit::Days => Unit::Days,
        CalendarUnit::Weeks => Unit::Weeks,
        CalendarUnit::Months => Unit::Months,
        CalendarUnit::Years => Unit::Years,
    }
}

fn rate(rate: RateOptions) -> anyhow::Result<pb::Rate> {
    let positive = |what: &str, value: i64| {
        u64::try_from(value).map_err(|_| anyhow!("rate: {what} {value} is negative"))
    };
    let counter = rate.counter.then(|| {
        Ok::<_, anyhow::Error>(pb::rate::Counter {
            max: Some(positive("counter maximum", rate.counter_max)?),
            reset_value: Some(positive("reset value", rate.reset_value)?),
            drop_resets: rate.drop_resets,
        })
    });
    Ok(pb::Rate {
        counter: counter.transpose()?,
    })
}

/// A filter of a metric; the names of types are OpenTSDB's, in upper case.
pub(crate) fn filter(filter: TagFilter) -> anyhow::Result<pb::TagFilter> {
    let matcher = &filter.matcher;
    let name = matcher.filter_type().name();
    let filter_type = FilterType::from_str_name(&format!("FILTER_TYPE_{}", name.to_uppercase()))
        .with_context(|| format!("filter type `{name}` is not in the contract"))?;
    let pattern = if matcher.filter_type().takes_alternatives() {
        String::new()
    } else {
        matcher.argument()
    };
    Ok(pb::TagFilter {
        key: filter.key,
        r#type: filter_type as i32,
        pattern,
        values: filter.matcher.alternatives().to_vec(),
        group_by: filter.group_by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_400_000_000_000;

    fn parsed(words: &[&str]) -> anyhow::Result<pb::QueryRequest> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        request(&words, NOW, &TimeZone::UTC)
    }

    fn error(words: &[&str]) -> String {
        format!("{:#}", parsed(words).unwrap_err())
    }

    #[test]
    fn parses_times() {
        let range = parsed(&["2012/09/05-12:00:00", "1346846400001", "sum:m"])
            .unwrap()
            .range
            .unwrap();
        assert_eq!(range.start, Some(time_range::Start::StartMs(1_346_846_400_000)));
        assert_eq!(
            range.end,
            Some(time_range::End::EndMs(1_346_846_400_002)),
            "the end is inclusive"
        );
        let iso = parsed(&["2012-09-05 12:00:00Z", "2012-09-05T12:00:00.001Z", "sum:m"]);
        assert_eq!(iso.unwrap().range, Some(range));
        let range = parsed(&["1h-ago", "sum:m"]).unwrap().range.unwrap();
        assert_eq!(range.start, Some(time_range::Start::StartMs(NOW - 3_600_000)));
        assert_eq!(range.end, None);
    }

    #[test]
    fn expressions_become_sub_queries() {
        let request = parsed(&[
            "1h-ago",
            "now",
            "avg:1m-max:rate{counter,100,7}:m{host=*,dc=lga|sjc}{rack=r1}",
        ])
        .unwrap();
        let query = &request.queries[0];
        let function = |function| {
            let kind = Some(pb::aggregator::Kind::Function(function as i32));
            Some(pb::Aggregator { kind })
        };
        assert_eq!(query.aggregator, function(pb::AggregateFunction::Avg));
        let downsample = query.downsample.as_ref().unwrap();
        assert_eq!(downsample.aggregator, function(pb::AggregateFunction::Max));
        assert_eq!(
            downsample.interval,
            Some(pb::downsample::Interval::Fixed(prost_types::Duration {
                seconds: 60,
                nanos: 0
            }))
        );
        let rate = query.rate.as_ref().unwrap();
        let counter = rate.counter.as_ref().unwrap();
        assert_eq!((counter.max, counter.reset_value), (Some(100), Some(7)));
        let Some(pb::sub_query::Source::Metric(source)) = &query.source else {
            panic!("not a metric")
        };
        let mut filters: Vec<_> = source
            .filters
            .iter()
            .map(|filter| {
                (
                    filter.key.as_str(),
                    filter.r#type(),
                    filter.values.join("|"),
                    filter.group_by,
                )
            })
            .collect();
        filters.sort_unstable_by_key(|filter| filter.0);
        assert_eq!(
            filters,
            [
                ("dc", FilterType::LiteralOr, "lga|sjc".to_owned(), true),
                ("host", FilterType::Iwildcard, String::new(), true),
                ("rack", FilterType::LiteralOr, "r1".to_owned(), false),
            ]
        );
    }

    #[test]
    fn all_aggregators_are_in_the_contract() {
        for aggregator in Aggregator::ALL {
            let request = parsed(&["1h-ago", &format!("{}:m", aggregator.name())]).unwrap();
            let Some(pb::Aggregator { kind: Some(kind) }) = request.queries[0].aggregator else {
                panic!("{request:?}")
            };
            match kind {
                pb::aggregator::Kind::Function(function) => {
                    let name = pb::AggregateFunction::try_from(function).unwrap().as_str_name();
                    let expected = format!("_{}", aggregator.name().to_lowercase());
                    assert!(name.to_lowercase().ends_with(&expected), "{name}");
                }
                pb::aggregator::Kind::Percentile(percentile) => {
                    let digits = percentile.rank.to_string().replace('.', "");
                    assert!(aggregator.name().contains(&digits), "{percentile:?}");
                }
            }
        }
    }

    #[test]
    fn all_filter_types_are_in_the_contract() {
        for filter_type in oxtsdb_query::FilterType::all() {
            let (name, example) = (filter_type.name(), filter_type.example());
            let message = filter(TagFilter::new(name, "host", example, true).unwrap()).unwrap();
            let expected = format!("FILTER_TYPE_{}", name.to_uppercase());
            assert_eq!(message.r#type().as_str_name(), expected);
            let is_pattern = message.values.is_empty();
            assert_eq!(
                (message.pattern.is_empty(), is_pattern),
                (!is_pattern, !filter_type.takes_alternatives())
            );
        }
    }

    #[test]
    fn calendar_intervals_and_fill_policies_are_parsed() {
        let request = parsed(&["1h-ago", "sum:2wc-ep99r7-nan:m{host=regexp(^a)}"]).unwrap();
        let query = &request.queries[0];
        let downsample = query.downsample.as_ref().unwrap();
        let percentile = pb::Aggregator::percentile(99.0, pb::percentile::Estimator::R7);
        assert_eq!(downsample.aggregator, Some(percentile));
        assert_eq!(downsample.fill(), pb::FillPolicy::Nan);
        let calendar = pb::downsample::Calendar {
            count: 2,
            unit: pb::downsample::calendar::Unit::Weeks as i32,
            zone: "UTC".to_owned(),
        };
        assert_eq!(
            downsample.interval,
            Some(pb::downsample::Interval::Calendar(calendar))
        );
        let Some(pb::sub_query::Source::Metric(source)) = &query.source else {
            panic!("not a metric")
        };
        let filter = &source.filters[0];
        assert_eq!(
            (filter.r#type(), filter.pattern.as_str()),
            (FilterType::Regexp, "^a")
        );
    }

    #[test]
    fn results_of_histograms_are_requested() {
        let request = parsed(&["1h-ago", "sum:percentiles[99.9,50]:show-histogram-buckets:m"]).unwrap();
        let histograms = request.queries[0].histograms.as_ref().unwrap();
        assert_eq!(
            (histograms.percentiles.as_slice(), histograms.buckets),
            (&[50.0, 99.9][..], true)
        );
        assert_eq!(parsed(&["1h-ago", "sum:m"]).unwrap().queries[0].histograms, None);
    }

    #[test]
    fn rejects_unknown_parts() {
        for (expression, part) in [("sum:avg-1m:m", "avg-1m"), ("sum:rat:m", "rat")] {
            let expected = format!("expression `{expression}`: unknown part `{part}`, expected ");
            assert!(error(&["1h-ago", expression]).starts_with(&expected));
        }
    }

    #[test]
    fn only_numbers_have_to_be_plausible_times() {
        let allows = |words: &[&str]| parsed(words).unwrap().allow_any_time;
        assert!(allows(&["1990-01-01", "1991/01/01", "sum:m"]));
        assert!(!allows(&["1346846400", "1346850000", "sum:m"]));
        assert!(!allows(&["1990-01-01", "1346846400", "sum:m"]));
        assert!(!allows(&["1346846400123ms", "sum:m"]));
    }

    #[test]
    fn rejects_invalid_ranges_and_expressions() {
        assert_eq!(
            error(&["10", "5", "sum:m"]),
            "end 5000 ms is not after start 10000 ms"
        );
        assert!(error(&["1h-ago"]).starts_with("missing expression"));
        assert!(error(&["yesterday", "sum:m"]).starts_with("start: `yesterday` is not a time"));
        // A time with a blank that was not quoted.
        assert!(error(&["2012-09-05", "12:00:00Z", "sum:m"]).starts_with("end: `12:00:00Z` is not a time"));
        assert_eq!(
            error(&["1h-ago", "total:m"]),
            "expression `total:m`: No such aggregation function: total"
        );
    }
}
