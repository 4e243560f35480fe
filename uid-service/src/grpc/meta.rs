//! The calls about metadata: `oxtsdb.uid.v1.UidMetaService`.

use futures::StreamExt as _;
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, invalid_item};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_proto::uid::v1::uid_meta_service_server::{UidMetaService, UidMetaServiceServer};
use oxtsdb_proto::update_mask;
use oxtsdb_schema::Uid;
use oxtsdb_schema::document::CustomFields;
use oxtsdb_schema::uid_meta::UidDocument;
use oxtsdb_uids::meta::{Described, Metadata};
use oxtsdb_uids::table::KindUid;
use prost_types::Timestamp;
use tonic::{Request, Response, Status};

use super::{MAX_REQUEST_BYTES, convert, fail_if_unavailable, in_order, partition, status};

/// The most items of BatchGetUidMeta.
const MAX_GET: usize = 1000;

/// The most bytes of the documents in a response of BatchGetUidMeta.
const MAX_GET_BYTES: usize = 16 << 20;

/// The most items of SyncUidMeta.
const MAX_SYNC: usize = 4096;

/// The fields of a document that callers change.
const FIELDS: &[&str] = &["display_name", "description", "notes", "created", "custom"];

/// `UidMetaService` over the metadata of a table. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct UidMetaHandler {
    metadata: Metadata,
}

/// The tonic service.
pub(crate) fn server(metadata: Metadata) -> UidMetaServiceServer<UidMetaHandler> {
    UidMetaServiceServer::new(UidMetaHandler { metadata }, MAX_REQUEST_BYTES)
}

#[tonic::async_trait]
impl UidMetaService for UidMetaHandler {
    async fn get_uid_meta(
        &self,
        request: Request<pb::GetUidMetaRequest>,
    ) -> Result<Response<pb::GetUidMetaResponse>, Status> {
        let request = request.into_inner();
        let key = self.key("", request.kind, &request.uid)?;
        let mut results = self.metadata.get(&[key], MAX_GET_BYTES).await;
        let result = results.pop().ok_or_else(|| Status::internal("no result"))?;
        let described = result.map_err(|error| status::status(&error))?;
        Ok(Response::new(pb::GetUidMetaResponse {
            meta: Some(message(key, described)),
        }))
    }

    async fn batch_get_uid_meta(
        &self,
        request: Request<pb::BatchGetUidMetaRequest>,
    ) -> Result<Response<pb::BatchGetUidMetaResponse>, Status> {
        use pb::batch_get_uid_meta_response::{Result as ItemResult, result::Outcome};

        let request = request.into_inner();
        convert::check_batch("uids", request.uids.len(), MAX_GET)?;
        let width = |kind| self.metadata.table().layout().width(kind);
        let (keys, invalid) = partition(&request.uids, |index, uid| convert::uid(index, uid, width));
        let outcomes = self.metadata.get(&keys, MAX_GET_BYTES).await;
        fail_if_unavailable(&outcomes)?;
        let outcomes: Vec<_> = keys.into_iter().zip(outcomes).collect();
        let results = in_order(invalid, outcomes, |outcome| ItemResult {
            outcome: Some(match outcome {
                Ok((key, Ok(described))) => Outcome::Meta(message(key, described)),
                Ok((_, Err(failure))) => Outcome::Error(status::item(&failure)),
                Err(error) => Outcome::Error(error),
            }),
        });
        Ok(Response::new(pb::BatchGetUidMetaResponse { results }))
    }

    async fn update_uid_meta(
        &self,
        request: Request<pb::UpdateUidMetaRequest>,
    ) -> Result<Response<pb::UpdateUidMetaResponse>, Status> {
        let request = request.into_inner();
        let new = request.meta.ok_or_else(|| invalid_field("meta", "is missing"))?;
        let key = self.key("meta.", new.kind, &new.uid)?;
        let fields = update_mask::fields(request.update_mask.as_ref(), FIELDS, |field| match field {
            "display_name" => !new.display_name.is_empty(),
            "description" => !new.description.is_empty(),
            "notes" => !new.notes.is_empty(),
            "created" => new.created.is_some(),
            _ => new.custom.is_some(),
        })?;
        let created_seconds = seconds("meta.created", new.created.as_ref())?;
        let etag = Some(new.etag.as_str()).filter(|etag| !etag.is_empty());
        let custom = new.custom.clone();
        let custom = custom.map(|custom| CustomFields::new(custom.into_fields()));
        let change = |document: &mut UidDocument| {
            for field in &fields {
                match *field {
                    "display_name" => document.display_name.clone_from(&new.display_name),
                    "description" => document.description.clone_from(&new.description),
                    "notes" => document.notes.clone_from(&new.notes),
                    "created" => document.created_seconds = created_seconds,
                    _ => document.custom.clone_from(&custom),
                }
            }
        };
        let changed = self.metadata.update(key, etag, change).await;
        let changed = changed.map_err(|error| status::status(&error))?;
        Ok(Response::new(pb::UpdateUidMetaResponse {
            meta: Some(message(key, changed)),
        }))
    }

    async fn delete_uid_meta(
        &self,
        request: Request<pb::DeleteUidMetaRequest>,
    ) -> Result<Response<pb::DeleteUidMetaResponse>, Status> {
        let request = request.into_inner();
        let key = self.key("", request.kind, &request.uid)?;
        let etag = Some(request.etag.as_str()).filter(|etag| !etag.is_empty());
        let deleted = self.metadata.delete(key, etag).await;
        deleted.map_err(|error| status::status(&error))?;
        Ok(Response::new(pb::DeleteUidMetaResponse {}))
    }

    async fn sync_uid_meta(
        &self,
        request: Request<pb::SyncUidMetaRequest>,
    ) -> Result<Response<pb::SyncUidMetaResponse>, Status> {
        use pb::sync_uid_meta_response::{Action as Done, Result as ItemResult, result::Outcome};

        let request = request.into_inner();
        convert::check_batch("items", request.items.len(), MAX_SYNC)?;
        let width = |kind| self.metadata.table().layout().width(kind);
        let (items, invalid) = partition(&request.items, |index, item| {
            let uid = pb::UidValue {
                kind: item.kind,
                uid: item.uid.clone(),
            };
            let key = convert::uid(index, &uid, width)?;
            let first_point = item.first_point.as_ref().map(|time| time.seconds);
            let first_point = first_point.filter(|seconds| *seconds > 0);
            Ok((key, first_point.ok_or_else(|| no_first_point(index))?))
        });
        let done = self.metadata.sync(&items, request.validate_only).await;
        if !done.iter().any(Result::is_ok) {
            fail_if_unavailable(&done)?;
        }
        let results = in_order(invalid, done, |outcome| ItemResult {
            outcome: Some(match outcome {
                Ok(Ok(action)) => Outcome::Action(Done::from(action).into()),
                Ok(Err(failure)) => Outcome::Error(status::item(&failure)),
                Err(error) => Outcome::Error(error),
            }),
        });
        Ok(Response::new(pb::SyncUidMetaResponse { results }))
    }

    async fn purge_uid_meta(
        &self,
        request: Request<pb::PurgeUidMetaRequest>,
    ) -> Result<Response<MessageStream<pb::PurgeUidMetaResponse>>, Status> {
        let request = request.into_inner();
        let purge = self
            .metadata
            .purge(request.start_after.to_vec(), request.validate_only);
        let progress = purge.map(|progress| match progress {
            Ok(purged) => Ok(pb::PurgeUidMetaResponse {
                documents: purged.documents,
                deleted: purged.deleted,
                position: purged.position.unwrap_or_default().into(),
            }),
            Err(failure) => Err(status::status(&failure)),
        });
        Ok(Response::new(progress.boxed()))
    }
}

impl UidMetaHandler {
    /// The UID of a request; `within` is the path of its fields.
    fn key(&self, within: &str, kind: i32, uid: &[u8]) -> Result<KindUid, Status> {
        let kind = convert::kind_of(&format!("{within}kind"), kind)?;
        let expected = self.metadata.table().layout().width(kind);
        match Uid::from_bytes(uid) {
            Ok(uid) if uid.width() == expected => Ok((kind, uid)),
            _ => Err(invalid_field_because(
                &format!("{within}uid"),
                ErrorReason::InvalidUidWidth,
                format!("UID of `{kind}` has {} bytes, expected {expected}", uid.len()),
            )),
        }
    }
}

fn no_first_point(index: usize) -> Box<ItemError> {
    let field = format!("items[{index}].first_point");
    invalid_item(&field, "is missing or before 1970").into()
}

fn seconds(field: &str, time: Option<&Timestamp>) -> Result<i64, Status> {
    match time {
        None => Ok(0),
        Some(time) if time.seconds >= 0 => Ok(time.seconds),
        Some(_) => Err(invalid_field(field, "is before 1970")),
    }
}

fn message((kind, uid): KindUid, described: Described) -> pb::UidMeta {
    let UidDocument {
        kind: _,
        display_name,
        description,
        notes,
        created_seconds,
        custom,
    } = described.document;
    pb::UidMeta {
        kind: convert::kind_number(kind),
        uid: convert::uid_bytes(uid),
        name: described.name.to_text(),
        display_name,
        description,
        notes,
        created: (created_seconds != 0).then_some(Timestamp {
            seconds: created_seconds,
            nanos: 0,
        }),
        custom: custom.as_ref().map(Into::into),
        etag: described.etag,
    }
}
