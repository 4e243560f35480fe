//! Requests of `/api/search/lookup`, `m=METRIC{TAGK=TAGV,...}` or a JSON object, and of searches by text.

use std::collections::BTreeMap;

use oxtsdb_metadata::lookup::{LookupQuery, SeriesSelector, SeriesSource, TagSelector};
use serde::Deserialize;

use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::query::bounded::FirstOf;
use crate::http::query::scalar::{Text, Whole};

/// Series of a response if the client does not say.
const DEFAULT_LIMIT: i64 = 25;

/// Tags of a request at most.
const MAX_TAGS: usize = 4096;

/// A parsed request. The response repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LookupRequest {
    /// The text that other kinds search for.
    pub(super) query: Option<String>,
    /// `None`, empty or `*`: any.
    pub(super) metric: Option<String>,
    /// `None`: the body has no tags.
    pub(super) tags: Option<Vec<Pair>>,
    /// Series at most; 0 or less: all.
    pub(super) limit: i64,
    /// Results that are skipped. Look-up ignores it, as in OpenTSDB.
    pub(super) start_index: i64,
    pub(super) use_meta: bool,
}

/// A tag; `None`, empty or `*` matches any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) key: Option<String>,
    pub(super) value: Option<String>,
}

impl LookupRequest {
    /// Parses a query string.
    pub(super) fn from_parameters(parameters: &Parameters) -> Result<Self, HttpError> {
        let text = parameters
            .get("m")
            .filter(|text| !text.is_empty())
            .ok_or_else(|| HttpError::bad_request("Missing parameter <code>m</code>"))?;
        let (metric, tags) = metric_and_tags(text)
            .map_err(|details| HttpError::bad_request("Unable to parse query").with_details(details))?;
        let limit = match parameters.get("limit") {
            None => DEFAULT_LIMIT,
            Some(text) => text
                .parse::<i32>()
                .map(i64::from)
                .map_err(|_| HttpError::bad_request("Unable to convert 'limit' to a valid number"))?,
        };
        let of_data = |text: &str| text.eq_ignore_ascii_case("false");
        Self {
            query: None,
            metric,
            tags: Some(tags),
            limit,
            start_index: 0,
            use_meta: !parameters.get("use_meta").is_some_and(of_data),
        }
        .checked()
    }

    /// Parses a query string of a search by text.
    pub(super) fn from_text_parameters(parameters: &Parameters) -> Result<Self, HttpError> {
        let query = parameters.get("query").filter(|text| !text.is_empty());
        let query = query.ok_or_else(|| HttpError::bad_request("Missing parameter <code>query</code>"))?;
        let number = |name, default| match parameters.get(name) {
            None => Ok(default),
            Some(text) => text
                .parse::<i32>()
                .map(i64::from)
                .map_err(|_| HttpError::bad_request(format!("Unable to convert '{name}' to a valid number"))),
        };
        Ok(Self {
            query: Some(query.to_owned()),
            metric: Some("*".to_owned()),
            tags: None,
            limit: number("limit", DEFAULT_LIMIT)?,
            start_index: number("start_index", 0)?,
            use_meta: true,
        })
    }

    /// Parses a body.
    pub(super) fn from_json(content: &[u8]) -> Result<Self, HttpError> {
        let body: Body =
            serde_json::from_slice(content).map_err(|error| HttpError::unreadable_json(error.to_string()))?;
        let text = |text: Text| text.0;
        let tags = body.tags.map(|tags| {
            if tags.count > MAX_TAGS {
                return Err(too_many_tags(tags.count));
            }
            let pairs = tags.kept.into_iter().map(|tag| Pair {
                key: tag.key.map(text),
                value: tag.value.map(text),
            });
            Ok(pairs.collect())
        });
        Ok(Self {
            query: body.query.map(text),
            metric: Some(body.metric.map_or_else(|| "*".to_owned(), text)),
            tags: tags.transpose()?,
            limit: body.limit.map_or(DEFAULT_LIMIT, |limit| limit.0),
            start_index: body.start_index.map_or(0, |index| index.0),
            use_meta: body.use_meta.unwrap_or(true),
        })
    }

    fn checked(self) -> Result<Self, HttpError> {
        match self.tags.as_ref().map_or(0, Vec::len) {
            count if count > MAX_TAGS => Err(too_many_tags(count)),
            _ => Ok(self),
        }
    }

    /// The series that it selects. Values of one key are alternatives, and so are values without a key.
    pub(super) fn selection(&self) -> LookupQuery {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty() && text != "*");
        // No values: any.
        let mut tags: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
        let mut any = Vec::new();
        for pair in self.tags.iter().flatten() {
            let key = given(&pair.key);
            match given(&pair.value) {
                Some(value) => tags.entry(key).or_default().push(value),
                None => {
                    tags.entry(key.clone()).or_default();
                    any.push(key);
                }
            }
        }
        for key in any {
            tags.insert(key, Vec::new());
        }
        LookupQuery {
            selector: SeriesSelector {
                metric: given(&self.metric),
                tags: tags
                    .into_iter()
                    .map(|(key, values)| TagSelector { key, values })
                    .collect(),
            },
            source: if self.use_meta {
                SeriesSource::MetaTable
            } else {
                SeriesSource::DataTable
            },
        }
    }
}

fn too_many_tags(count: usize) -> HttpError {
    HttpError::bad_request(format!("query has {count} tags, at most {MAX_TAGS} are allowed"))
}

/// Unknown fields are ignored, as OpenTSDB does here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    query: Option<Text>,
    metric: Option<Text>,
    tags: Option<FirstOf<JsonPair, MAX_TAGS>>,
    limit: Option<Whole>,
    start_index: Option<Whole>,
    use_meta: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct JsonPair {
    key: Option<Text>,
    value: Option<Text>,
}

/// Parses `METRIC`, `METRIC{TAGS}` or `{TAGS}`. The error is OpenTSDB's text.
fn metric_and_tags(text: &str) -> Result<(Option<String>, Vec<Pair>), String> {
    let Some((metric, rest)) = text.split_once('{') else {
        return Ok((Some(text.to_owned()), Vec::new()));
    };
    let Some(tags) = rest.strip_suffix('}') else {
        return Err(format!("Missing '}}' at the end of: {text}"));
    };
    if tags.is_empty() {
        if metric.is_empty() {
            return Err(format!("Missing metric and tags: {text}"));
        }
        return Ok((Some(metric.to_owned()), Vec::new()));
    }
    let pairs = tags
        .split(',')
        .map(|tag| pair(tag).map_err(|error| format!("When parsing tag '{tag}': {error}")));
    let pairs = pairs.collect::<Result<_, _>>()?;
    Ok((Some(metric.to_owned()).filter(|metric| !metric.is_empty()), pairs))
}

/// Parses `TAGK=TAGV`, `TAGK=` or `=TAGV`.
fn pair(text: &str) -> Result<Pair, String> {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    match text.split_once('=') {
        Some((key, value)) if !(value.contains('=') || key.is_empty() && value.is_empty()) => Ok(Pair {
            key: given(key),
            value: given(value),
        }),
        _ => Err(format!("invalid tag: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_query_string(query: &str) -> Result<LookupRequest, HttpError> {
        LookupRequest::from_parameters(&Parameters::parse(Some(query)))
    }

    fn selected(request: &LookupRequest) -> String {
        request.selection().selector.to_string()
    }

    #[test]
    fn parses_the_query_string() {
        for (query, expected) in [
            ("m=sys.cpu", "sys.cpu"),
            ("m=*", "*"),
            ("m=sys.cpu{}", "sys.cpu"),
            ("m=sys.cpu{host=web01,dc=*}", "sys.cpu{dc=*,host=web01}"),
            ("m=sys.cpu{host=}", "sys.cpu{host=*}"),
            ("m=sys.cpu{=web01}", "sys.cpu{*=web01}"),
            ("m={*=web01,*=web02}", "*{*=web01|web02}"),
            ("m=sys.cpu{host=web01,host=web02}", "sys.cpu{host=web01|web02}"),
            ("m=sys.cpu{host=*,host=web02}", "sys.cpu{host=*}"),
        ] {
            assert_eq!(selected(&parse_query_string(query).unwrap()), expected, "{query}");
        }
        let request = parse_query_string("m=a&limit=-1&use_meta=false&start_index=3").unwrap();
        assert_eq!((request.limit, request.start_index), (-1, 0));
        assert_eq!(request.selection().source, SeriesSource::DataTable);
    }

    #[test]
    fn rejects_broken_query_strings_with_opentsdbs_texts() {
        for (query, message, details) in [
            ("limit=1", "Missing parameter <code>m</code>", None),
            ("m=", "Missing parameter <code>m</code>", None),
            ("m=a&limit=x", "Unable to convert 'limit' to a valid number", None),
            (
                "m=a{host}",
                "Unable to parse query",
                Some("When parsing tag 'host': invalid tag: host"),
            ),
            (
                "m=a{host=b",
                "Unable to parse query",
                Some("Missing '}' at the end of: a{host=b"),
            ),
            (
                "m={}",
                "Unable to parse query",
                Some("Missing metric and tags: {}"),
            ),
        ] {
            let error = parse_query_string(query).unwrap_err();
            assert_eq!(
                (&*error.message, error.details.as_deref()),
                (message, details),
                "{query}"
            );
        }
    }

    #[test]
    fn parses_bodies() {
        let of = |json: &str| LookupRequest::from_json(json.as_bytes()).unwrap();
        let request = of(
            r#"{"metric":"m","tags":[{"key":"host","value":null},{"key":"","value":7}],"limit":"3","startIndex":1,
                "useMeta":false,"bogus":{}}"#,
        );
        assert_eq!(selected(&request), "m{*=7,host=*}");
        assert_eq!(
            (request.limit, request.start_index, request.use_meta),
            (3, 1, false)
        );
        let empty = of("{}");
        assert_eq!(
            (empty.metric.as_deref(), &empty.tags, empty.limit),
            (Some("*"), &None, 25)
        );
        for broken in ["[]", "{", r#"{"tags":{"host":"a"}}"#] {
            let error = LookupRequest::from_json(broken.as_bytes()).unwrap_err();
            assert_eq!(error.message, "Unable to parse the given JSON", "{broken}");
        }
    }
}
