//! Parses annotations and ranges of requests.

use jiff::tz::TimeZone;
use oxtsdb_query::language::time::parse_time;
use oxtsdb_schema::Annotation;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::query::bounded::FirstOf;
use crate::http::query::flag::Flag;
use crate::http::query::scalar::Text;

/// Documents of a bulk request, and TSUIDs of a bulk delete, at most.
const MAX_DOCUMENTS: usize = 10_000;
const MAX_TSUIDS: usize = 10_000;

/// A document in the query string.
pub(super) fn from_parameters(parameters: &Parameters, now_ms: i64) -> Result<Annotation, HttpError> {
    let seconds = |name| match parameters.get(name).filter(|text| !text.is_empty()) {
        Some(text) => Ok::<_, HttpError>(time(text, now_ms)? / 1000),
        None => Ok(0),
    };
    let start_time = seconds("start_time")?;
    if start_time == 0 {
        return Err(HttpError::bad_request("Missing start time"));
    }
    let text = |name| parameters.get(name).unwrap_or_default().to_owned();
    Ok(Annotation {
        tsuid: text("tsuid"),
        start_time,
        end_time: seconds("end_time")?,
        description: Some(text("description")),
        notes: Some(text("notes")),
        custom: None,
    })
}

/// A document in a body.
pub(super) fn from_json(content: &[u8]) -> Result<Annotation, HttpError> {
    Annotation::decode(content).map_err(|error| HttpError::unreadable_json(error.reason))
}

/// The documents of a bulk request.
pub(super) fn bulk(content: &[u8]) -> Result<Vec<Annotation>, HttpError> {
    if content.is_empty() {
        return Err(HttpError::missing_content());
    }
    let documents: Vec<&RawValue> =
        serde_json::from_slice(content).map_err(|error| HttpError::unreadable_json(error.to_string()))?;
    if documents.len() > MAX_DOCUMENTS {
        return Err(HttpError::bad_request(format!(
            "body has {} annotations, at most {MAX_DOCUMENTS} are allowed",
            documents.len()
        )));
    }
    documents
        .iter()
        .map(|document| from_json(document.get().as_bytes()))
        .collect()
}

/// A bulk delete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BulkDelete {
    pub(super) tsuids: Option<Vec<String>>,
    pub(super) global: bool,
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
}

/// The body of a bulk delete, which rejects unknown fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonBulkDelete {
    tsuids: Option<FirstOf<Text, MAX_TSUIDS>>,
    #[serde(default)]
    global: Flag,
    start_time: Option<Text>,
    end_time: Option<Text>,
    #[serde(default, rename = "totalDeleted")]
    _total_deleted: serde::de::IgnoredAny,
}

impl BulkDelete {
    /// Of a body.
    pub(super) fn from_json(content: &[u8], now_ms: i64) -> Result<BulkDelete, HttpError> {
        let json: JsonBulkDelete =
            serde_json::from_slice(content).map_err(|error| HttpError::unreadable_json(error.to_string()))?;
        let start = json.start_time.map(|text| text.0);
        let start = start
            .filter(|text| !text.is_empty())
            .ok_or_else(|| HttpError::bad_request("Missing the start time value"))?;
        let tsuids = json.tsuids.map(|tsuids| (tsuids.count, tsuids.kept));
        let (count, tsuids) = match tsuids {
            None => (0, None),
            Some((count, texts)) => (count, Some(texts.into_iter().map(|text| text.0).collect())),
        };
        let end = json.end_time.map(|text| text.0);
        Self::new(tsuids, count, json.global.0, (&start, end.as_deref()), now_ms)
    }

    /// Of a query string.
    pub(super) fn from_parameters(parameters: &Parameters, now_ms: i64) -> Result<BulkDelete, HttpError> {
        let start = parameters.get("start_time").filter(|text| !text.is_empty());
        let start =
            start.ok_or_else(|| HttpError::bad_request("Missing parameter <code>start_time</code>"))?;
        let tsuids: Option<Vec<String>> = parameters
            .get("tsuids")
            .map(|texts| texts.split(',').map(|text| text.trim().to_owned()).collect());
        let count = tsuids.as_ref().map_or(0, Vec::len);
        let range = (start, parameters.get("end_time"));
        Self::new(tsuids, count, parameters.has("global"), range, now_ms)
    }

    fn new(
        tsuids: Option<Vec<String>>,
        count: usize,
        global: bool,
        (start, end): (&str, Option<&str>),
        now_ms: i64,
    ) -> Result<BulkDelete, HttpError> {
        if count == 0 && !global {
            return Err(HttpError::bad_request(
                "Missing the TSUIDs or global annotations flag",
            ));
        }
        if count > MAX_TSUIDS {
            return Err(HttpError::bad_request(format!(
                "request has {count} TSUIDs, at most {MAX_TSUIDS} are allowed"
            )));
        }
        if tsuids.iter().flatten().any(String::is_empty) {
            return Err(repeated("UID was empty"));
        }
        let start_ms = time(start, now_ms)?;
        let end_ms = match end.filter(|text| !text.is_empty()) {
            Some(text) => time(text, now_ms)?,
            None => now_ms,
        };
        if end_ms < start_ms {
            return Err(end_before_start());
        }
        Ok(BulkDelete {
            tsuids,
            global,
            start_ms,
            end_ms,
        })
    }
}

/// The error of a range that ends before it starts.
pub(super) fn end_before_start() -> HttpError {
    repeated("The end timestamp cannot be less than the start timestamp")
}

/// 400, with the message as details too.
pub(super) fn repeated(message: &str) -> HttpError {
    HttpError::bad_request(message).with_details(message)
}

/// A time in any form of queries, in milliseconds.
fn time(text: &str, now_ms: i64) -> Result<i64, HttpError> {
    parse_time(text, now_ms, &TimeZone::UTC).map_err(|error| repeated(&error.to_string()))
}
