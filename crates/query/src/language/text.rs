//! Formats sub-queries in OpenTSDB's query language, for the list of running queries.

use std::fmt::{self, Write as _};

use crate::filter::TagFilter;
use crate::function::downsample::{Downsample, Fill, Interval};
use crate::spec::{Source, SubQuery};

impl fmt::Display for SubQuery {
    /// `sum:1m-avg:rate:sys.cpu{host=iwildcard(*)}{dc=literal_or(lga)}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.aggregator.name())?;
        if let Some(downsample) = &self.downsample {
            write!(f, "{downsample}:")?;
        }
        if let Some(rate) = self.rate {
            f.write_str("rate")?;
            if rate.counter {
                write!(f, "{{counter,{},{}}}", rate.counter_max, rate.reset_value)?;
            }
            f.write_char(':')?;
        }
        if let Some(results) = &self.histogram {
            if !results.percentiles.is_empty() {
                let percentiles: Vec<String> =
                    results.percentiles.iter().map(|one| one.to_string()).collect();
                write!(f, "percentiles[{}]:", percentiles.join(","))?;
            }
            if results.buckets {
                f.write_str("show-histogram-buckets:")?;
            }
        }
        if self.filter.explicit_tags {
            f.write_str("explicit_tags:")?;
        }
        match &self.source {
            Source::Metric(metric) => f.write_str(metric)?,
            Source::Tsuids(tsuids) => write!(f, "({} TSUIDs)", tsuids.len())?,
        }
        let (grouping, other): (Vec<_>, Vec<_>) = self.filter.tags.iter().partition(|filter| filter.group_by);
        if !grouping.is_empty() || !other.is_empty() {
            write_filters(f, &grouping)?;
        }
        if !other.is_empty() {
            write_filters(f, &other)?;
        }
        Ok(())
    }
}

fn write_filters(f: &mut fmt::Formatter<'_>, filters: &[&TagFilter]) -> fmt::Result {
    f.write_char('{')?;
    for (index, filter) in filters.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        let (kind, text) = (filter.matcher.filter_type().name(), filter.matcher.argument());
        write!(f, "{comma}{}={kind}({text})", filter.key)?;
    }
    f.write_char('}')
}

impl fmt::Display for Downsample {
    /// `1m-avg-zero`; lengths in milliseconds where they are no whole seconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interval {
            Interval::WholeRange => f.write_str("0all")?,
            Interval::Fixed { length_ms } if length_ms % 1000 == 0 => write!(f, "{}s", length_ms / 1000)?,
            Interval::Fixed { length_ms } => write!(f, "{length_ms}ms")?,
            Interval::Calendar(interval) => write!(f, "{}{}c", interval.count, interval.unit.suffix())?,
        }
        write!(f, "-{}", self.name)?;
        f.write_str(match self.fill {
            Fill::None => "",
            Fill::Zero => "-zero",
            Fill::Nan => "-nan",
            Fill::Null => "-null",
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use crate::language::{parse_metric_query, parse_tsuid_query};

    #[test]
    fn formats_sub_queries_as_the_parser_accepts_them() {
        for (text, shown) in [
            ("sum:m", "sum:m"),
            (
                "avg:1m-max-nan:rate:m{host=iwildcard(*)}{dc=a|b}",
                "avg:60s-max-nan:rate:m{host=iwildcard(*)}{dc=literal_or(a|b)}",
            ),
            (
                "none:rate{counter,100,7}:1500ms-p99:m{}{dc=x}",
                "none:1500ms-p99:rate{counter,100,7}:m{}{dc=literal_or(x)}",
            ),
            (
                "sum:0all-sum:explicit_tags:m{a=b}",
                "sum:0all-sum:explicit_tags:m{a=literal_or(b)}",
            ),
            ("sum:2nc-sum:m", "sum:2nc-sum:m"),
            (
                "sum:1m-sum-zero:show-histogram-buckets:percentiles[99.9, 50]:m",
                "sum:60s-sum:percentiles[50,99.9]:show-histogram-buckets:m",
            ),
        ] {
            let sub_query = parse_metric_query(text, &TimeZone::UTC).unwrap();
            assert_eq!(sub_query.to_string(), shown);
            let again = parse_metric_query(shown, &TimeZone::UTC).unwrap();
            assert_eq!(again, sub_query);
        }
        let series = parse_tsuid_query("sum:000001000001000001,000001000001000002", &TimeZone::UTC).unwrap();
        assert_eq!(series.to_string(), "sum:(2 TSUIDs)");
    }
}
