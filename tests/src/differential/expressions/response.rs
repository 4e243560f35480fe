//! Compares two responses to expressions.
//!
//! Responses of `/api/query/gexp` are compared as for `/api/query`; see [`crate::differential::response`].
//! Responses of `/api/query/exp` must be equal: every number to the last bit, and its type.

use serde_json::{Value, json};

use crate::differential::request::Request;
use crate::differential::response;
use crate::http::HttpResponse;

/// Characters of a message that are compared; after them OpenTSDB shows its objects.
const MESSAGE: usize = 40;

/// The first difference between OpenTSDB's response and ours.
pub fn difference(request: &Request, theirs: &HttpResponse, ours: &HttpResponse) -> Option<String> {
    if !response::is_same_status(theirs, ours) {
        let message = |response: &HttpResponse| response.error_message().unwrap_or_default();
        let (their_message, our_message) = (message(theirs), message(ours));
        return Some(format!(
            "status {} ({their_message}) and {} ({our_message})",
            theirs.status, ours.status
        ));
    }
    if theirs.status != 200 {
        let message = |response: &HttpResponse| {
            response
                .error_message()
                .unwrap_or_else(|error| format!("{error:#}"))
        };
        let opening = |text: &str| text.chars().take(MESSAGE).collect::<String>();
        let (theirs, ours) = (message(theirs), message(ours));
        return (opening(&theirs) != opening(&ours)).then(|| format!("message `{theirs}` and `{ours}`"));
    }
    if request.body.is_none() {
        return response::difference(theirs, ours);
    }
    let read = |response: &HttpResponse| response.json().map_err(|error| format!("{error:#}"));
    match (read(theirs), read(ours)) {
        (Ok(theirs), Ok(ours)) => value_difference("", &theirs, &ours),
        (Err(error), _) | (_, Err(error)) => Some(error),
    }
}

/// Whether two responses of `/api/query/exp` differ only in columns without tags, which OpenTSDB returns in addition.
pub(super) fn differ_in_nameless_series(theirs: &HttpResponse, ours: &HttpResponse) -> bool {
    let (Ok(mut theirs), Ok(ours)) = (theirs.json(), ours.json()) else {
        return false;
    };
    let outputs = theirs["outputs"].as_array_mut().into_iter().flatten();
    outputs.for_each(remove_nameless_columns);
    value_difference("", &theirs, &ours).is_none()
}

/// Removes the columns without tags from an output. The column of timestamps has no member for tags, and stays.
fn remove_nameless_columns(output: &mut Value) {
    let Some(meta) = output["meta"].as_array_mut() else {
        return;
    };
    let has_tags =
        |column: &Value| column["commonTags"] != json!({}) || column["aggregatedTags"] != json!([]);
    let has_tags: Vec<bool> = meta.iter().map(has_tags).collect();
    if !has_tags.contains(&false) {
        return;
    }
    let remove = |columns: &mut Vec<Value>| {
        let mut has_tags = has_tags.iter();
        columns.retain(|_| has_tags.next() != Some(&false));
    };
    remove(meta);
    for (index, column) in meta.iter_mut().enumerate() {
        column["index"] = index.into();
    }
    let series = meta.len().saturating_sub(1);
    output["dpsMeta"]["series"] = series.into();
    let rows = output["dps"].as_array_mut().into_iter().flatten();
    rows.filter_map(Value::as_array_mut).for_each(remove);
}

/// The first difference between two JSON values, with its path.
fn value_difference(place: &str, theirs: &Value, ours: &Value) -> Option<String> {
    let differ = || Some(format!("{place}: {theirs} and {ours}"));
    match (theirs, ours) {
        (Value::Array(their_items), Value::Array(our_items)) => {
            let mut pairs = their_items.iter().zip(our_items).enumerate();
            let inner = pairs.find_map(|(index, (theirs, ours))| {
                value_difference(&format!("{place}[{index}]"), theirs, ours)
            });
            let counts = (their_items.len(), our_items.len());
            inner.or_else(|| (counts.0 != counts.1).then(|| format!("{place}: {counts:?} items")))
        }
        (Value::Object(their_fields), Value::Object(our_fields)) => {
            let differs = |(name, theirs): (&String, &Value)| match our_fields.get(name) {
                Some(ours) => value_difference(&format!("{place}.{name}"), theirs, ours),
                None => Some(format!("{place}.{name}: {theirs} and nothing")),
            };
            let more = || our_fields.keys().find(|name| !their_fields.contains_key(*name));
            let inner = their_fields.iter().find_map(differs);
            inner.or_else(|| more().map(|name| format!("{place}.{name}: only ours")))
        }
        (Value::Number(their_number), Value::Number(our_number)) => {
            let bits = |number: &serde_json::Number| number.as_f64().map(f64::to_bits);
            let same = their_number.is_f64() == our_number.is_f64() && bits(their_number) == bits(our_number);
            if same { None } else { differ() }
        }
        _ if theirs == ours => None,
        _ => differ(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_columns_without_tags() {
        let meta =
            |index: u32, tags: Value| json!({"index": index, "commonTags": tags, "aggregatedTags": []});
        let output = |rows: Value, series: u32, meta: Vec<Value>| HttpResponse {
            status: 200,
            body: json!({"outputs": [{"dps": rows, "dpsMeta": {"series": series}, "meta": meta}]})
                .to_string(),
        };
        let times = json!({"index": 0, "metrics": ["timestamp"]});
        let theirs = output(
            json!([[1, 0.0, 2.0]]),
            2,
            vec![times.clone(), meta(1, json!({})), meta(2, json!({"host": "a"}))],
        );
        let ours = |value: f64| {
            output(
                json!([[1, value]]),
                1,
                vec![times.clone(), meta(1, json!({"host": "a"}))],
            )
        };
        assert!(differ_in_nameless_series(&theirs, &ours(2.0)));
        assert!(!differ_in_nameless_series(&theirs, &ours(3.0)));
        assert!(!differ_in_nameless_series(&ours(2.0), &theirs));
    }

    #[test]
    fn compares_numbers_to_the_last_bit() {
        let one = json!({"outputs": [{"dps": [[1, 2.0, "NaN", -0.0]]}]});
        assert_eq!(value_difference("", &one, &one), None);
        for other in [
            json!({"outputs": [{"dps": [[1, 2, "NaN", -0.0]]}]}),
            json!({"outputs": [{"dps": [[1, 2.000_000_000_000_000_4, "NaN", -0.0]]}]}),
            json!({"outputs": [{"dps": [[1, 2.0, "NaN", 0.0]]}]}),
            json!({"outputs": [{"dps": [[1, 2.0, "NaN"]]}]}),
            json!({"outputs": [{"dps": [[1, 2.0, "NaN", -0.0]], "alias": "x"}]}),
            json!({"outputs": []}),
        ] {
            assert!(value_difference("", &one, &other).is_some(), "{other}");
            assert!(value_difference("", &other, &one).is_some(), "{other}");
        }
    }
}
