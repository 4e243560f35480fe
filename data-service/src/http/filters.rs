//! `/api/config/filters`: the filter types of queries, with examples.
//!
//! Source: OpenTSDB 2.4, `TagVFilter.loadedFilters`; the texts are our own.

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;
use oxtsdb_query::filter::FILTER_TYPES;

/// GET and POST.
pub(crate) async fn list(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Ok(Reply::json(body()))
}

fn body() -> Vec<u8> {
    let mut out = vec![b'{'];
    for (place, name) in FILTER_TYPES.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        json::write_string(&mut out, name);
        out.push(b':');
        let (example, description) = texts(name);
        json::write_map(&mut out, [("examples", example), ("description", description)]);
    }
    out.push(b'}');
    out
}

fn texts(name: &str) -> (&'static str, &'static str) {
    match name {
        "literal_or" => (
            "host=literal_or(web01|web02)",
            "One of the values, which must all be known.",
        ),
        "iliteral_or" => (
            "host=iliteral_or(WEB01|web02)",
            "One of the values, in upper or lower case.",
        ),
        "not_literal_or" => (
            "host=not_literal_or(web01)",
            "Any value but these. The tag must be there.",
        ),
        "not_iliteral_or" => (
            "host=not_iliteral_or(WEB01)",
            "Any value but these, in upper or lower case. The tag must be there.",
        ),
        "regexp" => (
            "host=regexp(^web0[1-3])",
            "Values that contain a match of the regular expression.",
        ),
        "wildcard" => (
            "host=wildcard(web*)",
            "Values that match the pattern; * stands for any text.",
        ),
        "iwildcard" => ("host=iwildcard(Web*)", "As wildcard, in upper or lower case."),
        _ => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_every_filter_type() {
        let all: serde_json::Value = serde_json::from_slice(&body()).unwrap();
        for name in FILTER_TYPES {
            let example = all[name]["examples"].as_str().unwrap();
            assert!(example.contains(&format!("={name}(")), "{name}: {example}");
            assert!(!all[name]["description"].as_str().unwrap().is_empty());
        }
    }
}
