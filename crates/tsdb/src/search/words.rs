//! The selector that the words of the command spell.

use anyhow::ensure;
use oxtsdb_client::SeriesSelector;

/// Reads `[METRIC] [TAG ...]`. OpenTSDB's command has the word `lookup` before them.
///
/// # Errors
///
/// If a word after the metric is not a tag.
pub(super) fn selector(words: &[String]) -> anyhow::Result<SeriesSelector> {
    let words = match words {
        [lookup, metric, ..] if lookup == "lookup" && !metric.contains('=') => &words[1..],
        _ => words,
    };
    let (metric, tags) = match words {
        [metric, tags @ ..] if !metric.contains('=') => (Some(metric.as_str()), tags),
        tags => (None, tags),
    };
    let mut selector = match metric {
        None | Some("*") => SeriesSelector::all(),
        Some(metric) => SeriesSelector::metric(metric),
    };
    for tag in tags {
        let (key, value) = tag.split_once('=').unwrap_or_default();
        ensure!(
            !(value.contains('=') || key.is_empty() && value.is_empty()),
            "`{tag}` is not a tag, expected tagk=tagv, tagk= or =tagv"
        );
        let key = Some(key).filter(|key| !matches!(*key, "" | "*"));
        let values = Some(value).filter(|value| !matches!(*value, "" | "*"));
        let values = values.map(|values| values.split('|').filter(|value| !value.is_empty()));
        selector = match (key, values) {
            (Some(key), Some(values)) => selector.tag(key, values),
            (Some(key), None) => selector.tag_key(key),
            (None, Some(values)) => selector.tag_value(values),
            (None, None) => selector,
        };
    }
    Ok(selector)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(text: &str) -> anyhow::Result<SeriesSelector> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        selector(&words)
    }

    #[test]
    fn words_are_a_metric_and_tags() {
        for (text, expected) in [
            ("*", SeriesSelector::all()),
            ("m", SeriesSelector::metric("m")),
            ("lookup", SeriesSelector::metric("lookup")),
            ("lookup m", SeriesSelector::metric("m")),
            ("lookup a=b", SeriesSelector::metric("lookup").tag("a", ["b"])),
            ("a=b", SeriesSelector::all().tag("a", ["b"])),
            ("m a=b|c", SeriesSelector::metric("m").tag("a", ["b", "c"])),
            (
                "m a= =c",
                SeriesSelector::metric("m").tag_key("a").tag_value(["c"]),
            ),
            ("* a=* *=c", SeriesSelector::all().tag_key("a").tag_value(["c"])),
        ] {
            assert_eq!(parse_words(text).unwrap(), expected, "{text}");
        }
        for text in ["m n", "m =", "m a=b=c"] {
            let error = parse_words(text).unwrap_err().to_string();
            assert!(error.contains("is not a tag"), "{error}");
        }
    }
}
