//! Differences that stay: faults of OpenTSDB that nobody can want. Ten at most, with those of
//! [`super::expressions`].

use super::question::{Question, SubQuery};
use crate::http::Answer;

/// A difference that is let pass.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What OpenTSDB does, and why we do not.
    pub reason: &'static str,
    /// Part of a question that shows it.
    pub example: &'static str,
    /// Whether answers that differ do so because of it: the question, OpenTSDB's answer, ours.
    applies: fn(&Question, &Answer, &Answer) -> bool,
}

/// All of them.
pub const KNOWN: [Known; 5] = [
    Known {
        reason: "Of several unknown names OpenTSDB tells the one whose answer comes first, we the first in the question",
        example: r#""filters":[{"type":"literal_or","tagk":"nokey","filter":"nosuch"}]"#,
        applies: |_, theirs, ours| both_begin(theirs, ours, 400, &["No such name for "]),
    },
    Known {
        reason: "Of a null in an array OpenTSDB tells what Java could not do with it, and calls it its own fault or not, \
                 as it happens; we answer that the JSON cannot be read",
        example: r#""queries":[null]"#,
        applies: |question, theirs, ours| {
            let has_null = question.body.as_ref().is_some_and(|body| body.contains("[null]"));
            has_null && theirs.status >= 400 && ours.status == 400
        },
    },
    Known {
        reason: "What is wrong with a regular expression OpenTSDB tells in the words of Java's parser, we in those of ours",
        example: "m=sum:hours{host=regexp([)}",
        applies: |_, theirs, ours| {
            both_begin(theirs, ours, 500, &["When parsing tag ", "When parsing filter "])
        },
    },
    Known {
        reason: "With explicit tags OpenTSDB reads, of series whose tags are below those asked for, one hour more than \
                 without, so that a point behind the range can make an integer floating point or add an empty element",
        example: r#""explicitTags":true,"tags":{"host":"*"}"#,
        applies: |question, theirs, ours| {
            let is_explicit =
                |query: &SubQuery| query.explicit_tags && query.tsuids.is_empty() && query.has_filters();
            (theirs.status, ours.status) == (200, 200) && question.asked.sub_queries.iter().any(is_explicit)
        },
    },
    Known {
        reason: "Where rates drop steps down over filled windows of a calendar, one of 3000 answers begins a window \
                 earlier at OpenTSDB; why is not known yet",
        example: r#""downsample":"2wc-mimmin-nan","rate":true,"rateOptions":{"counter":true,"dropResets":true}"#,
        applies: |question, theirs, ours| {
            let is_such = |query: &SubQuery| {
                let downsample = query.downsample.as_deref().unwrap_or_default();
                let is_calendar = question.asked.use_calendar || downsample.contains("c-");
                let drops = query
                    .rate
                    .flatten()
                    .is_some_and(|rate| rate.drop_resets && rate.counter);
                is_calendar && drops && downsample.matches('-').count() == 2
            };
            (theirs.status, ours.status) == (200, 200) && question.asked.sub_queries.iter().any(is_such)
        },
    },
];

/// Whether both are errors with this status, whose messages begin alike.
fn both_begin(theirs: &Answer, ours: &Answer, status: u16, starts: &[&str]) -> bool {
    let begins = |answer: &Answer, start: &str| {
        let message = answer.error_message().unwrap_or_default();
        answer.status == status && message.starts_with(start)
    };
    starts
        .iter()
        .any(|start| begins(theirs, start) && begins(ours, start))
}

/// The one that explains why two answers differ.
pub fn of(question: &Question, theirs: &Answer, ours: &Answer) -> Option<&'static Known> {
    KNOWN.iter().find(|known| (known.applies)(question, theirs, ours))
}
