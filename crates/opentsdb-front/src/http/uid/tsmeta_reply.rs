//! Metadata of series in responses, including metadata of the metric and of the tags.

use std::collections::HashMap;

use oxtsdb_metadata::meta::{SeriesError, SeriesMeta};
use oxtsdb_metadata::uids::Uids;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_schema::{Tsuid, Uid, UidKind, UidMeta, java};

use super::tsmeta_error::{failed, series_error};
use super::uidmeta::write_custom;
use super::{deadline, internal, uidmeta};
use crate::http::api_request::ApiParts;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;
use crate::http::suggest::uids_error;

/// The metadata of UIDs.
pub(super) type UidMetas = HashMap<(UidKind, Uid), UidMeta>;

/// The response for one series.
pub(super) async fn reply(parts: &ApiParts, tsuid: &Tsuid, meta: &SeriesMeta) -> Result<Reply, HttpError> {
    let metas = uid_metas(&parts.uids, std::slice::from_ref(tsuid)).await?;
    let mut out = Vec::with_capacity(1024);
    write(&mut out, tsuid, meta, &metas, &parts.uids);
    Ok(Reply::json(out))
}

/// The metadata of a series as JSON; `None` if it has no document.
///
/// # Errors
///
/// 404 if a UID has no name.
pub(in crate::http) async fn series_meta(
    parts: &ApiParts,
    tsuid: &Tsuid,
) -> Result<Option<Vec<u8>>, HttpError> {
    let meta = parts.writer.meta_table().series(tsuid).await;
    let meta = meta.map_err(|error| failed(&error))?;
    if meta.document.is_none() {
        return Ok(None);
    }
    let metas = uid_metas(&parts.uids, std::slice::from_ref(tsuid)).await?;
    let mut out = Vec::with_capacity(1024);
    write(&mut out, tsuid, &meta, &metas, &parts.uids);
    Ok(Some(out))
}

/// The metadata of all UIDs of some series.
///
/// # Errors
///
/// 404 if a UID has no name.
pub(super) async fn uid_metas(uids: &Uids, series: &[Tsuid]) -> Result<UidMetas, HttpError> {
    let mut requested: Vec<(UidKind, Uid)> = series.iter().flat_map(|tsuid| uids_of(tsuid, uids)).collect();
    requested.sort_unstable();
    requested.dedup();
    let results = uids.get_metas(&requested, deadline()).await;
    let results = results.map_err(|error| uids_error(&error))?;
    let mut metas = UidMetas::with_capacity(requested.len());
    for ((kind, uid), meta) in requested.into_iter().zip(results) {
        match meta {
            Ok(meta) => {
                metas.insert((kind, uid), meta);
            }
            Err(rejection) if rejection.reason == Some(ErrorReason::UidNotFound) => {
                return Err(series_error(&SeriesError::UidWithoutName { kind, uid }));
            }
            Err(rejection) if rejection.is_retry_safe() => {
                return Err(HttpError::overloaded(rejection.message));
            }
            Err(rejection) => return Err(internal(rejection.message)),
        }
    }
    Ok(metas)
}

fn uids_of(tsuid: &Tsuid, uids: &Uids) -> Vec<(UidKind, Uid)> {
    let widths = uids.widths();
    let tags = tsuid.tags(widths);
    let tags = tags.flat_map(|(tagk, tagv)| [(UidKind::Tagk, tagk.uid()), (UidKind::Tagv, tagv.uid())]);
    let metric = (UidKind::Metric, tsuid.metric(widths).uid());
    std::iter::once(metric).chain(tags).collect()
}

/// Writes the metadata of a series that has a document.
pub(super) fn write(out: &mut Vec<u8>, tsuid: &Tsuid, meta: &SeriesMeta, metas: &UidMetas, uids: &Uids) {
    let Some(document) = &meta.document else { return };
    out.extend_from_slice(b"{\"tsuid\":");
    json::write_string(out, &tsuid.to_string());
    for (place, uid) in uids_of(tsuid, uids).iter().enumerate() {
        out.extend_from_slice(match place {
            0 => b",\"metric\":",
            1 => b",\"tags\":[",
            _ => b",",
        });
        if let Some(meta) = metas.get(uid) {
            uidmeta::write(out, meta);
        }
    }
    out.push(b']');
    let text = |out: &mut Vec<u8>, field: &str, text: &str| {
        out.extend_from_slice(format!(",\"{field}\":").as_bytes());
        json::write_string(out, text);
    };
    text(out, "description", &document.description);
    text(out, "notes", &document.notes);
    out.extend_from_slice(format!(",\"created\":{}", document.created_seconds).as_bytes());
    if let Some(custom) = &document.custom {
        out.extend_from_slice(b",\"custom\":");
        write_custom(out, custom.iter());
    }
    text(out, "units", &document.units);
    out.extend_from_slice(format!(",\"retention\":{}", document.retention_days).as_bytes());
    for (field, value) in [("max", document.max), ("min", document.min)] {
        let quote = if value.is_finite() { "" } else { "\"" };
        let value = java::double_to_string(value);
        out.extend_from_slice(format!(",\"{field}\":{quote}{value}{quote}").as_bytes());
    }
    text(out, "displayName", &document.display_name);
    text(out, "dataType", &document.data_type);
    let last_received = meta
        .counter
        .map_or(0, |counter| counter.written_ms.div_euclid(1000));
    let points = meta.counter.map_or(0, |counter| counter.points);
    out.extend_from_slice(
        format!(",\"lastReceived\":{last_received},\"totalDatapoints\":{points}}}").as_bytes(),
    );
}
