//! Differences between answers to expressions that stay.

use crate::differential::known::Known;
use crate::http::Answer;

/// All of them.
pub const KNOWN: [Known; 5] = [
    Known {
        reason: "What is wrong with arithmetic OpenTSDB tells in the words of JEXL's parser, we in those of ours",
        example: r#""expr":"a + 1e2""#,
        applies: |_, theirs, ours| {
            let is_such = |answer: &Answer| answer.status == 500 && told(answer).contains("parsing error");
            is_such(theirs) && is_such(ours)
        },
    },
    Known {
        reason: "JEXL cannot compute with truths and whole numbers that are written; here truths are 1 and 0",
        example: r#""expr":"(a > b) * 0""#,
        applies: |_, theirs, ours| {
            let message = told(theirs);
            let is_of_jexl = message.contains("ExpressionIterator.<init>@") && message.ends_with(" error");
            (theirs.status, ours.status) == (400, 200) && is_of_jexl
        },
    },
    Known {
        reason: "OpenTSDB fails on its own objects where an operand, or all that the highest are sought among, has no points, \
                 and where an expression within another is NaN and has no fill policy; here the fill policy counts, \
                 NaN if there is none",
        example: r#""expr":"e + a" with e = "a / b""#,
        applies: |_, theirs, ours| {
            let message = told(theirs);
            let is_null = message.starts_with("Cannot invoke \"") && message.ends_with(" is null");
            (theirs.status, ours.status) == (400, 200) && is_null
        },
    },
    Known {
        reason: "What is wrong with a filter in the body OpenTSDB tells in the words of its JSON library, before all else",
        example: r#""tags":[{"type":"regexp","tagk":"dc","filter":""}]"#,
        applies: |_, theirs, ours| {
            (theirs.status, ours.status) == (500, 500) && told(theirs).starts_with("com.fasterxml.jackson.")
        },
    },
    Known {
        reason: "Series that have neither a name nor as many values as others are two errors; we tell the other one first",
        example: "exp=divide(alias(sum:a,x),sum:b)",
        applies: |_, theirs, ours| {
            let is_one = |answer: &Answer| {
                let message = told(answer);
                let is_nameless = message == "-1" || message.starts_with("Wrong id.length = 0 ");
                answer.status == 400 && (is_nameless || message == "No more elements")
            };
            is_one(theirs) && is_one(ours)
        },
    },
];

fn told(answer: &Answer) -> String {
    answer.error_message().unwrap_or_default()
}
