//! `SeriesMetaService`: metadata of series.

mod convert;
mod search;
mod streams;

use oxtsdb_ingest::Writer;
use oxtsdb_metadata::meta::{MetaError, MetaTable, SeriesError, names};
use oxtsdb_metadata::text_search::TextSearch;
use oxtsdb_metadata::uids::Uids;
use oxtsdb_proto::common::v1::{ErrorReason, SeriesKey, series_key};
use oxtsdb_proto::data::v1::series_meta_service_server::SeriesMetaService;
use oxtsdb_proto::data::v1::{
    DeleteSeriesMetaRequest, DeleteSeriesMetaResponse, GetSeriesMetaRequest, GetSeriesMetaResponse,
    PurgeMetaRequest, PurgeMetaResponse, SearchMetadataRequest, SearchMetadataResponse, SyncMetaRequest,
    SyncMetaResponse, UpdateSeriesMetaRequest, UpdateSeriesMetaResponse,
};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, status};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_proto::update_mask;
use oxtsdb_query::Engine;
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::ts_meta::TsMeta;
use oxtsdb_schema::tsuid::TsuidError;
use oxtsdb_server::deadline_of;
use tonic::{Code, Request, Response, Status};

use super::status::{kind_name, store_status, uids_status};

/// The fields of a document that callers change.
const FIELDS: &[&str] = &[
    "display_name",
    "description",
    "notes",
    "created",
    "custom",
    "units",
    "data_type",
    "retention_days",
    "max",
    "min",
];

/// `SeriesMetaService`. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct SeriesMetaHandler {
    engine: Engine,
    table: MetaTable,
    uids: Uids,
    text_search: Option<TextSearch>,
    max_tags: usize,
}

impl SeriesMetaHandler {
    /// A handler over the domain's parts.
    pub fn new(engine: Engine, writer: &Writer, uids: Uids, text_search: Option<TextSearch>) -> Self {
        Self {
            engine,
            table: writer.meta_table().clone(),
            uids,
            text_search,
            max_tags: writer.max_tags(),
        }
    }
}

#[tonic::async_trait]
impl SeriesMetaService for SeriesMetaHandler {
    async fn get_series_meta(
        &self,
        request: Request<GetSeriesMetaRequest>,
    ) -> Result<Response<GetSeriesMetaResponse>, Status> {
        let deadline = deadline_of(request.extensions());
        let tsuid = self.tsuid(request.into_inner().series, deadline).await?;
        let meta = self.table.series(&tsuid).await;
        let meta = meta.map_err(|error| meta_status(&error))?;
        if meta.document.is_none() && meta.counter.is_none() {
            return Err(meta_status(&MetaError::NotFound { tsuid }));
        }
        let names = names::resolve_tsuid(&self.uids, &tsuid, deadline).await;
        let names = names.map_err(|error| series_status(&error))?;
        Ok(Response::new(GetSeriesMetaResponse {
            meta: Some(convert::message(&tsuid, names, meta)),
        }))
    }

    async fn update_series_meta(
        &self,
        request: Request<UpdateSeriesMetaRequest>,
    ) -> Result<Response<UpdateSeriesMetaResponse>, Status> {
        let deadline = deadline_of(request.extensions());
        let request = request.into_inner();
        let new = request.meta.ok_or_else(|| invalid_field("meta", "is missing"))?;
        let fields = update_mask::fields(request.update_mask.as_ref(), FIELDS, |field| {
            convert::is_set(&new, field)
        })?;
        let values = convert::document(&new)?;
        let tsuid = self.tsuid(request.series, deadline).await?;
        // All UIDs of the series must have names.
        let names = names::resolve_tsuid(&self.uids, &tsuid, deadline).await;
        let names = names.map_err(|error| series_status(&error))?;
        let etag = Some(new.etag.as_str()).filter(|etag| !etag.is_empty());
        let change = |document: &mut TsMeta| convert::assign(document, &values, &fields);
        let changed = self
            .table
            .update(&tsuid, etag, request.allow_missing, change)
            .await;
        let changed = changed.map_err(|error| meta_status(&error))?;
        Ok(Response::new(UpdateSeriesMetaResponse {
            meta: Some(convert::message(&tsuid, names, changed)),
        }))
    }

    async fn delete_series_meta(
        &self,
        request: Request<DeleteSeriesMetaRequest>,
    ) -> Result<Response<DeleteSeriesMetaResponse>, Status> {
        let deadline = deadline_of(request.extensions());
        let request = request.into_inner();
        let tsuid = self.tsuid(request.series, deadline).await?;
        let etag = Some(request.etag.as_str()).filter(|etag| !etag.is_empty());
        let deleted = self.table.delete(&tsuid, etag).await;
        deleted.map_err(|error| meta_status(&error))?;
        Ok(Response::new(DeleteSeriesMetaResponse {}))
    }

    async fn sync_meta(
        &self,
        request: Request<SyncMetaRequest>,
    ) -> Result<Response<MessageStream<SyncMetaResponse>>, Status> {
        Ok(streams::sync_meta(self, request))
    }

    async fn purge_meta(
        &self,
        request: Request<PurgeMetaRequest>,
    ) -> Result<Response<MessageStream<PurgeMetaResponse>>, Status> {
        Ok(streams::purge_meta(self, request))
    }

    async fn search_metadata(
        &self,
        request: Request<SearchMetadataRequest>,
    ) -> Result<Response<SearchMetadataResponse>, Status> {
        search::search_metadata(self, request).await.map(Response::new)
    }
}

impl SeriesMetaHandler {
    /// The TSUID of a request.
    async fn tsuid(
        &self,
        series: Option<SeriesKey>,
        deadline: Option<std::time::Instant>,
    ) -> Result<Tsuid, Status> {
        match series.and_then(|series| series.key) {
            None => Err(invalid_field("series", "is missing, expected name or tsuid")),
            Some(series_key::Key::Tsuid(bytes)) => Tsuid::from_bytes(&bytes, self.uids.widths())
                .map_err(|error| invalid_tsuid("series.tsuid", &error)),
            Some(series_key::Key::Name(name)) => {
                let limit = self.max_tags;
                if name.tags.len() > limit {
                    let rule = format!("has {} tags, at most {limit} are allowed", name.tags.len());
                    return Err(invalid_field_because(
                        "series.name.tags",
                        ErrorReason::InvalidTags,
                        rule,
                    ));
                }
                let tags = name.tags.iter().map(|tag| (tag.key.as_str(), tag.value.as_str()));
                let tags: Vec<(&str, &str)> = tags.collect();
                let tsuid = names::to_tsuid(&self.uids, &name.metric, &tags, deadline).await;
                tsuid.map_err(|error| series_status(&error))
            }
        }
    }
}

fn invalid_tsuid(field: &str, error: &TsuidError) -> Status {
    let reason = match error {
        TsuidError::NoTags { .. } | TsuidError::DuplicateTagk { .. } => ErrorReason::InvalidTags,
        TsuidError::Length { .. } | TsuidError::NotAscending { .. } | TsuidError::Hex { .. } => {
            ErrorReason::InvalidUidWidth
        }
    };
    invalid_field_because(field, reason, error.to_string())
}

/// A series that cannot be resolved.
fn series_status(error: &SeriesError) -> Status {
    match error {
        SeriesError::UnknownName { kind, name } => status(
            Code::NotFound,
            ErrorReason::NameNotFound,
            error.to_string(),
            &[("kind", kind_name(*kind)), ("name", name)],
        ),
        SeriesError::UidWithoutName { kind, uid } => status(
            Code::NotFound,
            ErrorReason::UidNotFound,
            error.to_string(),
            &[("kind", kind_name(*kind)), ("uid", &uid.to_string())],
        ),
        SeriesError::Tsuid(error) => invalid_tsuid("series.name", error),
        SeriesError::Uids(error) => uids_status(error),
    }
}

/// Metadata that cannot be read or changed.
fn meta_status(error: &MetaError) -> Status {
    let (code, reason, metadata) = match error {
        MetaError::NotFound { tsuid } => (
            Code::NotFound,
            ErrorReason::SeriesNotFound,
            vec![("tsuid", tsuid.to_string())],
        ),
        MetaError::EtagMismatch { stored, .. } => (
            Code::Aborted,
            ErrorReason::EtagMismatch,
            vec![("etag", stored.clone())],
        ),
        MetaError::Corrupt { tsuid, qualifier, .. } => (
            Code::DataLoss,
            ErrorReason::CorruptCell,
            vec![
                ("row_key", hex::encode(tsuid.as_bytes())),
                ("qualifier", (*qualifier).to_owned()),
            ],
        ),
        MetaError::Contended { tsuid } => (
            Code::Unavailable,
            ErrorReason::StoreUnavailable,
            vec![("tsuid", tsuid.to_string())],
        ),
        MetaError::TooLarge { .. } => return invalid_field("meta", error.to_string()),
        MetaError::Store(error) => return store_status(error),
    };
    let metadata: Vec<(&str, &str)> = metadata
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect();
    status(code, reason, error.to_string(), &metadata)
}

#[cfg(test)]
mod tests;
