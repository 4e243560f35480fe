//! `AnnotationService`: decodes, calls [`oxtsdb_metadata::annotation`], encodes.

mod convert;
mod failure;
mod page_token;

use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use oxtsdb_metadata::annotation::{
    AnnotationError, AnnotationKey, Annotations, Edit, PageRequest, Precondition, Source, StoredAnnotation,
};
use oxtsdb_proto::data::v1::annotation_service_server::AnnotationService;
use oxtsdb_proto::data::v1::batch_put_annotations_response::Result as ResultMessage;
use oxtsdb_proto::data::v1::batch_put_annotations_response::result::Outcome;
use oxtsdb_proto::data::v1::put_annotation_request::Precondition as PreconditionMessage;
use oxtsdb_proto::data::v1::{
    BatchPutAnnotationsRequest, BatchPutAnnotationsResponse, DeleteAnnotationRangeRequest,
    DeleteAnnotationRangeResponse, DeleteAnnotationRequest, DeleteAnnotationResponse, GetAnnotationRequest,
    GetAnnotationResponse, ListAnnotationsRequest, ListAnnotationsResponse, PutAnnotationRequest,
    PutAnnotationResponse,
};
use oxtsdb_proto::error::invalid_field;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Admitted, Engine, QueryDescription, RequestContext};
use tonic::{Request, Response, Status};

use super::DataServiceHandler;
use super::query::convert::range;
use super::query::field_error::{count, missing};
use super::query::query_status;
use super::results::context_of;
use page_token::PageToken;

pub(in crate::grpc) use convert::annotation as annotation_message;

const PAGE_SIZE_DEFAULT: usize = 100;
const PAGE_SIZE_MAX: usize = 1000;

/// Items of a batch, and series of a range, at most.
const MAX_ITEMS: usize = 1000;

/// Items of a batch that are stored concurrently.
const CONCURRENT: usize = 8;

#[tonic::async_trait]
impl AnnotationService for DataServiceHandler {
    async fn get_annotation(
        &self,
        request: Request<GetAnnotationRequest>,
    ) -> Result<Response<GetAnnotationResponse>, Status> {
        let request = request.into_inner();
        let annotations = Annotations::from_engine(&self.engine);
        let key = convert::key(annotations.layout(), "", &request.tsuid, request.start_ms)?;
        let annotation = annotations.get(&key).await;
        let annotation = annotation.and_then(|annotation| annotation.ok_or(AnnotationError::NotFound));
        let stored = annotation.map_err(|error| failure::key_status(&error, &key))?;
        Ok(Response::new(GetAnnotationResponse {
            annotation: Some(message(&stored)),
        }))
    }

    async fn list_annotations(
        &self,
        request: Request<ListAnnotationsRequest>,
    ) -> Result<Response<ListAnnotationsResponse>, Status> {
        list(&self.engine, request).await.map(Response::new)
    }

    async fn put_annotation(
        &self,
        request: Request<PutAnnotationRequest>,
    ) -> Result<Response<PutAnnotationResponse>, Status> {
        let annotations = self.annotations();
        let put = Put::read(&annotations, "", request.into_inner())?;
        let stored = put.apply(&annotations).await;
        let stored = stored.map_err(|error| failure::key_status(&error, &put.key))?;
        Ok(Response::new(PutAnnotationResponse {
            annotation: Some(message(&stored)),
        }))
    }

    async fn batch_put_annotations(
        &self,
        request: Request<BatchPutAnnotationsRequest>,
    ) -> Result<Response<BatchPutAnnotationsResponse>, Status> {
        let requests = request.into_inner().requests;
        if requests.is_empty() || requests.len() > MAX_ITEMS {
            return Err(failure::batch_size(requests.len(), MAX_ITEMS));
        }
        let annotations = self.annotations();
        let results = stream::iter(requests.into_iter().enumerate())
            .map(move |(index, request)| {
                let annotations = annotations.clone();
                async move { put_item(&annotations, index, request).await }
            })
            .buffered(CONCURRENT)
            .collect()
            .await;
        Ok(Response::new(BatchPutAnnotationsResponse { results }))
    }

    async fn delete_annotation(
        &self,
        request: Request<DeleteAnnotationRequest>,
    ) -> Result<Response<DeleteAnnotationResponse>, Status> {
        let request = request.into_inner();
        let annotations = self.annotations();
        let key = convert::key(annotations.layout(), "", &request.tsuid, request.start_ms)?;
        let precondition = if request.etag.is_empty() {
            Precondition::None
        } else {
            Precondition::Etag(request.etag)
        };
        match annotations.remove(&key, &precondition).await {
            Err(AnnotationError::NotFound) if request.allow_missing => {}
            removed => removed.map_err(|error| failure::key_status(&error, &key))?,
        }
        Ok(Response::new(DeleteAnnotationResponse {}))
    }

    async fn delete_annotation_range(
        &self,
        request: Request<DeleteAnnotationRangeRequest>,
    ) -> Result<Response<DeleteAnnotationRangeResponse>, Status> {
        delete_range(&self.engine, request).await.map(Response::new)
    }
}

/// A change, read from its message.
struct Put {
    key: AnnotationKey,
    edit: Edit,
    precondition: Precondition,
}

impl Put {
    /// `within` is the path of the message, with its dot.
    fn read(annotations: &Annotations, within: &str, request: PutAnnotationRequest) -> Result<Put, Status> {
        let field = format!("{within}annotation");
        let annotation = request.annotation.ok_or_else(|| missing(&field))?;
        let within = format!("{field}.");
        let key = convert::key(
            annotations.layout(),
            &within,
            &annotation.tsuid,
            annotation.start_ms,
        )?;
        let precondition = match request.precondition {
            None | Some(PreconditionMessage::MustBeNew(false)) => Precondition::None,
            Some(PreconditionMessage::MustBeNew(true)) => Precondition::Etag(String::new()),
            Some(PreconditionMessage::Etag(etag)) if etag.is_empty() => {
                return Err(invalid_field(
                    "etag",
                    "is empty, expected that of a stored annotation",
                ));
            }
            Some(PreconditionMessage::Etag(etag)) => Precondition::Etag(etag),
        };
        let edit = convert::edit(&within, annotation, request.update_mask.as_ref())?;
        Ok(Put {
            key,
            edit,
            precondition,
        })
    }

    async fn apply(&self, annotations: &Annotations) -> Result<StoredAnnotation, AnnotationError> {
        annotations.put(&self.key, &self.edit, &self.precondition).await
    }
}

/// Stores one item of a batch.
async fn put_item(annotations: &Annotations, index: usize, request: PutAnnotationRequest) -> ResultMessage {
    let within = format!("requests[{index}].");
    let outcome = match Put::read(annotations, &within, request) {
        Err(status) => Outcome::Error(failure::item(&status)),
        Ok(put) => match put.apply(annotations).await {
            Ok(stored) => Outcome::Etag(stored.etag),
            Err(error) => Outcome::Error(failure::item(&failure::key_status(&error, &put.key))),
        },
    };
    ResultMessage {
        outcome: Some(outcome),
    }
}

async fn list(
    engine: &Engine,
    request: Request<ListAnnotationsRequest>,
) -> Result<ListAnnotationsResponse, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let annotations = Annotations::from_engine(engine);
    let source = convert::source(annotations.layout(), "tsuid", &request.tsuid)?;
    let size = match usize::try_from(request.page_size) {
        Ok(0) => PAGE_SIZE_DEFAULT,
        Ok(size) => size.min(PAGE_SIZE_MAX),
        Err(_) => {
            let rule = format!("is {}, at least 0 is expected", request.page_size);
            return Err(invalid_field("page_size", rule));
        }
    };
    let query = page_token::query_of(&request);
    let (range_ms, after) = match request.page_token.as_str() {
        "" => {
            let (start_ms, stop_ms) = range("range", request.range.as_ref(), now_ms())?;
            ((start_ms, stop_ms - 1), None)
        }
        text => match PageToken::decode(text) {
            Some(token) if token.query == query => (token.range_ms, Some(token.position)),
            _ => {
                let rule = "is not from the page before, with the same tsuid and range";
                return Err(invalid_field("page_token", rule));
            }
        },
    };
    let page = PageRequest {
        source,
        range_ms,
        size,
        after,
    };
    let admitted = admit(engine, context, "annotations:list", range_ms).await?;
    let page = annotations
        .list(engine.storage(), &page, admitted.context())
        .await;
    let page = page.map_err(|error| failure::range_status(&error, &table(engine)))?;
    let next = page.next.map(|position| {
        PageToken {
            query,
            range_ms,
            position,
        }
        .encode()
    });
    let response = ListAnnotationsResponse {
        annotations: page.annotations.iter().map(message).collect(),
        next_page_token: next.unwrap_or_default(),
    };
    drop(page.held);
    Ok(response)
}

async fn delete_range(
    engine: &Engine,
    request: Request<DeleteAnnotationRangeRequest>,
) -> Result<DeleteAnnotationRangeResponse, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let annotations = Annotations::from_engine(engine);
    if request.tsuids.len() > MAX_ITEMS || (request.tsuids.is_empty() && !request.global) {
        return Err(count("tsuids", request.tsuids.len(), MAX_ITEMS));
    }
    let (start_ms, stop_ms) = range("range", request.range.as_ref(), now_ms())?;
    let mut sources = Vec::with_capacity(request.tsuids.len() + 1);
    for (index, tsuid) in request.tsuids.iter().enumerate() {
        let field = format!("tsuids[{index}]");
        if tsuid.is_empty() {
            return Err(invalid_field(
                &field,
                "is empty; `global` selects global annotations",
            ));
        }
        sources.push(convert::source(annotations.layout(), &field, tsuid)?);
    }
    sources.sort_unstable();
    sources.dedup();
    if request.global {
        sources.push(Source::Global);
    }
    let range_ms = (start_ms, stop_ms - 1);
    let admitted = admit(engine, context, "annotations:delete", range_ms).await?;
    let deleted = annotations
        .remove_range(engine.storage(), &sources, range_ms, admitted.context())
        .await
        .map_err(|error| failure::range_status(&error, &table(engine)))?;
    Ok(DeleteAnnotationRangeResponse { deleted })
}

/// Admits a scan, which is then among the running queries.
async fn admit(
    engine: &Engine,
    context: RequestContext,
    what: &str,
    range_ms: (i64, i64),
) -> Result<Admitted, Status> {
    let description = QueryDescription {
        sub_queries: vec![what.to_owned()],
        range_ms,
    };
    let admitted = engine.admit(context, description, None).await;
    admitted.map_err(|error| query_status(&error, "", &table(engine)))
}

fn table(engine: &Engine) -> Arc<str> {
    engine.storage().table.to_string().into()
}

pub(super) fn message(stored: &StoredAnnotation) -> oxtsdb_proto::data::v1::Annotation {
    oxtsdb_proto::data::v1::Annotation {
        etag: stored.etag.clone(),
        ..convert::annotation(&stored.annotation)
    }
}

#[cfg(test)]
mod tests;
