//! InfluxDB's line protocol, as Telegraf and InfluxDB's clients send it: `/write` (version 1), `/api/v2/write` (version 2).
//!
//! ```text
//!   cpu,host=a,cpu=cpu0 usage_idle=97.5,count=3i 1700000000000000000
//!   ─► cpu.usage_idle 1700000000 97.5 host=a cpu=cpu0
//!   ─► cpu.count      1700000000 3    host=a cpu=cpu0
//! ```
//!
//! Each field is a series of its own: its metric is `MEASUREMENT.FIELD`, or `MEASUREMENT` for a field named `value`; with
//! `separator=_` in the URL it is `MEASUREMENT_FIELD`. Booleans are 1 and 0; texts are left out. `db`, `bucket` and `org` are accepted
//! and not stored. Lines are independent: the good ones are stored, and the response names the others.
//!
//! Source: <https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/>, `/api/v2/write`, and version 1.8's `/write`.

mod line;
mod precision;
#[cfg(test)]
mod tests;

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use oxtsdb_ingest::RejectionKind;

use self::line::{FieldValue, Line, LineError, Lines};
use self::precision::Precision;
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::error_form::ErrorForm;
use crate::http::mapped::write::{self, Written};
use crate::http::mapped::{Chunk, NameMap};
use crate::http::reply::Reply;

/// The field that is stored as a series with the bare name of the measurement.
const VALUE: &str = "value";

/// The text between measurement and field, unless `separator=` gives another.
const SEPARATOR: &str = ".";

/// The most characters of a separator.
const MOST_SEPARATOR: usize = 8;

/// Characters of a line that an error repeats.
const SHOWN: usize = 200;

/// The version of InfluxDB's API, for clients that ask.
const VERSION: http::HeaderValue = http::HeaderValue::from_static("1.8.10");
const VERSION_HEADER: http::HeaderName = http::HeaderName::from_static("x-influxdb-version");

/// `/write`.
pub(super) async fn write(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    store(request, ErrorForm::Influx).await
}

/// `/api/v2/write`.
pub(super) async fn write_2(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    store(request, ErrorForm::Influx2).await
}

/// `/ping`: the server is there.
pub(super) async fn ping(_: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Ok(Reply::empty().with_header(VERSION_HEADER, VERSION))
}

/// `/query`: senders create their database before they write. Nothing is created.
pub(super) async fn query(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let form = std::str::from_utf8(&request.body.bytes).unwrap_or_default();
    let form = crate::http::parameters::Parameters::parse(Some(form));
    let statement = request
        .parameters
        .get("q")
        .or_else(|| form.get("q"))
        .unwrap_or_default();
    let mut words = statement.split_ascii_whitespace();
    let creates = words
        .next()
        .is_some_and(|word| word.eq_ignore_ascii_case("create"))
        && words
            .next()
            .is_some_and(|word| word.eq_ignore_ascii_case("database"));
    if creates {
        return Ok(Reply::json(br#"{"results":[{"statement_id":0}]}"#.to_vec()));
    }
    let message = "`q`: only CREATE DATABASE is accepted, queries are those of OpenTSDB (/api/query)";
    Err(HttpError::bad_request(message))
}

async fn store(request: ApiRequest<'_>, error_form: ErrorForm) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        caller,
        parameters,
        body,
        ..
    } = request;
    let precision = match parameters.get("precision") {
        None | Some("") => Precision::default(),
        Some(text) => Precision::parse(text)?,
    };
    let map = NameMap::new(parts.writer.uids().name_rules(), "influx");
    let separator = separator(parameters.get("separator"), &map)?;
    let now_ms = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis();
    let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
    let form = LineForm {
        map,
        separator,
        precision,
        now_ms,
    };
    let decode = move |bytes: &Bytes, at: &mut (usize, usize)| decode(bytes, at, &form);
    let Written { outcome, .. } = write::write(parts, &caller, body, (0, 0), decode).await?;
    Ok(match write::error(&outcome) {
        None => Reply::empty(),
        Some((status, text)) => Reply::text_in(error_form, status, &text),
    })
}

/// The text between measurement and field.
///
/// # Errors
///
/// 400 if it cannot be part of a name.
fn separator(text: Option<&str>, map: &NameMap) -> Result<String, HttpError> {
    let text = text.unwrap_or(SEPARATOR);
    let length = text.chars().count();
    if !(1..=MOST_SEPARATOR).contains(&length) {
        let message = format!("separator has {length} characters, expected 1 to {MOST_SEPARATOR}");
        return Err(HttpError::bad_request(message));
    }
    match text.chars().find(|character| !map.allows(*character)) {
        None => Ok(text.to_owned()),
        Some(wrong) => Err(HttpError::bad_request(format!(
            "separator `{text}` has the character {wrong:?}, which names cannot have"
        ))),
    }
}

/// How the lines of a request become points.
struct LineForm {
    map: NameMap,
    separator: String,
    precision: Precision,
    /// The time of lines without a timestamp.
    now_ms: i64,
}

/// The next lines of a body. `at`: the bytes and the lines before them.
fn decode(bytes: &Bytes, at: &mut (usize, usize), form: &LineForm) -> Result<Option<Chunk>, HttpError> {
    let mut lines = Lines::new(bytes.get(at.0..).unwrap_or_default(), at.1);
    let mut chunk = Chunk::default();
    let mut is_empty = true;
    while !chunk.is_full()
        && let Some((number, line)) = lines.next()
    {
        is_empty = false;
        match line {
            Ok(line) => add(&mut chunk, form, &line, number),
            Err(LineError { reason, text }) => {
                let shown: String = String::from_utf8_lossy(text).chars().take(SHOWN).collect();
                chunk.reject(
                    number,
                    RejectionKind::Malformed,
                    format!("{reason}: `{shown}`"),
                    shown,
                );
            }
        }
    }
    *at = (bytes.len() - lines.rest().len(), lines.ended());
    Ok((!is_empty).then_some(chunk))
}

/// Adds the fields of a line.
fn add(chunk: &mut Chunk, form: &LineForm, line: &Line<'_>, number: usize) {
    let LineForm { map, separator, .. } = form;
    let timestamp = line.timestamp;
    let timestamp_ms = timestamp.map_or(form.now_ms, |timestamp| form.precision.millis(timestamp));
    let tags = line.tags.iter().map(|(key, value)| (&**key, &**value));
    let tags = chunk.tags(map, tags);
    for (field, value) in &line.fields {
        let value = match value {
            FieldValue::Number(number) => number.clone(),
            FieldValue::Text => {
                chunk.left_out += 1;
                continue;
            }
        };
        let metric: &[&str] = if field == VALUE {
            &[&line.measurement]
        } else {
            &[&line.measurement, separator, field]
        };
        let series = chunk.series(map, metric, tags.clone(), number);
        chunk.point(&series, timestamp_ms, value);
    }
}
