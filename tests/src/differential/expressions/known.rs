//! Accepted differences between responses to expressions.

use crate::differential::known::KnownDifference;
use crate::differential::response::is_same_status;
use crate::http::HttpResponse;

/// All accepted differences.
pub const KNOWN: [KnownDifference; 5] = [
    KnownDifference {
        reason: "The message about invalid arithmetic is that of JEXL's parser in OpenTSDB, of our parser in OxTSDB",
        example: r#""expr":"a + 1e2""#,
        applies: |_, theirs, ours| {
            let is_syntax_error = |response: &HttpResponse| message_of(response).contains("parsing error");
            is_same_error(theirs, ours) && is_syntax_error(theirs) && is_syntax_error(ours)
        },
    },
    KnownDifference {
        reason: "JEXL cannot combine booleans with integer literals; in OxTSDB booleans are 1 and 0",
        example: r#""expr":"(a > b) * 0""#,
        applies: |_, theirs, ours| {
            let message = message_of(theirs);
            let is_of_jexl = message.contains("ExpressionIterator.<init>@") && message.ends_with(" error");
            (theirs.status, ours.status) == (400, 200) && is_of_jexl
        },
    },
    KnownDifference {
        reason: "OpenTSDB fails on its own objects if an operand, or every argument of a `highest` function, has no points, \
                 and if a nested expression is NaN without a fill policy; OxTSDB applies the fill policy, NaN by \
                 default, and reports other operands with a different number of values",
        example: r#""expr":"e + a" with e = "a / b""#,
        applies: |_, theirs, ours| {
            let message = message_of(theirs);
            let is_null = message.starts_with("Cannot invoke \"") && message.ends_with(" is null");
            let goes_on =
                ours.status == 200 || (ours.status == 400 && message_of(ours) == "No more elements");
            theirs.status == 400 && is_null && goes_on
        },
    },
    KnownDifference {
        reason: "OpenTSDB reports an invalid filter in the body with the message of its JSON library, before any other error",
        example: r#""tags":[{"type":"regexp","tagk":"dc","filter":""}]"#,
        applies: |_, theirs, ours| {
            is_same_error(theirs, ours) && message_of(theirs).starts_with("com.fasterxml.jackson.")
        },
    },
    KnownDifference {
        reason: "Series without a name and with a different number of values are two errors; OxTSDB reports the other one first",
        example: "exp=divide(alias(sum:a,x),sum:b)",
        applies: |_, theirs, ours| {
            let is_one = |response: &HttpResponse| {
                let message = message_of(response);
                let is_nameless = message == "-1" || message.starts_with("Wrong id.length = 0 ");
                response.status == 400 && (is_nameless || message == "No more elements")
            };
            is_one(theirs) && is_one(ours)
        },
    },
];

/// Whether OpenTSDB answers with a server error, and OxTSDB too or with the client error that it is.
fn is_same_error(theirs: &HttpResponse, ours: &HttpResponse) -> bool {
    theirs.status == 500 && is_same_status(theirs, ours)
}

fn message_of(response: &HttpResponse) -> String {
    response.error_message().unwrap_or_default()
}
