use super::*;
use crate::function::downsample::Interval;

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
fn accepts_parts_in_any_order_and_ignores_unknown_ones() {
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
fn parts_that_opentsdb_ignores_are_unknown() {
    for part in [
        "avg-1m",
        "rat",
        "rates",
        "rate{gauge}",
        "rate{counter",
        "explicit_tag",
        "explicit_tags_",
        "pre-aggregate",
        "rollup_",
        "rollup_raws",
        "all-sum",
        "",
    ] {
        let text = format!("sum:1m-avg:{part}:m");
        assert_eq!(unknown_part(&text), Some(part));
    }
    for text in [
        "sum:m",
        "sum:1m-avg:m{host=*}{dc=lga}",
        "sum:RATE:m",
        "sum:rate{counter}:m",
        "sum:rate{dropcounter,100,7}:0all-sum-nan:m",
        "sum:Explicit_Tags:m{host=a}",
        "sum:rollup_raw:1h-sum:pre-agg:m",
        "sum:percentiles[50,99.9]:show-histogram-buckets:m",
        "rat",
        "",
    ] {
        assert_eq!(unknown_part(text), None, "{text}");
    }
}

#[test]
fn first_braces_group_and_second_braces_filter() {
    assert_eq!(filters("sum:m"), Vec::<String>::new());
    assert_eq!(filters("sum:m{}"), Vec::<String>::new());
    assert_eq!(
        filters("sum:m{host=*,dc=lga}"),
        ["host=iwildcard(*)^", "dc=literal_or(lga)^"]
    );
    assert_eq!(
        filters("sum:m{host=*}{dc=wildcard(l*)}"),
        ["dc=wildcard(l*)", "host=iwildcard(*)^"]
    );
    assert_eq!(filters("sum:m{}{dc=lga|phx}"), ["dc=literal_or(lga|phx)"]);
    assert_eq!(filters("sum:m{}{,}"), Vec::<String>::new());
    assert_eq!(
        filters("sum:m{host=*}x{dc=l}{dc=p}"),
        ["dc=literal_or(p)", "host=iwildcard(*)^"],
        "what is between the first and the last braces is ignored"
    );
}

#[test]
fn parses_rate_options() {
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
fn rejects_invalid_queries_with_opentsdbs_messages() {
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
        (
            "sum:m}{a=b}{c=regexp()}",
            "When parsing filter 'c=regexp()': Filter cannot be null or empty",
        ),
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
        (
            "sum:percentiles50:m",
            "Malformated percentile query paramater: percentiles50",
        ),
        (
            "sum:percentiles[50:m",
            "Malformated percentile query paramater: percentiles[50",
        ),
        ("sum:percentiles[]:m", "empty String"),
        ("sum:percentiles[50,]:m", "empty String"),
        ("sum:percentiles[x]:m", "For input string: \"x\""),
        ("sum:percentiles[101]:m", "Invalid percentile parameters: 101.0"),
        ("sum:percentiles[-1]:m", "Invalid percentile parameters: -1.0"),
        (
            "avg:percentiles[50]:m",
            "Only NONE or SUM aggregation function supported for histogram query",
        ),
        (
            "sum:1m-avg:show-histogram-buckets:m",
            "Only SUM downsampling aggregation supported for histogram query",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
}

#[test]
fn parses_tsuids_in_hex_of_either_case() {
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
