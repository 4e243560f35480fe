//! Sources of the index and of results.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_query::{Engine, QueryError};
use oxtsdb_schema::{Tsuid, Uid, UidKind, UidMeta};

use crate::annotation::{AnnotationError, AnnotationKey, Annotations, StoredAnnotation};
use crate::lookup::SeriesNames;
use crate::meta::changes::{MetaChanges, Subject};
use crate::meta::{MetaError, MetaTable, SeriesError, SeriesMeta, names};
use crate::uids::{Uids, UidsError, name_error};

/// Documents that are read concurrently.
const CONCURRENT: usize = 16;

/// The stored record of a subject.
#[derive(Clone, Debug)]
pub enum Record {
    /// The metadata of a UID.
    Uid(UidMeta),
    /// A series that has a document.
    Series {
        /// The TSUID.
        tsuid: Tsuid,
        /// Its names.
        names: SeriesNames,
        /// The document and the counter.
        meta: SeriesMeta,
    },
    /// An annotation, of a series or global.
    Annotation(StoredAnnotation),
}

impl Record {
    /// Memory that it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        const OTHER: usize = 1024;
        let texts = match self {
            Self::Uid(meta) => meta.description.len() + meta.notes.len(),
            Self::Series { meta, .. } => {
                let document = meta.document.as_ref();
                document.map_or(0, |document| document.description.len() + document.notes.len())
            }
            Self::Annotation(stored) => return stored.annotation.held_bytes(),
        };
        (OTHER + texts) as u64
    }
}

/// The tables, and the UID service.
#[derive(Clone, Debug)]
pub struct Sources {
    pub(super) uids: Uids,
    pub(super) meta: MetaTable,
    pub(super) engine: Engine,
}

impl Sources {
    /// Creates sources from the UID service, table `tsdb-meta`, and the engine, which reads table `tsdb`.
    pub fn new(uids: Uids, meta: MetaTable, engine: Engine) -> Self {
        Self { uids, meta, engine }
    }

    /// Changes through this process.
    pub(super) fn changes(&self) -> &MetaChanges {
        self.uids.meta_changes()
    }

    /// A text that identifies an index of these tables.
    pub(super) fn identity(&self) -> String {
        let storage = self.engine.storage();
        format!("{} {:?}", storage.table, storage.layout)
    }

    /// The record that is stored now; `None` if there is none, or it cannot be decoded.
    ///
    /// # Errors
    ///
    /// If the store or the UID service fails.
    pub(super) async fn read(&self, subjects: &[Subject]) -> Result<Vec<Option<Record>>, QueryError> {
        let uids: Vec<(UidKind, Uid)> = subjects
            .iter()
            .filter_map(|subject| match subject {
                Subject::Uid(kind, uid) => Some((*kind, *uid)),
                Subject::Series(_) | Subject::Annotation(..) => None,
            })
            .collect();
        let mut metas = self.uid_metas(&uids).await?.into_iter();
        let metas: Vec<_> = subjects
            .iter()
            .map(|subject| match subject {
                Subject::Uid(..) => metas.next().flatten(),
                Subject::Series(_) | Subject::Annotation(..) => None,
            })
            .collect();
        let items: Vec<(Subject, Option<UidMeta>)> = subjects.iter().cloned().zip(metas).collect();
        let this = self.clone();
        let reads = stream::iter(items).map(move |(subject, meta)| {
            let this = this.clone();
            async move {
                match subject {
                    Subject::Uid(..) => Ok(meta.map(Record::Uid)),
                    Subject::Series(tsuid) => this.series(&tsuid).await,
                    Subject::Annotation(series, start_ms) => this.annotation(series.as_ref(), start_ms).await,
                }
            }
        });
        reads.buffered(CONCURRENT).try_collect().await
    }

    /// The metadata of UIDs; `None` for each that has no name.
    pub(super) async fn uid_metas(
        &self,
        uids: &[(UidKind, Uid)],
    ) -> Result<Vec<Option<UidMeta>>, QueryError> {
        if uids.is_empty() {
            return Ok(Vec::new());
        }
        let outcomes = self.uids.get_metas(uids, None).await.map_err(name_error)?;
        let mut metas = Vec::with_capacity(uids.len());
        for ((kind, uid), meta) in uids.iter().zip(outcomes) {
            let meta = match meta {
                // The documents before it fill the response.
                Err(rejection) if rejection.reason == Some(ErrorReason::MessageTooLarge) => {
                    let alone = self.uids.get_metas(&[(*kind, *uid)], None).await;
                    alone.map_err(name_error)?.pop()
                }
                meta => Some(meta),
            };
            metas.push(match meta {
                Some(Ok(meta)) => Some(meta),
                Some(Err(rejection)) if rejection.is_retry_safe() => {
                    let error = UidsError::from_item(*kind, &uid.to_string(), rejection);
                    return Err(name_error(error).into());
                }
                Some(Err(_)) | None => None,
            });
        }
        Ok(metas)
    }

    async fn series(&self, tsuid: &Tsuid) -> Result<Option<Record>, QueryError> {
        match self.meta.series(tsuid).await {
            Ok(meta) if meta.document.is_some() => self.named(tsuid, meta).await,
            Ok(_) => Ok(None),
            Err(MetaError::Store(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// A series with its names; `None` if one of its UIDs has none.
    pub(super) async fn named(&self, tsuid: &Tsuid, meta: SeriesMeta) -> Result<Option<Record>, QueryError> {
        match names::resolve_tsuid(&self.uids, tsuid, None).await {
            Ok(names) => Ok(Some(Record::Series {
                tsuid: tsuid.clone(),
                names,
                meta,
            })),
            Err(SeriesError::Uids(error)) => Err(name_error(error).into()),
            Err(_) => Ok(None),
        }
    }

    async fn annotation(&self, series: Option<&Tsuid>, start_ms: i64) -> Result<Option<Record>, QueryError> {
        let annotations = Annotations::from_engine(&self.engine);
        let tsuid = series.map_or(&[][..], Tsuid::as_bytes);
        let Ok(key) = AnnotationKey::at_instant(annotations.layout(), tsuid, start_ms) else {
            return Ok(None);
        };
        match annotations.get(&key).await {
            Ok(stored) => Ok(stored.map(Record::Annotation)),
            Err(AnnotationError::Store(error)) => Err(error.into()),
            Err(AnnotationError::Query(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}
