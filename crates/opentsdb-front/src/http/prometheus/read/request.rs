//! The queries of a `ReadRequest`.
//!
//! ```text
//!   ReadRequest    1 queries: Query*, 2 accepted_response_types: SAMPLES 0, STREAMED_XOR_CHUNKS 1
//!   Query          1 start_timestamp_ms, 2 end_timestamp_ms: int64, 3 matchers: LabelMatcher*, 4 hints
//!   LabelMatcher   1 type: EQ 0, NEQ 1, RE 2, NRE 3; 2 name, 3 value: string
//! ```
//!
//! Hints are left out: they only say how the result is used.

use http::StatusCode;

use crate::http::error::HttpError;
use crate::http::protobuf::{FieldValue, Malformed, next, text, varints};

/// The most queries of a request; Prometheus sends one.
const MOST_QUERIES: usize = 16;

/// Accepted types of responses that are read.
const MOST_TYPES: usize = 16;

/// The most matchers of a query.
const MOST_MATCHERS: usize = 64;

/// The type of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseType {
    /// `SAMPLES`.
    Samples,
    /// `STREAMED_XOR_CHUNKS`.
    Chunks,
}

impl ResponseType {
    /// `None`: a type that is not known.
    const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Samples),
            1 => Some(Self::Chunks),
            _ => None,
        }
    }
}

/// A query.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReadQuery<'a> {
    /// Milliseconds since the epoch, both inside.
    pub(super) start_ms: i64,
    pub(super) end_ms: i64,
    pub(super) matchers: Vec<LabelMatcher<'a>>,
}

/// A condition of a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelMatcher<'a> {
    /// Whether the value is a regular expression.
    pub(super) is_pattern: bool,
    /// Whether the label must not match.
    pub(super) is_negated: bool,
    pub(super) name: &'a str,
    pub(super) value: &'a str,
}

/// Decodes a body: its queries, and the first known type that it accepts. A body without types accepts samples.
///
/// # Errors
///
/// If it is no `ReadRequest`, has too many parts, or accepts no known type.
pub(super) fn decode(body: &[u8]) -> Result<(Vec<ReadQuery<'_>>, ResponseType), HttpError> {
    let rejected = |error: Malformed| {
        let message = format!("request body is no ReadRequest of remote read: {error}");
        HttpError::new(StatusCode::BAD_REQUEST, message)
    };
    read(body).map_err(rejected)
}

fn read(mut body: &[u8]) -> Result<(Vec<ReadQuery<'_>>, ResponseType), Malformed> {
    let mut queries = Vec::new();
    let mut accepted = Vec::new();
    while let Some((number, value)) = next(&mut body)? {
        match (number, value) {
            (1, FieldValue::Bytes(message)) => {
                if queries.len() == MOST_QUERIES {
                    return Err(Malformed("more than 16 queries"));
                }
                queries.push(query(message)?);
            }
            (2, value) => varints(value, MOST_TYPES, &mut accepted, ResponseType::from_number)?,
            _ => {}
        }
    }
    let known = accepted.iter().find_map(|accepted| *accepted);
    let response_type = match known {
        Some(known) => known,
        None if accepted.is_empty() => ResponseType::Samples,
        None => {
            return Err(Malformed(
                "accepted_response_types has neither SAMPLES nor STREAMED_XOR_CHUNKS",
            ));
        }
    };
    Ok((queries, response_type))
}

fn query(mut message: &[u8]) -> Result<ReadQuery<'_>, Malformed> {
    let mut query = ReadQuery::default();
    while let Some((number, value)) = next(&mut message)? {
        match (number, value) {
            (1, FieldValue::Varint(ms)) => query.start_ms = ms.cast_signed(),
            (2, FieldValue::Varint(ms)) => query.end_ms = ms.cast_signed(),
            (3, FieldValue::Bytes(_)) if query.matchers.len() == MOST_MATCHERS => {
                return Err(Malformed("more than 64 matchers"));
            }
            (3, FieldValue::Bytes(matcher)) => query.matchers.push(label_matcher(matcher)?),
            _ => {}
        }
    }
    Ok(query)
}

fn label_matcher(mut message: &[u8]) -> Result<LabelMatcher<'_>, Malformed> {
    let mut matcher = LabelMatcher::default();
    while let Some((number, value)) = next(&mut message)? {
        match (number, value) {
            (1, FieldValue::Varint(kind)) => {
                (matcher.is_pattern, matcher.is_negated) = match kind {
                    0 => (false, false),
                    1 => (false, true),
                    2 => (true, false),
                    3 => (true, true),
                    _ => return Err(Malformed("a matcher has an unknown type")),
                };
            }
            (2, FieldValue::Bytes(name)) => matcher.name = text(name)?,
            (3, FieldValue::Bytes(value)) => matcher.value = text(value)?,
            _ => {}
        }
    }
    Ok(matcher)
}
