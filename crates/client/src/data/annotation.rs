//! Calls of `oxtsdb.data.v1.AnnotationService`. Global annotations have an empty TSUID.

use bytes::Bytes;
use oxtsdb_proto::common::v1::TimeRange;
use oxtsdb_proto::data::v1::{
    DeleteAnnotationRangeRequest, DeleteAnnotationRequest, GetAnnotationRequest, ListAnnotationsRequest,
    PutAnnotationRequest,
};

use super::DataClient;
use crate::{Annotation, AnnotationPage, Error, Timestamp};

impl DataClient {
    /// Returns an annotation.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` if there is none.
    pub async fn annotation(&self, tsuid: impl Into<Bytes>, start: Timestamp) -> Result<Annotation, Error> {
        let request = GetAnnotationRequest {
            tsuid: tsuid.into(),
            start_ms: start.millis(),
        };
        let response = self.connection().call(&request).await?;
        Ok(response.annotation.unwrap_or_default().into())
    }

    /// Returns a page of annotations by their begin. A page can be empty although others follow.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` for the token of another query.
    pub async fn annotations(&self, request: ListAnnotationsRequest) -> Result<AnnotationPage, Error> {
        let page = self.connection().call(&request).await?;
        Ok(AnnotationPage {
            annotations: page.annotations.into_iter().map(Into::into).collect(),
            next: Some(page.next_page_token).filter(|token| !token.is_empty()),
        })
    }

    /// Creates an annotation or changes fields of the stored one, and returns it as stored.
    ///
    /// # Errors
    ///
    /// `ABORTED` if the precondition of the request does not hold.
    pub async fn put_annotation(&self, request: PutAnnotationRequest) -> Result<Annotation, Error> {
        let response = self.connection().call(&request).await?;
        Ok(response.annotation.unwrap_or_default().into())
    }

    /// Deletes an annotation.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` if there is none, unless the request allows it; `ABORTED` if its etag differs from the stored
    /// etag.
    pub async fn delete_annotation(&self, request: DeleteAnnotationRequest) -> Result<(), Error> {
        self.connection().call(&request).await.map(drop)
    }

    /// Deletes the annotations of series that begin in a range, and global ones if `global` is set. Returns how many
    /// there were.
    ///
    /// # Errors
    ///
    /// If the service fails; some of them may have been deleted.
    pub async fn delete_annotations(
        &self,
        tsuids: impl IntoIterator<Item = Bytes>,
        global: bool,
        range: TimeRange,
    ) -> Result<u64, Error> {
        let request = DeleteAnnotationRangeRequest {
            tsuids: tsuids.into_iter().collect(),
            global,
            range: Some(range),
        };
        Ok(self.connection().call(&request).await?.deleted)
    }
}
