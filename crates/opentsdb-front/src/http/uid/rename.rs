//! `/api/uid/rename`: gives a UID another name.

use std::collections::BTreeMap;

use http::{Method, StatusCode};
use oxtsdb_metadata::uids::Uids;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_schema::data_table::UID_TABLE;
use oxtsdb_schema::{Name, Uid, UidKind};
use serde::Deserialize;

use super::{assigned_kind, deadline, invalid_name, java_uid};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json_body::parsed;
use crate::http::parameters::Parameters;
use crate::http::query::scalar::Text;
use crate::http::reply::Reply;
use crate::http::suggest::uids_error;

/// The kinds that a request names; of several the last one here counts.
const KINDS: [&str; 3] = ["metric", "tagk", "tagv"];

/// A requested rename.
#[derive(Debug, PartialEq, Eq)]
struct Rename {
    /// The word for the kind.
    word: String,
    from: String,
    to: String,
}

/// All methods.
pub(crate) async fn rename(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        method,
        mut body,
        ..
    } = request;
    let rename = match *method {
        Method::GET => parse_parameters(parameters),
        Method::POST if body.bytes.is_empty() => return Err(HttpError::missing_content()),
        Method::POST => parsed(&mut body, &parts.engine.resources().compute, parse_json).await?,
        _ => {
            // OpenTSDB's text, which has no blank here.
            let details = format!("The HTTP method[{method}] is not permitted for this endpoint");
            return Err(
                HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed").with_details(details),
            );
        }
    };
    let missing = || HttpError::bad_request("Missing necessary values to rename UID");
    let rename = rename.ok_or_else(missing)?;
    let error = match assigned_kind(&rename.word) {
        None => Some("Unknown type name".to_owned()),
        Some(kind) => execute(&parts.uids, kind, &rename).await?,
    };
    Ok(match error {
        None => Reply::json(b"{\"result\":\"true\"}".to_vec()),
        Some(error) => {
            let mut out = b"{\"result\":\"false\",\"error\":".to_vec();
            json::write_string(&mut out, &error);
            out.push(b'}');
            Reply::json_with(StatusCode::BAD_REQUEST, out)
        }
    })
}

/// Renames; returns OpenTSDB's reason if that is not possible.
async fn execute(uids: &Uids, kind: UidKind, rename: &Rename) -> Result<Option<String>, HttpError> {
    let Rename { word, from, to } = rename;
    if let Err(error) = Name::parse(to, uids.name_rules()) {
        return Ok(Some(invalid_name(word, to, &error)));
    }
    let unknown = || format!("Name(\"{from}\") does not exist");
    let taken = |uid: Uid| {
        format!(
            "When trying rename(\"{from}\", \"{to}\") on UniqueId({UID_TABLE}, {kind}, {}): new name already \
             assigned ID={}",
            uids.widths().get(kind),
            java_uid::array(uid)
        )
    };
    if from == to {
        let uid = uids.uid(kind, from, deadline()).await;
        let uid = uid.map_err(|error| uids_error(&error))?;
        return Ok(Some(uid.map_or_else(unknown, taken)));
    }
    let renamed = uids.rename(kind, from, to, deadline()).await;
    let Err(rejection) = renamed.map_err(|error| uids_error(&error))? else {
        return Ok(None);
    };
    let other = rejection.metadata.get("uid").and_then(|uid| Uid::parse(uid).ok());
    Ok(Some(match (rejection.reason, other) {
        (Some(ErrorReason::NameNotFound), _) => unknown(),
        (Some(ErrorReason::NameTaken), Some(uid)) => taken(uid),
        _ => rejection.message,
    }))
}

fn parse_parameters(parameters: &Parameters) -> Option<Rename> {
    let given = |name| parameters.get(name).filter(|value: &&str| !value.is_empty());
    let word = KINDS.iter().rfind(|kind| given(kind).is_some())?;
    Some(Rename {
        word: (*word).to_owned(),
        from: given(word)?.to_owned(),
        to: given("name")?.to_owned(),
    })
}

fn parse_json(content: &[u8]) -> Result<Option<Rename>, HttpError> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Body(BTreeMap<String, Option<Text>>);

    let unreadable = |error: serde_json::Error| HttpError::unreadable_json(error.to_string());
    let Body(mut fields) = serde_json::from_slice(content).map_err(unreadable)?;
    let to = fields.remove("name").flatten();
    let known = KINDS.iter().rfind(|kind| fields.contains_key(**kind));
    let word = known
        .map(|kind| (*kind).to_owned())
        .or_else(|| fields.keys().next().cloned());
    let given = |text: Option<Text>| text.map(|text| text.0).filter(|text| !text.is_empty());
    Ok(word.and_then(|word| {
        let from = given(fields.remove(&word).flatten())?;
        Some(Rename {
            word,
            from,
            to: given(to)?,
        })
    }))
}
