//! Metadata of series.

use oxtsdb_proto::common::v1::SeriesKey;
use oxtsdb_proto::data::v1::{
    DeleteSeriesMetaRequest, GetSeriesMetaRequest, PurgeMetaRequest, PurgeMetaResponse,
    SearchMetadataRequest, SearchMetadataResponse, SeriesMeta, SyncMetaRequest, SyncMetaResponse,
    UpdateSeriesMetaRequest,
};

use crate::results::Progress;
use crate::uid::meta::{field_mask, no_meta};
use crate::{DataClient, Error, Results};

/// How far a sync of metadata with the points has come; counts are of the whole sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncedMeta {
    /// Rows of points that were read by key.
    pub rows: u64,
    /// Series among them.
    pub series: u64,
    /// Documents of series created.
    pub series_created: u64,
    /// Documents of series with a corrected time of creation.
    pub series_corrected: u64,
    /// Documents of UIDs created.
    pub uids_created: u64,
    /// Documents of UIDs with a corrected time of creation.
    pub uids_corrected: u64,
    /// Series and UIDs that were left as they are, because something stored cannot be read.
    pub failed: u64,
    /// Whether the sync is complete.
    pub is_done: bool,
}

/// How far a purge of the metadata of series has come; counts are of the whole purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgedMeta {
    /// Documents found.
    pub documents: u64,
    /// Documents deleted.
    pub documents_deleted: u64,
    /// Counters deleted.
    pub counters_deleted: u64,
    /// The deployment keeps counters.
    pub keeps_counters: bool,
    /// Whether the purge is complete.
    pub is_done: bool,
}

impl DataClient {
    /// Returns the metadata of a series.
    ///
    /// # Errors
    ///
    /// If the call fails, among others with `SERIES_NOT_FOUND`.
    pub async fn get_series_meta(&self, series: SeriesKey) -> Result<SeriesMeta, Error> {
        let message = GetSeriesMetaRequest { series: Some(series) };
        let response = self.connection().call(&message).await?;
        response.meta.ok_or_else(no_meta)
    }

    /// Changes fields of a series' metadata, and returns all of it. `fields` are named as in the contract
    /// (`display_name`); `None`: all that are not empty. If there is no document, `creates` decides whether one is
    /// created.
    ///
    /// # Errors
    ///
    /// If the call fails, among others with `ETAG_MISMATCH` and `SERIES_NOT_FOUND`.
    pub async fn update_series_meta(
        &self,
        series: SeriesKey,
        meta: SeriesMeta,
        fields: Option<&[&str]>,
        creates: bool,
    ) -> Result<SeriesMeta, Error> {
        let message = UpdateSeriesMetaRequest {
            series: Some(series),
            meta: Some(meta),
            update_mask: fields.map(field_mask),
            allow_missing: creates,
        };
        let response = self.connection().call(&message).await?;
        response.meta.ok_or_else(no_meta)
    }

    /// Deletes the document of a series; its counter stays. With an etag, the stored document must have it.
    ///
    /// # Errors
    ///
    /// If the call fails, among others with `ETAG_MISMATCH`.
    pub async fn delete_series_meta(&self, series: SeriesKey, etag: Option<&str>) -> Result<(), Error> {
        let message = DeleteSeriesMetaRequest {
            series: Some(series),
            etag: etag.unwrap_or_default().to_owned(),
        };
        self.connection().call(&message).await.map(drop)
    }

    /// Searches metadata by text, and returns a page.
    ///
    /// # Errors
    ///
    /// If the call fails, among others with `FEATURE_DISABLED`.
    pub async fn search_metadata(
        &self,
        request: SearchMetadataRequest,
    ) -> Result<SearchMetadataResponse, Error> {
        self.connection().call(&request).await
    }

    /// Creates missing metadata of series and UIDs, and corrects times of creation, from the points; with
    /// `plan_only` nothing is changed. A stream that breaks is resumed where it broke.
    pub fn sync_meta(&self, plan_only: bool) -> Results<SyncedMeta> {
        let request = SyncMetaRequest {
            validate_only: plan_only,
            start_after: Vec::new().into(),
        };
        let progress = Results::resumed(
            self.connection().clone(),
            request,
            |request, progress: &SyncMetaResponse| {
                request.start_after = progress.position.clone();
                complete_if(progress.position.is_empty())
            },
        );
        let mut total = SyncedMeta::default();
        progress
            .convert(move |progress| {
                total.rows += progress.rows;
                total.series += progress.series;
                total.series_created += progress.series_created;
                total.series_corrected += progress.series_corrected;
                total.uids_created += progress.uids_created;
                total.uids_corrected += progress.uids_corrected;
                total.failed += progress.failed;
                total.is_done = progress.position.is_empty();
                Ok(total.clone())
            })
            .ending_with(|progress| progress.is_done)
    }

    /// Deletes the metadata of all series; with `plan_only` it is only counted. A stream that breaks is resumed
    /// where it broke.
    pub fn purge_meta(&self, plan_only: bool) -> Results<PurgedMeta> {
        let request = PurgeMetaRequest {
            validate_only: plan_only,
            start_after: Vec::new().into(),
        };
        let progress = Results::resumed(
            self.connection().clone(),
            request,
            |request, progress: &PurgeMetaResponse| {
                request.start_after = progress.position.clone();
                complete_if(progress.position.is_empty())
            },
        );
        let mut total = PurgedMeta::default();
        progress
            .convert(move |progress| {
                total.documents += progress.documents;
                total.documents_deleted += progress.documents_deleted;
                total.counters_deleted += progress.counters_deleted;
                total.keeps_counters = progress.keeps_counters;
                total.is_done = progress.position.is_empty();
                Ok(total.clone())
            })
            .ending_with(|progress| progress.is_done)
    }
}

fn complete_if(is_complete: bool) -> Progress {
    if is_complete {
        Progress::Complete
    } else {
        Progress::More
    }
}
