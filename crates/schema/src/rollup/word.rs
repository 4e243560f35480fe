//! The word of a text line that says what a value aggregates.

/// `INTERVAL-AGGREGATOR[:GROUPBY]`, or `GROUPBY`: the interval and the aggregator of a rollup, and the aggregator over series of
/// a pre-aggregate.
///
/// Without a dash the word is a group-by aggregator: the second of its parts between colons, or the only one. So `1h:sum`
/// is a pre-aggregate without an interval, as in OpenTSDB.
///
/// Source: OpenTSDB 2.4, `RollupDataPointRpc.importDataPoint`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AggregateWord<'a> {
    /// The interval, not empty.
    pub interval: Option<&'a str>,
    /// The aggregator over the interval; may be empty.
    pub aggregator: Option<&'a str>,
    /// The aggregator over series.
    pub group_by: Option<&'a str>,
}

impl<'a> AggregateWord<'a> {
    /// Parses a word. Any is one; whether its interval and aggregators exist is a setting of the deployment.
    pub fn parse(word: &'a str) -> Self {
        let mut parts = word.split(':');
        let first = parts.next().unwrap_or_default();
        let second = parts.next();
        let named = |text: &&str| !text.is_empty();
        match first.split_once('-') {
            Some((interval, aggregator)) => Self {
                interval: Some(interval).filter(named),
                aggregator: Some(aggregator),
                group_by: second.filter(named),
            },
            None => Self {
                group_by: Some(second.unwrap_or(first)),
                ..Self::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_intervals_and_aggregators() {
        let cases = [
            ("1h-sum", Some("1h"), Some("sum"), None),
            ("1h-sum:max", Some("1h"), Some("sum"), Some("max")),
            ("1h-sum:", Some("1h"), Some("sum"), None),
            ("-sum", None, Some("sum"), None),
            ("1h-", Some("1h"), Some(""), None),
            ("sum", None, None, Some("sum")),
            ("1h:sum:max", None, None, Some("sum")),
        ];
        for (word, interval, aggregator, group_by) in cases {
            let expected = AggregateWord {
                interval,
                aggregator,
                group_by,
            };
            assert_eq!(AggregateWord::parse(word), expected, "{word}");
        }
    }
}
