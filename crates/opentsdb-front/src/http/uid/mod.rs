//! `/api/uid/…`: assigns and renames UIDs, reads and edits metadata of UIDs and of series.
//!
//! Intended differences from OpenTSDB:
//! - An edit that meets another one is repeated on top of it; OpenTSDB fails with 500.
//! - A text that is `null` is stored as an empty one.
//! - `POST tsmeta?m=METRIC` without tags is an error of the client: a series has a tag.
//! - A `null` in a list of names, an unknown kind, and a UID or TSUID that is none are errors of the client (400), not
//!   of the server; so is a series of unknown names (404).
//!
//! Source: OpenTSDB 2.4, `UniqueIdRpc`.

pub(crate) mod assign;
mod body;
mod java_uid;
pub(crate) mod rename;
pub(crate) mod tsmeta;
mod tsmeta_error;
mod tsmeta_list;
mod tsmeta_reply;
pub(crate) mod uidmeta;

use std::time::{Duration, Instant};

use http::StatusCode;
use oxtsdb_schema::UidKind;
use oxtsdb_schema::name::NameError;

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;

pub(in crate::http) use tsmeta_reply::series_meta;

/// How long the UID service may take for a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Attempts of an edit while others edit the same document.
const ATTEMPTS: u32 = 16;

/// Everything else below `/api/uid`.
pub(crate) async fn other(_: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Err(HttpError::new(
        StatusCode::NOT_IMPLEMENTED,
        "Other UID endpoints have not been implemented yet",
    ))
}

fn deadline() -> Option<Instant> {
    Some(Instant::now() + TIMEOUT)
}

/// A parameter that must be there, with a value.
fn required<'p>(parameters: &'p Parameters, name: &str) -> Result<&'p str, HttpError> {
    parameters
        .get(name)
        .filter(|value| !value.is_empty())
        .ok_or_else(|| HttpError::bad_request(format!("Missing parameter <code>{name}</code>")))
}

/// An error of the caller, with a text that is both the message and the details.
fn illegal_argument(text: impl Into<String>) -> HttpError {
    let text = text.into();
    HttpError::bad_request(text.clone()).with_details(text)
}

/// A failure of the server.
fn internal(text: impl Into<String>) -> HttpError {
    HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, text)
}

/// Other programs kept changing what an edit is applied to.
fn not_saved(class: &str) -> HttpError {
    internal(format!("Failed to save the {class} to storage"))
        .with_details("This may be caused by another process modifying storage data")
}

/// The kind that assignments and renames name.
fn assigned_kind(word: &str) -> Option<UidKind> {
    match word {
        "metric" => Some(UidKind::Metric),
        "tagk" => Some(UidKind::Tagk),
        "tagv" => Some(UidKind::Tagv),
        _ => None,
    }
}

/// A name that cannot be assigned, in OpenTSDB's words.
fn invalid_name(kind: &str, name: &str, error: &NameError) -> String {
    match error {
        NameError::Empty => format!("Invalid {kind}: empty string"),
        NameError::IllegalCharacter { character, .. } | NameError::NotLatin1 { character, .. } => {
            format!("Invalid {kind} (\"{name}\"): illegal character: {character}")
        }
        NameError::TooLong { .. } => format!("Invalid {kind} (\"{name}\"): {error}"),
    }
}

#[cfg(test)]
mod tests;
