//! Accepted differences: faults of OpenTSDB that OxTSDB does not reproduce. At most ten of them, together with those
//! of [`super::expressions`].

use super::request::Request;
use super::response::{differ_in_an_hour, differ_in_no_points};
use crate::http::HttpResponse;

/// An accepted difference.
#[derive(Clone, Copy, Debug)]
pub struct KnownDifference {
    /// The behaviour of OpenTSDB, and why OxTSDB differs.
    pub reason: &'static str,
    /// Part of a request that shows it.
    pub example: &'static str,
    /// Whether it explains why two responses differ: the request, OpenTSDB's response, ours.
    pub(super) applies: fn(&Request, &HttpResponse, &HttpResponse) -> bool,
}

/// All accepted differences.
pub const KNOWN: [KnownDifference; 6] = [
    KnownDifference {
        reason: "Of several unknown or empty names OpenTSDB reports the one that is resolved first, OxTSDB the first in \
                 the request",
        example: r#""filters":[{"type":"literal_or","tagk":"nokey","filter":"nosuch"}]"#,
        applies: |_, theirs, ours| {
            let starts = ["No such name for ", "Missing UID name"];
            [theirs, ours]
                .into_iter()
                .all(|response| begins(response, 400, &starts))
        },
    },
    KnownDifference {
        reason: "The message about an invalid regular expression is that of Java's parser in OpenTSDB, of Rust's in OxTSDB",
        example: "m=sum:hours{host=regexp([)}",
        applies: |_, theirs, ours| {
            let starts = ["When parsing tag ", "When parsing filter "];
            begins(theirs, 500, &starts) && (begins(ours, 500, &starts) || begins(ours, 400, &starts))
        },
    },
    KnownDifference {
        reason: "With explicit tags both read an extra hour. For series that only begin in it OpenTSDB returns elements \
                 without metric, tags and points; with literal values of several keys it does so only for the lowest \
                 value of each key with all others",
        example: r#""explicitTags":true,"tags":{"dc":"lga|phx","host":"db-a|web01"}"#,
        applies: |request, theirs, ours| request.has_explicit_tags() && differ_in_no_points(theirs, ours),
    },
    KnownDifference {
        reason: "If the calendar window before the first filled one would begin at a midnight that the clocks skip, OpenTSDB \
                 shifts the timestamps of all windows by that hour, but not their contents",
        example: r#""start":1381057200,"timezone":"America/Santiago","downsample":"2wc-sum-null""#,
        applies: |request, theirs, ours| request.fills_calendars() && differ_in_an_hour(theirs, ours),
    },
    KnownDifference {
        reason: "OpenTSDB rejects a calendar window whose count is no 32-bit integer, and the unsupported fill policy \
                 `scalar`, only if a series or an empty window uses it; OxTSDB always rejects them",
        example: "m=sum:1.5dc-sum:nosuch",
        applies: |_, theirs, ours| {
            let message = ours.error_message().unwrap_or_default();
            let is_known = message == "unhandled fill policy" || message.starts_with("For input string: ");
            (theirs.status, ours.status) == (200, 400) && is_known
        },
    },
    KnownDifference {
        reason: "A body without queries is a server error in OpenTSDB (a null pointer) and a client error in OxTSDB",
        example: r#"{"start":1,"queries":null}"#,
        applies: |_, theirs, ours| {
            begins(theirs, 500, &["An internal null pointer"]) && begins(ours, 400, &["Missing quer"])
        },
    },
];

/// Whether a response is an error with this status and one of these beginnings of its message.
fn begins(response: &HttpResponse, status: u16, starts: &[&str]) -> bool {
    let message = response.error_message().unwrap_or_default();
    response.status == status && starts.iter().any(|start| message.starts_with(start))
}

/// The accepted difference that explains why two responses differ.
pub fn find(
    list: &'static [KnownDifference],
    request: &Request,
    theirs: &HttpResponse,
    ours: &HttpResponse,
) -> Option<&'static KnownDifference> {
    list.iter().find(|known| (known.applies)(request, theirs, ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, message: &str) -> HttpResponse {
        let body = serde_json::json!({"error": {"code": status, "message": message}});
        let body = if status == 200 {
            "[]".to_owned()
        } else {
            body.to_string()
        };
        HttpResponse { status, body }
    }

    #[test]
    fn accepts_only_the_listed_differences() {
        let request = Request {
            path: "/api/query?m=sum:explicit_tags:m".to_owned(),
            body: None,
        };
        let passes = |theirs: (u16, &str), ours: (u16, &str)| {
            find(
                &KNOWN,
                &request,
                &response(theirs.0, theirs.1),
                &response(ours.0, ours.1),
            )
            .is_some()
        };
        let unknown = |name: &str| format!("No such name for 'tagv': '{name}'");
        assert!(passes((400, &unknown("a")), (400, &unknown("b"))));
        assert!(passes((400, "Missing UID name"), (400, &unknown("b"))));
        assert!(passes((200, ""), (400, "unhandled fill policy")));
        assert!(!passes((400, "unhandled fill policy"), (200, "")));
        assert!(!passes((200, ""), (400, &unknown("a"))));
        assert!(!passes((400, &unknown("a")), (500, &unknown("b"))));
        let other = Request {
            path: "/api/query?m=sum:m".to_owned(),
            body: None,
        };
        assert!(passes((200, ""), (200, "")));
        assert!(find(&KNOWN, &other, &response(200, ""), &response(200, "")).is_none());
        assert!(KNOWN.len() <= 10);
    }
}
