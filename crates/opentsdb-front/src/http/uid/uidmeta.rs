//! `/api/uid/uidmeta`: metadata of a UID.

use std::time::{Duration, UNIX_EPOCH};

use http::{Method, StatusCode};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::rejection::Rejection;
use oxtsdb_schema::document::CustomFields;
use oxtsdb_schema::{Uid, UidKind, UidMeta, uid_meta};
use serde::Deserialize;

use super::body::{self, TextField, merged_created, merged_custom, merged_text};
use super::{ATTEMPTS, deadline, illegal_argument, internal, java_uid, not_saved, required};
use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;
use crate::http::suggest::uids_error;

/// The fields that an edit replaces.
const ALL_FIELDS: &[&str] = &["display_name", "description", "notes", "created", "custom"];

/// A body or a query string. Unknown fields are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Edit {
    #[serde(default)]
    uid: TextField,
    #[serde(default, rename = "type")]
    kind: TextField,
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
}

impl Edit {
    fn from_parameters(parameters: &Parameters) -> Result<Self, HttpError> {
        let text = |name| TextField::from_parameter(parameters.get(name));
        let (uid, kind) = (required(parameters, "uid")?, required(parameters, "type")?);
        java_uid::kind(kind).map_err(illegal_argument)?;
        Ok(Self {
            uid: TextField::from_parameter(Some(uid)),
            kind: TextField::from_parameter(Some(kind)),
            display_name: text("display_name"),
            description: text("description"),
            notes: text("notes"),
            created: None,
            custom: None,
        })
    }

    fn from_json(content: &[u8]) -> Result<Self, HttpError> {
        let edit: Self = body::read(content)?;
        if let Some(kind) = edit.kind.change() {
            java_uid::kind(kind).map_err(HttpError::unreadable_json)?;
        }
        Ok(edit)
    }

    fn changes(&self) -> bool {
        let texts = [&self.display_name, &self.description, &self.notes];
        texts.iter().any(|text| text.change().is_some())
            || self.created.is_some_and(|created| created != 0)
            || self.custom.is_some()
    }

    /// The fields to write. Without a stored document there is no etag that protects concurrent edits: then only the
    /// changes are written.
    fn fields(&self, stored_etag: &str, replaces: bool) -> Vec<&'static str> {
        if replaces || !stored_etag.is_empty() {
            return ALL_FIELDS.to_vec();
        }
        let is_change = |field: &&&str| match **field {
            "display_name" => self.display_name.change().is_some(),
            "description" => self.description.change().is_some(),
            "notes" => self.notes.change().is_some(),
            "created" => self.created.is_some_and(|created| created != 0),
            _ => self.custom.is_some(),
        };
        ALL_FIELDS.iter().filter(is_change).copied().collect()
    }

    /// The kind and the bytes of the UID.
    fn target(&self) -> Result<(UidKind, Vec<u8>), String> {
        if self.uid.text().is_empty() {
            return Err("Missing UID".to_owned());
        }
        if self.kind.text().is_empty() {
            return Err("Missing type".to_owned());
        }
        let kind = java_uid::kind(self.kind.text())?;
        Ok((kind, java_uid::bytes(self.uid.text())?))
    }

    /// The metadata after the edit.
    fn applied_to(&self, mut meta: UidMeta, replaces: bool) -> UidMeta {
        merged_text(&mut meta.display_name, &self.display_name, replaces);
        merged_text(&mut meta.description, &self.description, replaces);
        merged_text(&mut meta.notes, &self.notes, replaces);
        let mut custom = meta.custom.take().map(CustomFields::new);
        merged_custom(&mut custom, self.custom.as_ref(), replaces);
        meta.custom = custom.map(|custom| {
            let owned = |(key, value): (&str, Option<&str>)| (key.to_owned(), value.map(str::to_owned));
            custom.iter().map(owned).collect()
        });
        let created = merged_created(
            meta.created_seconds().unwrap_or(0),
            self.created.unwrap_or_default(),
        );
        let created = u64::try_from(created).unwrap_or_default();
        meta.created = (created != 0).then(|| UNIX_EPOCH + Duration::from_secs(created));
        meta
    }
}

/// GET.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let parameters = request.parameters;
    let (uid, kind) = (required(parameters, "uid")?, required(parameters, "type")?);
    let kind = java_uid::kind(kind).map_err(illegal_argument)?;
    let width = request.parts.uids.widths().get(kind);
    let uid = java_uid::bytes(uid).and_then(|bytes| java_uid::uid(kind, width, &bytes));
    let meta = stored(request.parts, kind, uid.map_err(illegal_argument)?).await?;
    Ok(reply(&meta))
}

/// POST and PUT.
pub(crate) async fn edit(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let (parts, replaces) = (request.parts, *request.method == Method::PUT);
    let edit = body::edit_of(request, Edit::from_parameters, Edit::from_json).await?;
    let (kind, bytes) = edit.target().map_err(illegal_argument)?;
    if !edit.changes() {
        return Ok(Reply::not_modified());
    }
    let width = parts.uids.widths().get(kind);
    let uid = java_uid::uid(kind, width, &bytes).map_err(illegal_argument)?;
    for _ in 0..ATTEMPTS {
        let meta = stored(parts, kind, uid).await?;
        let fields = edit.fields(&meta.etag, replaces);
        let meta = edit.applied_to(meta, replaces);
        let updated = parts.uids.update_meta(&meta, &fields, deadline()).await;
        match updated.map_err(|error| uids_error(&error))? {
            Ok(_) => return Ok(reply(&stored(parts, kind, uid).await?)),
            Err(rejection) if rejection.reason == Some(ErrorReason::EtagMismatch) => {}
            Err(rejection) => return Err(rejected(kind, uid, &rejection)),
        }
    }
    Err(not_saved("UIDMeta"))
}

/// DELETE. Deleting an absent document succeeds.
pub(crate) async fn delete(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let parts = request.parts;
    let edit = body::edit_of(request, Edit::from_parameters, Edit::from_json).await?;
    let failed =
        |text: String| HttpError::bad_request("Unable to delete UIDMeta information").with_details(text);
    let (kind, bytes) = edit.target().map_err(failed)?;
    if let Ok(uid) = java_uid::uid(kind, parts.uids.widths().get(kind), &bytes) {
        let deleted = parts.uids.delete_meta(kind, uid, deadline()).await;
        if let Err(rejection) = deleted.map_err(|error| uids_error(&error))? {
            return Err(rejected(kind, uid, &rejection));
        }
    }
    Ok(Reply::empty())
}

/// The metadata of a UID.
async fn stored(parts: &ApiParts, kind: UidKind, uid: Uid) -> Result<UidMeta, HttpError> {
    let meta = parts.uids.get_metas(&[(kind, uid)], deadline()).await;
    let meta = meta.map_err(|error| uids_error(&error))?.pop();
    let meta = meta.ok_or_else(|| internal("the UID service returned no result"))?;
    meta.map_err(|rejection| rejected(kind, uid, &rejection))
}

fn rejected(kind: UidKind, uid: Uid, rejection: &Rejection) -> HttpError {
    if rejection.reason == Some(ErrorReason::UidNotFound) {
        return HttpError::new(StatusCode::NOT_FOUND, "Could not find the requested UID")
            .with_details(java_uid::no_such_uid(kind, uid));
    }
    if rejection.is_retry_safe() {
        return HttpError::overloaded(rejection.message.clone());
    }
    internal(rejection.message.clone())
}

fn reply(meta: &UidMeta) -> Reply {
    let mut out = Vec::with_capacity(256);
    write(&mut out, meta);
    Reply::json(out)
}

/// Writes metadata as OpenTSDB serialises it in responses.
pub(in crate::http) fn write(out: &mut Vec<u8>, meta: &UidMeta) {
    out.extend_from_slice(b"{\"uid\":");
    json::write_string(out, &meta.uid.to_string());
    out.extend_from_slice(b",\"type\":");
    json::write_string(out, uid_meta::kind_name(meta.kind));
    for (field, text) in [
        (&b",\"name\":"[..], &meta.name),
        (b",\"description\":", &meta.description),
        (b",\"notes\":", &meta.notes),
    ] {
        out.extend_from_slice(field);
        json::write_string(out, text);
    }
    out.extend_from_slice(b",\"created\":");
    json::write_integer(out, meta.created_seconds().unwrap_or(0));
    out.extend_from_slice(b",\"custom\":");
    match &meta.custom {
        None => out.extend_from_slice(b"null"),
        Some(fields) => write_custom(
            out,
            fields.iter().map(|(key, value)| (key.as_str(), value.as_deref())),
        ),
    }
    out.extend_from_slice(b",\"displayName\":");
    json::write_string(out, &meta.display_name);
    out.push(b'}');
}

/// Writes `custom` fields in their order.
pub(super) fn write_custom<'f>(out: &mut Vec<u8>, fields: impl Iterator<Item = (&'f str, Option<&'f str>)>) {
    out.push(b'{');
    for (place, (key, value)) in fields.enumerate() {
        if place > 0 {
            out.push(b',');
        }
        json::write_string(out, key);
        out.push(b':');
        match value {
            Some(value) => json::write_string(out, value),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
}
