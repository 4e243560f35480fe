//! `/api/suggest`: names that begin with a text.
//!
//! Source: OpenTSDB 2.4, `SuggestRpc`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use oxtsdb_schema::UidKind;

use crate::http::error::HttpError;
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;
use crate::uids::{Uids, UidsError};

/// Names in an answer if the client does not say how many.
const DEFAULT_MAX: usize = 25;

/// Names in an answer at most, so that it stays small enough for memory.
const MOST: usize = 100_000;

/// How long the UID service may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What to suggest.
#[derive(Debug, PartialEq, Eq)]
struct Question {
    kind: UidKind,
    prefix: String,
    max: usize,
}

/// GET.
pub(crate) async fn get(uids: &Uids, parameters: &Parameters) -> Result<Reply, HttpError> {
    let kind = parameters
        .get("type")
        .filter(|kind| !kind.is_empty())
        .ok_or_else(|| HttpError::bad_request("Missing parameter <code>type</code>"))?;
    answer(uids, question(kind, parameters.get("q"), parameters.get("max"))?).await
}

/// POST: the same as a JSON object of scalars.
pub(crate) async fn post(uids: &Uids, content: &[u8]) -> Result<Reply, HttpError> {
    let fields: BTreeMap<Cow<'_, str>, serde_json::Value> =
        serde_json::from_slice(content).map_err(|error| HttpError::unreadable_json(error.to_string()))?;
    let field = |name: &str| match fields.get(name) {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    let kind = field("type")
        .filter(|kind| !kind.is_empty())
        .ok_or_else(|| HttpError::bad_request("Missing 'type' parameter"))?;
    answer(
        uids,
        question(&kind, field("q").as_deref(), field("max").as_deref())?,
    )
    .await
}

fn question(kind: &str, prefix: Option<&str>, max: Option<&str>) -> Result<Question, HttpError> {
    let max = match max.filter(|max| !max.is_empty()) {
        None => DEFAULT_MAX,
        Some(text) => {
            let max: i32 = text
                .parse()
                .map_err(|_| HttpError::bad_request("Unable to parse 'max' as a number"))?;
            usize::try_from(max)
                .ok()
                .filter(|max| *max > 0)
                .unwrap_or(DEFAULT_MAX)
                .min(MOST)
        }
    };
    let kind = match kind {
        "metrics" => UidKind::Metric,
        "tagk" => UidKind::Tagk,
        "tagv" => UidKind::Tagv,
        other => {
            return Err(HttpError::bad_request(format!(
                "Invalid 'type' parameter:{other}"
            )));
        }
    };
    Ok(Question {
        kind,
        prefix: prefix.unwrap_or_default().to_owned(),
        max,
    })
}

async fn answer(uids: &Uids, question: Question) -> Result<Reply, HttpError> {
    let Question { kind, prefix, max } = question;
    let deadline = Some(Instant::now() + TIMEOUT);
    let names = uids
        .suggest(kind, &prefix, max, deadline)
        .await
        .map_err(|error| uids_error(&error))?;
    let mut out = Vec::new();
    json::write_strings(&mut out, names);
    Ok(Reply::json(out))
}

/// A question that the UID service did not answer.
pub(crate) fn uids_error(error: &UidsError) -> HttpError {
    let status = match error {
        UidsError::Unavailable { .. } | UidsError::Busy { .. } => http::StatusCode::SERVICE_UNAVAILABLE,
        UidsError::DeadlineExceeded => http::StatusCode::GATEWAY_TIMEOUT,
        UidsError::Refused { .. } | UidsError::Layout { .. } | UidsError::BadAnswer { .. } => {
            http::StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    HttpError::new(status, error.to_string()).with_causes(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_checked_in_opentsdbs_words() {
        let told = |kind: &str, max| question(kind, None, max).unwrap_err().message;
        assert_eq!(told("bogus", None), "Invalid 'type' parameter:bogus");
        assert_eq!(told("metrics", Some("x")), "Unable to parse 'max' as a number");
        for (max, expected) in [(None, 25), (Some("0"), 25), (Some("-3"), 25), (Some("7"), 7)] {
            let asked = question("tagk", Some("h"), max).unwrap();
            assert_eq!(
                asked,
                Question {
                    kind: UidKind::Tagk,
                    prefix: "h".into(),
                    max: expected
                }
            );
        }
    }
}
