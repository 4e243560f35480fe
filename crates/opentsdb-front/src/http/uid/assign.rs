//! `/api/uid/assign`: assigns UIDs to names that have none.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use oxtsdb_schema::{Name, UidKind};
use serde::Deserialize;

use super::{assigned_kind, deadline, invalid_name};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json_body::parsed;
use crate::http::parameters::Parameters;
use crate::http::query::scalar::Text;
use crate::http::reply::Reply;
use crate::http::suggest::uids_error;

/// The kinds of a query string.
const KINDS: [&str; 3] = ["metric", "tagk", "tagv"];

/// Names by the word for their kind.
type Names = BTreeMap<String, Vec<String>>;

/// GET and POST.
pub(crate) async fn assign(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        method,
        mut body,
        ..
    } = request;
    let names = if *method == Method::GET {
        parse_parameters(parameters)
    } else if body.bytes.is_empty() {
        return Err(HttpError::missing_content());
    } else {
        parsed(&mut body, &parts.engine.resources().compute, parse_json).await?
    };
    if names.is_empty() {
        return Err(HttpError::bad_request("Missing values to assign UIDs"));
    }
    let mut results: BTreeMap<&str, Outcomes<'_>> = BTreeMap::new();
    let mut valid: Vec<(UidKind, &str)> = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    for (word, names) in &names {
        let outcomes = results.entry(word).or_default();
        for name in names {
            let rules = parts.uids.name_rules();
            match assigned_kind(word) {
                None => outcomes.fail(name, "Unknown type name".to_owned()),
                Some(kind) => match Name::parse(name, rules) {
                    Err(error) => outcomes.fail(name, invalid_name(word, name, &error)),
                    Ok(_) => {
                        valid.push((kind, name));
                        words.push(word);
                    }
                },
            }
        }
    }
    let assigned = parts.uids.assign_explicitly(&valid, deadline()).await;
    let assigned = assigned.map_err(|error| uids_error(&error))?;
    for ((word, (_, name)), assigned) in words.into_iter().zip(valid).zip(assigned) {
        let outcomes = results.entry(word).or_default();
        match assigned {
            Ok(assigned) if assigned.created => outcomes.assigned.push((name, assigned.uid.to_string())),
            Ok(assigned) => outcomes.fail(name, format!("Name already exists with UID: {}", assigned.uid)),
            Err(rejection) => outcomes.fail(name, rejection.message),
        }
    }
    let has_failed = results.values().any(|outcomes| !outcomes.failed.is_empty());
    let status = if has_failed {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    Ok(Reply::json_with(status, rendered(&results)))
}

/// The outcomes for the names of a kind.
#[derive(Debug, Default)]
struct Outcomes<'n> {
    /// Names with their UIDs.
    assigned: Vec<(&'n str, String)>,
    /// Names with the reasons.
    failed: Vec<(&'n str, String)>,
}

impl<'n> Outcomes<'n> {
    fn fail(&mut self, name: &'n str, reason: String) {
        self.failed.push((name, reason));
    }
}

fn rendered(results: &BTreeMap<&str, Outcomes<'_>>) -> Vec<u8> {
    let mut out = vec![b'{'];
    let mut write = |key: &str, pairs: &[(&str, String)]| {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_string(&mut out, key);
        out.push(b':');
        // The last outcome of a name, in the order of names.
        let sorted: BTreeMap<&str, &String> = pairs.iter().map(|(name, text)| (*name, text)).collect();
        json::write_map(&mut out, sorted);
    };
    for (word, Outcomes { assigned, failed }) in results {
        write(word, assigned);
        if !failed.is_empty() {
            write(&format!("{word}_errors"), failed);
        }
    }
    out.push(b'}');
    out
}

fn parse_parameters(parameters: &Parameters) -> Names {
    let given = KINDS.iter().filter_map(|kind| {
        let names = parameters.get(kind).filter(|names| !names.is_empty())?;
        Some(((*kind).to_owned(), split(names)))
    });
    given.collect()
}

/// The parts of a text between commas, without empty ones at the end, as Java's `String.split`.
fn split(text: &str) -> Vec<String> {
    let mut parts: Vec<String> = text.split(',').map(str::to_owned).collect();
    while parts.last().is_some_and(String::is_empty) {
        parts.pop();
    }
    parts
}

fn parse_json(content: &[u8]) -> Result<Names, HttpError> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Body(BTreeMap<String, Vec<Text>>);

    let unreadable = |error: serde_json::Error| HttpError::unreadable_json(error.to_string());
    let Body(names) = serde_json::from_slice(content).map_err(unreadable)?;
    let texts = |names: Vec<Text>| names.into_iter().map(|name| name.0).collect();
    Ok(names
        .into_iter()
        .map(|(kind, names)| (kind, texts(names)))
        .collect())
}
