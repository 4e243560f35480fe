//! Accepted differences between responses to expressions.

use crate::differential::expressions::response::differ_in_nameless_series;
use crate::differential::known::KnownDifference;
use crate::differential::response::is_same_status;
use crate::http::HttpResponse;

/// All accepted differences.
pub const KNOWN: [KnownDifference; 6] = [
    KnownDifference {
        reason: "The message about invalid arithmetic is that of JEXL's parser in OpenTSDB, of our parser in OxTSDB",
        example: r#""expr":"a + 1e2""#,
        applies: |_, theirs, ours| {
            let is_syntax_error = |response: &HttpResponse| message_of(response).contains("parsing error");
            is_same_error(theirs, ours) && is_syntax_error(theirs) && is_syntax_error(ours)
        },
    },
    KnownDifference {
        reason: "Both reject a boolean with an integer; JEXL's message begins with a line of OpenTSDB's source",
        example: r#""expr":"(a > b) * 0""#,
        applies: |_, theirs, ours| {
            let (their_message, our_message) = (message_of(theirs), message_of(ours));
            let their_error = their_message.rsplit_once("' ").map(|(_, error)| error);
            let our_error = our_message.rsplit_once(": ").map(|(_, error)| error);
            (theirs.status, ours.status) == (400, 400)
                && their_message.contains("ExpressionIterator.<init>@")
                && their_error.is_some_and(|error| error.ends_with(" error"))
                && their_error == our_error
        },
    },
    KnownDifference {
        reason: "OpenTSDB fails on its own objects if an operand, or every argument of a `highest` function, has no points, \
                 and if a nested expression is NaN without a fill policy; OxTSDB applies the fill policy, NaN by \
                 default, and reports another error of the expression if it has one",
        example: r#""expr":"e + a" with e = "a / b""#,
        applies: |_, theirs, ours| {
            let message = message_of(theirs);
            let starts = ["Cannot invoke \"", "Cannot read field \""];
            let is_null =
                starts.iter().any(|start| message.starts_with(start)) && message.ends_with(" is null");
            theirs.status == 400 && is_null && [200, 400].contains(&ours.status)
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
        reason: "Series without a name, with a different number of values and with a value beyond the range of a double are \
                 errors; of several OxTSDB reports another one first",
        example: "exp=divide(alias(sum:a,x),sum:b)",
        applies: |_, theirs, ours| {
            let is_one = |response: &HttpResponse| {
                let message = message_of(response);
                let is_nameless = message == "-1" || message.starts_with("Wrong id.length = 0 ");
                let is_uneven =
                    message == "No more elements" || message.contains(" out of bounds for length ");
                // OpenTSDB shows its objects after these words.
                let is_beyond = message.starts_with("Got Infinity: ");
                response.status == 400 && (is_nameless || is_uneven || is_beyond)
            };
            is_one(theirs) && is_one(ours)
        },
    },
    KnownDifference {
        reason: "With explicit tags both read an extra hour. For series that only begin in it OpenTSDB returns columns without \
                 tags and values",
        example: r#""filters":[{"id":"f","tags":[{"type":"wildcard","tagk":"host","filter":"*","groupBy":true}],"explicitTags":true}]"#,
        applies: |request, theirs, ours| {
            request.has_explicit_tags() && differ_in_nameless_series(theirs, ours)
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
