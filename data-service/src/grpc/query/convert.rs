//! Requests as the domain's types. Each refusal names its field.

use std::time::UNIX_EPOCH;

use jiff::tz::TimeZone;
use oxtsdb_ingest::{date, plausible_ms};
use oxtsdb_proto::common::v1::{ErrorReason, TimeRange, time_range};
use oxtsdb_proto::data::v1::downsample::Calendar;
use oxtsdb_proto::data::v1::downsample::calendar::Unit;
use oxtsdb_proto::data::v1::sub_query::{
    MetricSource, RollupUsage as RollupUsageMessage, Source as SourceMessage, TsuidSource,
};
use oxtsdb_proto::data::v1::tag_filter::FilterType as FilterTypeMessage;
use oxtsdb_proto::data::v1::{
    Downsample as DownsampleMessage, FillPolicy, QueryRequest, Rate, SubQuery as SubQueryMessage,
    TagFilter as TagFilterMessage, downsample,
};
use oxtsdb_proto::error::{invalid_field, invalid_field_because};
use oxtsdb_query::filter::{FilterError, FilterType, MAX_FILTERS};
use oxtsdb_query::language::time::find_zone;
use oxtsdb_query::{
    AnnotationSelection, CalendarInterval, CalendarUnit, Downsample, Fill, HistogramResults, Interval,
    QuerySpec, Quirks, RateOptions, RollupRequest, RollupUsage, SeriesFilter, Source, SubQuery, TagFilter,
    TagMatcher,
};
use oxtsdb_schema::DuplicatePolicy;
use prost_types::Duration;
use tonic::Status;

use super::aggregator::aggregator;
use super::field_error::{count, missing, no_such};

const MAX_QUERIES: usize = 50;
const MAX_TSUIDS: usize = 10_000;

/// A query.
pub(in crate::grpc) fn query(request: &QueryRequest, now_ms: i64) -> Result<QuerySpec, Status> {
    let (start_ms, stop_ms) = plausible_range(request.range.as_ref(), request.allow_any_time, now_ms)?;
    if request.queries.is_empty() || request.queries.len() > MAX_QUERIES {
        return Err(count("queries", request.queries.len(), MAX_QUERIES));
    }
    let queries = request.queries.iter().enumerate();
    let sub_queries = queries.map(|(index, query)| sub_query(&format!("queries[{index}]"), query));
    Ok(QuerySpec {
        skip_damaged_rows: request.skip_damaged_rows,
        with_surroundings: false,
        with_infinities: false,
        annotations: AnnotationSelection {
            of_series: request.include_annotations,
            global: request.include_global_annotations,
        },
        start_ms,
        end_ms: stop_ms - 1,
        sub_queries: sub_queries.collect::<Result<_, _>>()?,
        duplicates: DuplicatePolicy::KeepNewest,
        max_scanned_points: Some(request.max_scanned_points).filter(|max| *max > 0),
        quirks: if request.opentsdb_quirks {
            Quirks::OPENTSDB
        } else {
            Quirks::NONE
        },
    })
}

/// As [`range`], of field `range` of a query. A range without a plausible instant has no points, unless they were
/// written with `allow_any_time`.
pub(in crate::grpc) fn plausible_range(
    message: Option<&TimeRange>,
    allow_any_time: bool,
    now_ms: i64,
) -> Result<(i64, i64), Status> {
    let (start_ms, stop_ms) = range("range", message, now_ms)?;
    let now = UNIX_EPOCH + std::time::Duration::from_millis(now_ms.unsigned_abs());
    let plausible = plausible_ms(now);
    if allow_any_time || (stop_ms > *plausible.start() && start_ms <= *plausible.end()) {
        return Ok((start_ms, stop_ms));
    }
    let (field, verb, at_ms) = if stop_ms <= *plausible.start() {
        ("range.end_ms", "ends", stop_ms)
    } else {
        ("range.start_ms", "starts", start_ms)
    };
    let rule = format!(
        "the range {verb} at {at_ms} ms, which is {}, expected 2000-01-01 to 366 days after the server's clock; times \
         are in milliseconds; correct them, or set allow_any_time",
        date(at_ms)
    );
    Err(invalid_field_because(
        field,
        ErrorReason::ImplausibleTimestamp,
        rule,
    ))
}

/// First instant inside and first instant outside; the second is the later.
pub(in crate::grpc) fn range(
    field: &str,
    range: Option<&TimeRange>,
    now_ms: i64,
) -> Result<(i64, i64), Status> {
    let range = range.ok_or_else(|| missing(field))?;
    let start_ms = match &range.start {
        None => {
            return Err(invalid_field(
                field,
                "has no start, expected start_ms or start_ago",
            ));
        }
        Some(time_range::Start::StartMs(start_ms)) if *start_ms < 0 => {
            return Err(invalid_field(
                &format!("{field}.start_ms"),
                format!("is {start_ms}, expected at least 0"),
            ));
        }
        Some(time_range::Start::StartMs(start_ms)) => *start_ms,
        Some(time_range::Start::StartAgo(ago)) => {
            let ago_ms = millis(&format!("{field}.start_ago"), ago, 1)?;
            now_ms.saturating_sub(ago_ms).max(0)
        }
    };
    let stop_ms = match &range.end {
        None => now_ms,
        Some(time_range::End::EndMs(end_ms)) => *end_ms,
        Some(time_range::End::EndAgo(ago)) => {
            now_ms.saturating_sub(millis(&format!("{field}.end_ago"), ago, 0)?)
        }
    };
    if stop_ms <= start_ms {
        let rule =
            format!("ends at {stop_ms} ms and starts at {start_ms} ms, the end must be after the start");
        return Err(invalid_field(field, rule));
    }
    Ok((start_ms, stop_ms))
}

/// A duration in milliseconds, at least `least_ms`. Fractions of a millisecond are cut off.
pub(in crate::grpc) fn millis(field: &str, duration: &Duration, least_ms: i64) -> Result<i64, Status> {
    let fraction = i64::from(duration.nanos / 1_000_000);
    let millis = duration
        .seconds
        .checked_mul(1000)
        .and_then(|millis| millis.checked_add(fraction));
    millis.filter(|millis| *millis >= least_ms).ok_or_else(|| {
        let shown = format!("{} s {} ns", duration.seconds, duration.nanos);
        invalid_field(field, format!("is {shown}, expected at least {least_ms} ms"))
    })
}

pub(in crate::grpc) fn sub_query(field: &str, query: &SubQueryMessage) -> Result<SubQuery, Status> {
    let (source, filter) = match &query.source {
        None => return Err(invalid_field(field, "has no source, expected metric or tsuids")),
        Some(SourceMessage::Metric(source)) => {
            let (metric, filter) = metric_source(&format!("{field}.metric"), source)?;
            (Source::Metric(metric), filter)
        }
        Some(SourceMessage::Tsuids(source)) => {
            let field = format!("{field}.tsuids");
            let filter = SeriesFilter {
                tags: tag_filters(&field, &source.filters)?,
                explicit_tags: false,
            };
            (Source::Tsuids(tsuids(&field, source)?), filter)
        }
    };
    let downsample = query.downsample.as_ref();
    let rate = query.rate.as_ref();
    let sub_query = SubQuery {
        source,
        filter,
        aggregator: aggregator(&format!("{field}.aggregator"), query.aggregator.as_ref())?,
        downsample: downsample
            .map(|message| self::downsample(&format!("{field}.downsample"), message))
            .transpose()?,
        rate: rate
            .map(|message| self::rate(&format!("{field}.rate"), message))
            .transpose()?,
        histogram: None,
        rollup: RollupRequest {
            usage: rollup_usage(&format!("{field}.rollup_usage"), query.rollup_usage)?,
            pre_aggregate: query.pre_aggregate,
        },
    };
    let Some(message) = &query.histograms else {
        return Ok(sub_query);
    };
    let results = HistogramResults::from_parameters(message.percentiles.clone(), message.buckets);
    let wrong = |description: String| invalid_field(&format!("{field}.histograms"), description);
    let results = results.ok_or_else(|| wrong("has neither percentiles nor buckets".to_owned()))?;
    sub_query
        .with_histograms(results)
        .map_err(|error| wrong(error.to_string()))
}

/// The use of rollups.
fn rollup_usage(field: &str, number: i32) -> Result<Option<RollupUsage>, Status> {
    match RollupUsageMessage::try_from(number) {
        Ok(RollupUsageMessage::Unspecified) => Ok(None),
        Ok(RollupUsageMessage::Raw) => Ok(Some(RollupUsage::Raw)),
        Ok(RollupUsageMessage::NoFallback) => Ok(Some(RollupUsage::NoFallback)),
        Ok(RollupUsageMessage::Fallback) => Ok(Some(RollupUsage::Fallback)),
        Ok(RollupUsageMessage::FallbackRaw) => Ok(Some(RollupUsage::FallbackRaw)),
        Err(_) => Err(invalid_field(field, format!("is {number}, expected 0 to 4"))),
    }
}

/// Metric and filter.
pub(in crate::grpc) fn metric_source(
    field: &str,
    source: &MetricSource,
) -> Result<(String, SeriesFilter), Status> {
    if source.metric.is_empty() {
        return Err(invalid_field(&format!("{field}.metric"), "is empty"));
    }
    let filter = SeriesFilter {
        tags: tag_filters(field, &source.filters)?,
        explicit_tags: source.explicit_tags,
    };
    Ok((source.metric.clone(), filter))
}

/// The filters of a source.
fn tag_filters(field: &str, filters: &[TagFilterMessage]) -> Result<Vec<TagFilter>, Status> {
    if filters.len() > MAX_FILTERS {
        let rule = format!("has {} items, at most {MAX_FILTERS} are allowed", filters.len());
        return Err(invalid_field(&format!("{field}.filters"), rule));
    }
    let filters = filters.iter().enumerate();
    filters
        .map(|(index, filter)| tag_filter(&format!("{field}.filters[{index}]"), filter))
        .collect()
}

/// Bytes of TSUIDs, which are checked where the widths are known.
pub(in crate::grpc) fn tsuids(field: &str, source: &TsuidSource) -> Result<Vec<Vec<u8>>, Status> {
    if source.tsuids.is_empty() || source.tsuids.len() > MAX_TSUIDS {
        return Err(count(&format!("{field}.tsuids"), source.tsuids.len(), MAX_TSUIDS));
    }
    Ok(source.tsuids.iter().map(|tsuid| tsuid.to_vec()).collect())
}

fn tag_filter(field: &str, filter: &TagFilterMessage) -> Result<TagFilter, Status> {
    if filter.key.is_empty() {
        return Err(invalid_field(&format!("{field}.key"), "is empty"));
    }
    let type_field = format!("{field}.type");
    let filter_type = filter_type(filter.r#type).ok_or_else(|| no_such(&type_field, filter.r#type))?;
    let matcher = if filter_type.takes_alternatives() {
        TagMatcher::from_alternatives(filter_type, values(field, filter)?)
    } else {
        pattern(field, filter_type, filter)?
    };
    Ok(TagFilter::from_matcher(&filter.key, matcher, filter.group_by))
}

/// The type with the name of an enum value.
fn filter_type(number: i32) -> Option<&'static FilterType> {
    let value = FilterTypeMessage::try_from(number).ok()?;
    let name = value.as_str_name().strip_prefix("FILTER_TYPE_")?;
    FilterType::named(&name.to_lowercase()).ok()
}

/// The alternatives of a literal filter.
fn values(field: &str, filter: &TagFilterMessage) -> Result<Vec<String>, Status> {
    if !filter.pattern.is_empty() {
        let rule = format!(
            "is `{}`, a literal filter has its alternatives in values",
            filter.pattern
        );
        return Err(invalid_field(&format!("{field}.pattern"), rule));
    }
    if filter.values.is_empty() {
        return Err(invalid_field(
            &format!("{field}.values"),
            "is empty, expected at least one alternative",
        ));
    }
    if let Some(index) = filter.values.iter().position(String::is_empty) {
        return Err(invalid_field(&format!("{field}.values[{index}]"), "is empty"));
    }
    Ok(filter.values.clone())
}

/// The matcher of a type that takes a pattern.
fn pattern(
    field: &str,
    filter_type: &'static FilterType,
    filter: &TagFilterMessage,
) -> Result<TagMatcher, Status> {
    if !filter.values.is_empty() {
        let rule = "has alternatives, a filter of this type has its pattern in pattern";
        return Err(invalid_field(&format!("{field}.values"), rule));
    }
    let text = &filter.pattern;
    TagMatcher::from_pattern(filter_type, text).map_err(|error| {
        let rule = match error {
            FilterError::EmptyFilter => "is empty".to_owned(),
            FilterError::NoAsterisk => format!("is `{text}`, expected at least one `*`"),
            FilterError::Regexp { reason, .. } => format!("is `{text}`, which {reason}"),
            error => format!("is `{text}`: {error}"),
        };
        invalid_field(&format!("{field}.pattern"), rule)
    })
}

fn downsample(field: &str, message: &DownsampleMessage) -> Result<Downsample, Status> {
    let interval = match &message.interval {
        Some(downsample::Interval::Fixed(length)) => {
            let field = format!("{field}.fixed");
            let length_ms = millis(&field, length, 1)?;
            if length.nanos % 1_000_000 != 0 {
                let rule = format!("has {} ns, expected whole milliseconds", length.nanos);
                return Err(invalid_field(&field, rule));
            }
            Interval::Fixed { length_ms }
        }
        Some(downsample::Interval::Calendar(calendar)) => {
            Interval::Calendar(self::calendar(&format!("{field}.calendar"), calendar)?)
        }
        Some(downsample::Interval::WholeRange(_)) => Interval::WholeRange,
        None => {
            return Err(invalid_field(
                field,
                "has no interval, expected fixed, calendar or whole_range",
            ));
        }
    };
    let fill = match FillPolicy::try_from(message.fill) {
        Ok(FillPolicy::Unspecified | FillPolicy::None) => Fill::None,
        Ok(FillPolicy::Zero) => Fill::Zero,
        Ok(FillPolicy::Nan) => Fill::Nan,
        Err(_) => return Err(no_such(&format!("{field}.fill"), message.fill)),
    };
    let field = format!("{field}.aggregator");
    let aggregator = aggregator(&field, message.aggregator.as_ref())?;
    Downsample::new(interval, aggregator, fill).ok_or_else(|| {
        invalid_field(
            &field,
            "is NONE, expected a function over the values of an interval",
        )
    })
}

fn calendar(field: &str, calendar: &Calendar) -> Result<CalendarInterval, Status> {
    let unit = match calendar.unit() {
        Unit::Unspecified => return Err(no_such(&format!("{field}.unit"), calendar.unit)),
        Unit::Milliseconds => CalendarUnit::Milliseconds,
        Unit::Seconds => CalendarUnit::Seconds,
        Unit::Minutes => CalendarUnit::Minutes,
        Unit::Hours => CalendarUnit::Hours,
        Unit::Days => CalendarUnit::Days,
        Unit::Weeks => CalendarUnit::Weeks,
        Unit::Months => CalendarUnit::Months,
        Unit::Years => CalendarUnit::Years,
    };
    if calendar.count == 0 || i32::try_from(calendar.count).is_err() {
        let rule = format!("is {}, expected 1 to 2^31 - 1", calendar.count);
        return Err(invalid_field(&format!("{field}.count"), rule));
    }
    let zone = match calendar.zone.as_str() {
        "" => TimeZone::UTC,
        name => find_zone(name).map_err(|_| {
            let rule = format!("is `{name}`, expected the name of an IANA time zone");
            invalid_field(&format!("{field}.zone"), rule)
        })?,
    };
    Ok(CalendarInterval {
        count: calendar.count.into(),
        unit,
        zone,
    })
}

fn rate(field: &str, message: &Rate) -> Result<RateOptions, Status> {
    let Some(counter) = &message.counter else {
        return Ok(RateOptions::default());
    };
    let signed = |name: &str, value: Option<u64>, default: i64| {
        let Some(value) = value else { return Ok(default) };
        i64::try_from(value).map_err(|_| {
            invalid_field(
                &format!("{field}.counter.{name}"),
                format!("is {value}, at most 2^63 - 1 is allowed"),
            )
        })
    };
    Ok(RateOptions {
        counter: true,
        counter_max: signed("max", counter.max, i64::MAX)?,
        reset_value: signed("reset_value", counter.reset_value, 0)?,
        drop_resets: counter.drop_resets,
    })
}

#[cfg(test)]
mod tests;
