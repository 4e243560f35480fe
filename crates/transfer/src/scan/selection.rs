//! The rows to scan, from the words of the command.

use anyhow::{Context as _, bail};
use jiff::tz::TimeZone;
use oxtsdb_command::time_zone;
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::scan_rows_request::Source;
use oxtsdb_proto::data::v1::sub_query::{MetricSource, TsuidSource};
use oxtsdb_query::TagFilter;
use oxtsdb_schema::timestamp::MAX_MILLIS;

use crate::query;

/// Which rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Selection {
    /// Which series; `None`: the whole table.
    pub source: Option<Source>,
    /// Which hours: those that overlap.
    pub range: TimeRange,
    /// How many times were given: 0 to 2.
    pub times: usize,
}

/// Reads `[START [END]] [METRIC [TAGK=FILTER...]]`. Leading words that are times are the range, all
/// time without them; `metric` names one that looks like a time.
///
/// # Errors
///
/// Unless exactly one of a metric, TSUIDs and all rows is selected.
pub fn selection(
    words: &[String],
    metric: Option<&str>,
    tsuids: &[String],
    all: bool,
    now_ms: i64,
    zone: &TimeZone,
) -> anyhow::Result<Selection> {
    let mut times = Vec::new();
    let mut rest = words;
    while let [word, others @ ..] = rest
        && times.len() < 2
        && let Ok(time_ms) = time_zone::parse(word, now_ms, zone)
    {
        times.push(time_ms);
        rest = others;
    }
    let (metric, tags) = match (metric, rest) {
        (Some(metric), tags) => (Some(metric), tags),
        (None, [metric, tags @ ..]) => (Some(metric.as_str()), tags),
        (None, []) => (None, rest),
    };
    let source = match (metric, tsuids, all) {
        (Some(metric), [], false) => Some(Source::Metric(MetricSource {
            metric: metric.to_owned(),
            filters: tags
                .iter()
                .map(|tag| tag_filter(tag))
                .collect::<anyhow::Result<_>>()?,
            explicit_tags: false,
        })),
        (None, [_, ..], false) => Some(Source::Tsuids(TsuidSource {
            tsuids: tsuids
                .iter()
                .map(|text| tsuid(text))
                .collect::<anyhow::Result<_>>()?,
            filters: Vec::new(),
        })),
        (None, [], true) => None,
        (None, [], false) => bail!("nothing is selected: missing a metric or --tsuid HEX"),
        _ => bail!("a metric, --tsuid and --all are mutually exclusive"),
    };
    let start_ms = times.first().copied().unwrap_or(0);
    // The end is inclusive, as in queries; the contract's is exclusive.
    let end_ms = match times.get(1) {
        Some(end_ms) if *end_ms < start_ms => bail!("end {end_ms} ms is before start {start_ms} ms"),
        Some(end_ms) => end_ms.saturating_add(1),
        None => MAX_MILLIS + 1,
    };
    let range = TimeRange {
        start: Some(time_range::Start::StartMs(start_ms)),
        end: Some(time_range::End::EndMs(end_ms)),
    };
    let times = times.len();
    Ok(Selection { source, range, times })
}

fn tag_filter(text: &str) -> anyhow::Result<oxtsdb_proto::data::v1::TagFilter> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, value)| !key.is_empty() && !value.is_empty())
        .with_context(|| format!("tag `{text}` is not of the form tagk=tagv"))?;
    let filter = TagFilter::from_tag(key, value).with_context(|| format!("tag `{text}`"))?;
    query::filter(filter)
}

fn tsuid<T: From<Vec<u8>>>(text: &str) -> anyhow::Result<T> {
    match hex::decode(text) {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes.into()),
        _ => bail!("`{text}` is not a TSUID in hex"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_400_000_000_000;

    fn select(words: &str, metric: Option<&str>, tsuids: &[&str], all: bool) -> anyhow::Result<Selection> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let tsuids: Vec<String> = tsuids.iter().map(|text| (*text).to_owned()).collect();
        selection(&words, metric, &tsuids, all, NOW, &TimeZone::UTC)
    }

    fn range(start_ms: i64, end_ms: i64) -> TimeRange {
        TimeRange {
            start: Some(time_range::Start::StartMs(start_ms)),
            end: Some(time_range::End::EndMs(end_ms)),
        }
    }

    fn metric(selection: &Selection) -> (&str, usize) {
        match &selection.source {
            Some(Source::Metric(metric)) => (&metric.metric, metric.filters.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn leading_times_are_the_range() {
        let all_time = select("sys.cpu host=* dc=lga", None, &[], false).unwrap();
        assert_eq!(all_time.range, range(0, MAX_MILLIS + 1));
        assert_eq!(metric(&all_time), ("sys.cpu", 2));
        let from = select("1h-ago sys.cpu", None, &[], false).unwrap();
        assert_eq!(from.range, range(NOW - 3_600_000, MAX_MILLIS + 1));
        let both = select("10 20 sys.cpu", None, &[], false).unwrap();
        assert_eq!(
            (both.range, metric(&both)),
            (range(10_000, 20_001), ("sys.cpu", 0))
        );
        let dates = select("2012-09-05 2012-09-05T12:00:00Z sys.cpu", None, &[], false).unwrap();
        assert_eq!(dates.range, range(1_346_803_200_000, 1_346_846_400_001));
        let odd = select("10 20 host=a", Some("now"), &[], false).unwrap();
        assert_eq!(metric(&odd), ("now", 1));
    }

    #[test]
    fn selects_series_or_everything() {
        let series = select("10", None, &["000001000001000002", "00000a"], false).unwrap();
        let Some(Source::Tsuids(source)) = series.source else {
            panic!("not TSUIDs")
        };
        assert_eq!(source.tsuids[1].as_ref() as &[u8], [0, 0, 10]);
        let all = select("", None, &[], true).unwrap();
        assert_eq!(all.source, None);
    }

    #[test]
    fn rejects_invalid_selections() {
        let error = |words: &str, tsuids: &[&str], all: bool| {
            format!("{:#}", select(words, None, tsuids, all).unwrap_err())
        };
        assert!(error("", &[], false).starts_with("nothing is selected"));
        assert!(error("m", &[], true).contains("mutually exclusive"));
        assert!(error("", &["00"], true).contains("mutually exclusive"));
        assert_eq!(error("", &["0g"], false), "`0g` is not a TSUID in hex");
        assert_eq!(
            error("m host", &[], false),
            "tag `host` is not of the form tagk=tagv"
        );
        assert_eq!(
            error("20 10 m", &[], false),
            "end 10000 ms is before start 20000 ms"
        );
    }
}
