//! `/api/config/filters`: the filter types of queries, with examples.
//!
//! Source: OpenTSDB 2.4, `TagVFilter.loadedFilters`; the texts are our own.

use oxtsdb_query::FilterType;

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;

/// GET and POST.
pub(crate) async fn list(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Ok(Reply::json(body()))
}

fn body() -> Vec<u8> {
    let mut out = vec![b'{'];
    for (place, filter_type) in FilterType::all().iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        let name = filter_type.name();
        json::write_string(&mut out, name);
        out.push(b':');
        let example = format!("host={name}({})", filter_type.example());
        let description = filter_type.description();
        json::write_map(
            &mut out,
            [("examples", example.as_str()), ("description", description)],
        );
    }
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_every_filter_type() {
        let all: serde_json::Value = serde_json::from_slice(&body()).unwrap();
        assert_eq!(all.as_object().unwrap().len(), FilterType::all().len());
        for name in FilterType::all().iter().map(FilterType::name) {
            let example = all[name]["examples"].as_str().unwrap();
            assert!(example.contains(&format!("={name}(")), "{name}: {example}");
            assert!(!all[name]["description"].as_str().unwrap().is_empty());
        }
    }
}
