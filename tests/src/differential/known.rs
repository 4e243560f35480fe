//! Differences that stay: faults of OpenTSDB that nobody can want. Ten at most, with those of
//! [`super::expressions`].

use super::answer::{differ_in_an_hour, differ_in_no_points};
use super::question::Question;
use crate::http::Answer;

/// A difference that is let pass.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What OpenTSDB does, and why we do not.
    pub reason: &'static str,
    /// Part of a question that shows it.
    pub example: &'static str,
    /// Whether answers that differ do so because of it: the question, OpenTSDB's answer, ours.
    pub(super) applies: fn(&Question, &Answer, &Answer) -> bool,
}

/// All of them.
pub const KNOWN: [Known; 6] = [
    Known {
        reason: "Of several unknown or empty names OpenTSDB tells the one whose answer comes first, we the first in the \
                 question",
        example: r#""filters":[{"type":"literal_or","tagk":"nokey","filter":"nosuch"}]"#,
        applies: |_, theirs, ours| {
            let starts = ["No such name for ", "Missing UID name"];
            [theirs, ours]
                .into_iter()
                .all(|answer| begins(answer, 400, &starts))
        },
    },
    Known {
        reason: "What is wrong with a regular expression OpenTSDB tells in the words of Java's parser, we in those of ours",
        example: "m=sum:hours{host=regexp([)}",
        applies: |_, theirs, ours| {
            let starts = ["When parsing tag ", "When parsing filter "];
            [theirs, ours]
                .into_iter()
                .all(|answer| begins(answer, 500, &starts))
        },
    },
    Known {
        reason: "With explicit tags OpenTSDB reads an hour too many, which we do as well. Of series that only begin in it \
                 it makes elements without metric, tags and points, and of literal values of several keys it does so \
                 for the lowest of each key with all others only",
        example: r#""explicitTags":true,"tags":{"dc":"lga|phx","host":"db-a|web01"}"#,
        applies: |question, theirs, ours| question.has_explicit_tags() && differ_in_no_points(theirs, ours),
    },
    Known {
        reason: "Where the window in front of the first filled one of a calendar would begin at a midnight that clocks skip, \
                 OpenTSDB tells all of them as much later, though not what is in them",
        example: r#""start":1381057200,"timezone":"America/Santiago","downsample":"2wc-sum-null""#,
        applies: |question, theirs, ours| question.fills_calendars() && differ_in_an_hour(theirs, ours),
    },
    Known {
        reason: "A calendar window of a number of units that is no integer of 32 bits, and the fill policy `scalar`, which \
                 is none, OpenTSDB notices when a series or an empty window comes to it, we in any case",
        example: "m=sum:1.5dc-sum:nosuch",
        applies: |_, theirs, ours| {
            let message = ours.error_message().unwrap_or_default();
            let is_such = message == "unhandled fill policy" || message.starts_with("For input string: ");
            (theirs.status, ours.status) == (200, 400) && is_such
        },
    },
    Known {
        reason: "A body without queries is an error of the server there (a null pointer), and one of the client here",
        example: r#"{"start":1,"queries":null}"#,
        applies: |_, theirs, ours| {
            begins(theirs, 500, &["An internal null pointer"]) && begins(ours, 400, &["Missing quer"])
        },
    },
];

/// Whether it is an error with this status, whose message begins so.
fn begins(answer: &Answer, status: u16, starts: &[&str]) -> bool {
    let message = answer.error_message().unwrap_or_default();
    answer.status == status && starts.iter().any(|start| message.starts_with(start))
}

/// The one of a list that explains why two answers differ.
pub fn of(
    list: &'static [Known],
    question: &Question,
    theirs: &Answer,
    ours: &Answer,
) -> Option<&'static Known> {
    list.iter().find(|known| (known.applies)(question, theirs, ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, message: &str) -> Answer {
        let body = serde_json::json!({"error": {"code": status, "message": message}});
        let body = if status == 200 {
            "[]".to_owned()
        } else {
            body.to_string()
        };
        Answer { status, body }
    }

    #[test]
    fn little_passes() {
        let question = Question {
            path: "/api/query?m=sum:explicit_tags:m".to_owned(),
            body: None,
        };
        let passes = |theirs: (u16, &str), ours: (u16, &str)| {
            of(
                &KNOWN,
                &question,
                &answer(theirs.0, theirs.1),
                &answer(ours.0, ours.1),
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
        let other = Question {
            path: "/api/query?m=sum:m".to_owned(),
            body: None,
        };
        assert!(passes((200, ""), (200, "")));
        assert!(of(&KNOWN, &other, &answer(200, ""), &answer(200, "")).is_none());
        assert!(KNOWN.len() <= 10);
    }
}
