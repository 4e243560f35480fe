//! `/api/annotation`, `/api/annotations` and `/api/annotation/bulk`: reads and changes annotations.
//!
//! POST changes the fields that the document sets to something other than their defaults, PUT replaces all; a document
//! that sets none of them is not applied (304). Without a body the fields come from the query string, with times
//! cut to seconds, as all times of GET: an annotation between two seconds is found by its document only.
//!
//! Intended differences from OpenTSDB:
//! - TSUIDs must be of a possible series (400); OpenTSDB stores annotations under any bytes.
//! - A time that no row can hold is rejected (400); OpenTSDB stores it in another year.
//! - Malformed JSON and times are errors of the client (400), where OpenTSDB responds 500.
//! - `/api/annotations` without an end time ends now, and so does a bulk delete; OpenTSDB's list is then empty.
//! - An edit that loses a race is applied to the winner's annotation, where OpenTSDB responds 500. So two documents of
//!   a bulk request can be of one annotation.
//! - A bulk delete finds annotations of series in salted tables, and annotations at a multiple of 1000 seconds.
//!
//! Source: OpenTSDB 2.4, `AnnotationRpc`.

pub(crate) mod bulk;
mod failure;
mod list;
mod parse;
pub(in crate::http) mod render;

use http::StatusCode;
use oxtsdb_metadata::annotation::{AnnotationError, AnnotationKey, Annotations, Edit, Precondition};
use oxtsdb_query::language::time::now_ms;
use oxtsdb_schema::Annotation;

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::reply::Reply;

pub(crate) use list::list;

/// GET: one annotation.
pub(crate) async fn get(mut request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let sent = document(&mut request).await?;
    let annotations = Annotations::from_engine(&request.parts.engine);
    let key = AnnotationKey::as_sent(annotations.layout(), &sent.tsuid, sent.start_time);
    let key = key.map_err(|error| failure::key_error(&error))?;
    let annotation = annotations.get(&key).await;
    match annotation.map_err(|error| failure::annotation_error(&error))? {
        Some(stored) => Ok(Reply::json(render::annotation(&stored.annotation))),
        None => Err(HttpError::new(
            StatusCode::NOT_FOUND,
            "Unable to locate annotation in storage",
        )),
    }
}

/// POST: creates an annotation or changes fields.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    edit(request, Edit::merging).await
}

/// PUT: creates or replaces an annotation.
pub(crate) async fn put(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    edit(request, Edit::replacing).await
}

async fn edit(mut request: ApiRequest<'_>, edit: fn(Annotation) -> Edit) -> Result<Reply, HttpError> {
    let sent = document(&mut request).await?;
    let annotations =
        Annotations::from_engine(&request.parts.engine).announcing(request.parts.uids.meta_changes());
    let key = AnnotationKey::as_sent(annotations.layout(), &sent.tsuid, sent.start_time);
    let key = key.map_err(|error| failure::key_error(&error))?;
    let edit = edit(sent);
    if edit.is_empty() {
        return Ok(Reply::not_modified());
    }
    let stored = annotations.put(&key, &edit, &Precondition::None).await;
    let stored = stored.map_err(|error| failure::annotation_error(&error))?;
    Ok(Reply::json(render::annotation(&stored.annotation)))
}

/// DELETE: 204, whether or not there was one.
pub(crate) async fn delete(mut request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let sent = document(&mut request).await?;
    let annotations =
        Annotations::from_engine(&request.parts.engine).announcing(request.parts.uids.meta_changes());
    let key = AnnotationKey::as_sent(annotations.layout(), &sent.tsuid, sent.start_time);
    let key = key.map_err(|error| {
        HttpError::bad_request("Unable to delete Annotation information").with_details(error.to_string())
    })?;
    match annotations.remove(&key, &Precondition::None).await {
        Ok(()) | Err(AnnotationError::NotFound) => Ok(Reply::empty()),
        Err(error) => Err(failure::annotation_error(&error)),
    }
}

/// The document of a request: its body, or if it has none the fields in the query string.
async fn document(request: &mut ApiRequest<'_>) -> Result<Annotation, HttpError> {
    if request.body.bytes.is_empty() {
        return parse::from_parameters(request.parameters, now_ms());
    }
    let compute = &request.parts.engine.resources().compute;
    parsed(&mut request.body, compute, parse::from_json).await
}

#[cfg(test)]
mod tests;
