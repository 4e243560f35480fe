//! `/api/uid/tsmeta`: metadata of series.

use http::{Method, StatusCode};
use oxtsdb_metadata::meta::{MetaError, SeriesMeta, names};
use oxtsdb_query::language::parse_series;
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::document::CustomFields;
use oxtsdb_schema::ts_meta::TsMeta;
use serde::Deserialize;

use super::body::{self, TextField, merged_created, merged_custom, merged_text};
use super::tsmeta_error::{failed, series_error};
use super::tsmeta_reply::reply;
use super::{deadline, illegal_argument, java_uid, required, tsmeta_list};
use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;

/// A body or a query string. Unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Edit {
    #[serde(default)]
    tsuid: TextField,
    #[serde(default)]
    display_name: TextField,
    #[serde(default)]
    description: TextField,
    #[serde(default)]
    notes: TextField,
    #[serde(default, deserialize_with = "body::optional_integer")]
    created: Option<i64>,
    #[serde(default)]
    custom: Option<CustomFields>,
    #[serde(default)]
    units: TextField,
    #[serde(default)]
    data_type: TextField,
    #[serde(default, deserialize_with = "body::optional_integer")]
    retention: Option<i32>,
    /// Each value is a change: none is equal to NaN.
    #[serde(default, deserialize_with = "body::optional_double")]
    max: Option<f64>,
    #[serde(default, deserialize_with = "body::optional_double")]
    min: Option<f64>,
}

impl Edit {
    fn from_parameters(parameters: &Parameters) -> Result<Self, HttpError> {
        let text = |name| TextField::from_parameter(parameters.get(name));
        let unparsable = |name| HttpError::bad_request(format!("Unable to parse '{name}' value"));
        let given = |name| parameters.get(name).filter(|value| !value.is_empty());
        let double = |name| {
            let value = given(name).map(str::parse::<f64>).transpose();
            value.map_err(|_| unparsable(name))
        };
        let retention = given("retention").map(str::parse::<i32>).transpose();
        Ok(Self {
            tsuid: text("tsuid"),
            display_name: text("display_name"),
            description: text("description"),
            notes: text("notes"),
            created: None,
            custom: None,
            units: text("units"),
            data_type: text("data_type"),
            retention: retention.map_err(|_| unparsable("retention"))?,
            max: double("max")?,
            min: double("min")?,
        })
    }

    fn changes(&self) -> bool {
        let texts = [
            &self.display_name,
            &self.description,
            &self.notes,
            &self.units,
            &self.data_type,
        ];
        texts.iter().any(|text| text.change().is_some())
            || self.created.is_some_and(|created| created != 0)
            || self.retention.is_some_and(|days| days != 0)
            || self.custom.is_some()
            || self.max.is_some()
            || self.min.is_some()
    }

    fn apply(&self, document: &mut TsMeta, replaces: bool) {
        merged_text(&mut document.display_name, &self.display_name, replaces);
        merged_text(&mut document.description, &self.description, replaces);
        merged_text(&mut document.notes, &self.notes, replaces);
        merged_text(&mut document.units, &self.units, replaces);
        merged_text(&mut document.data_type, &self.data_type, replaces);
        merged_custom(&mut document.custom, self.custom.as_ref(), replaces);
        let created = self.created.unwrap_or_default();
        document.created_seconds = merged_created(document.created_seconds, created);
        match self.retention.filter(|days| *days != 0) {
            Some(days) => document.retention_days = days,
            None if replaces => document.retention_days = 0,
            None => {}
        }
        for (stored, new) in [(&mut document.max, self.max), (&mut document.min, self.min)] {
            match new {
                Some(value) => *stored = value,
                None if replaces => *stored = f64::NAN,
                None => {}
            }
        }
    }
}

/// GET: by `tsuid`, or all series that `m` selects.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        ..
    } = request;
    let Some(text) = parameters.get("tsuid") else {
        let (metric, tags) = series(parameters)?;
        return tsmeta_list::list(parts, context, &metric, &tags).await;
    };
    let bytes = java_uid::bytes(text).map_err(illegal_argument)?;
    let not_found = || HttpError::new(StatusCode::NOT_FOUND, "Could not find Timeseries meta data");
    let tsuid = Tsuid::from_bytes(&bytes, parts.uids.widths()).map_err(|_| not_found())?;
    let meta = parts.writer.meta_table().series(&tsuid).await;
    let meta = meta.map_err(|error| failed(&error))?;
    if meta.document.is_none() {
        return Err(not_found());
    }
    reply(parts, &tsuid, &meta).await
}

/// POST and PUT: by `tsuid`, or the series that `m` names.
pub(crate) async fn edit(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let (parts, parameters) = (request.parts, request.parameters);
    let replaces = *request.method == Method::PUT;
    let edit = body::edit_of(request, Edit::from_parameters, body::read).await?;
    let table = parts.writer.meta_table();
    let change = |document: &mut TsMeta| edit.apply(document, replaces);
    if !edit.tsuid.text().is_empty() {
        if !edit.changes() {
            return Ok(Reply::not_modified());
        }
        let tsuid = resolved(parts, edit.tsuid.text()).await?;
        return match table.update(&tsuid, None, false, change).await {
            Ok(meta) => reply(parts, &tsuid, &meta).await,
            Err(MetaError::NotFound { .. }) => Err(illegal_argument("Requested TSMeta did not exist")),
            Err(error) => Err(failed(&error)),
        };
    }
    let (metric, tags) = series(parameters)?;
    let tags: Vec<(&str, &str)> = tags
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let tsuid = names::to_tsuid(&parts.uids, &metric, &tags, deadline()).await;
    let tsuid = tsuid.map_err(|error| series_error(&error))?;
    let creates = parameters.get("create") == Some("true");
    let stored = table.series(&tsuid).await.map_err(|error| failed(&error))?;
    match &stored.document {
        None if !creates => {
            return Err(HttpError::bad_request(
                "Could not find TSMeta, specify \"create=true\" to create a new one.",
            ));
        }
        Some(_) if !edit.changes() => return Ok(Reply::not_modified()),
        None | Some(_) => {}
    }
    let updated: Result<SeriesMeta, MetaError> = table.update(&tsuid, None, creates, change).await;
    let meta = updated.map_err(|error| failed(&error))?;
    reply(parts, &tsuid, &meta).await
}

/// DELETE: by `tsuid`. Deleting an absent document succeeds.
pub(crate) async fn delete(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let parts = request.parts;
    let edit = body::edit_of(request, Edit::from_parameters, body::read).await?;
    let rejected =
        |details: String| HttpError::bad_request("Unable to delete TSMeta information").with_details(details);
    if edit.tsuid.text().is_empty() {
        return Err(rejected("Missing UID".to_owned()));
    }
    let bytes = java_uid::bytes(edit.tsuid.text()).map_err(rejected)?;
    if let Ok(tsuid) = Tsuid::from_bytes(&bytes, parts.uids.widths()) {
        let deleted = parts.writer.meta_table().delete(&tsuid, None).await;
        deleted.map_err(|error| failed(&error))?;
    }
    Ok(Reply::empty())
}

/// The metric and the tags of `m`.
fn series(parameters: &Parameters) -> Result<(String, Vec<(String, String)>), HttpError> {
    let text = required(parameters, "m")?;
    parse_series(text).map_err(|error| illegal_argument(error.to_string()))
}

/// Parses a TSUID and checks that all its UIDs have names.
async fn resolved(parts: &ApiParts, text: &str) -> Result<Tsuid, HttpError> {
    let bytes = java_uid::bytes(text).map_err(illegal_argument)?;
    let widths = parts.uids.widths();
    if bytes.len() <= widths.metric.bytes() {
        return Err(illegal_argument("TSUID is too short, may be missing tags"));
    }
    let tsuid = Tsuid::from_bytes(&bytes, widths).map_err(|error| illegal_argument(error.to_string()))?;
    let names = names::resolve_tsuid(&parts.uids, &tsuid, deadline()).await;
    names.map_err(|error| series_error(&error))?;
    Ok(tsuid)
}
