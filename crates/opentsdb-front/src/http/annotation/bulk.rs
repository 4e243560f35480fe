//! `/api/annotation/bulk`: changes many annotations, or deletes all annotations of a range.

use std::collections::HashSet;

use futures::stream::{self, StreamExt as _};
use oxtsdb_metadata::annotation::{AnnotationKey, Annotations, Edit, Precondition, Source, series_of};
use oxtsdb_query::QueryDescription;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_schema::Annotation;

use super::{failure, parse, render};
use crate::http::api_request::ApiRequest;
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::reply::Reply;

/// Annotations that are changed concurrently.
const CONCURRENT: usize = 8;

/// POST: as `/api/annotation`, for each document.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    edit(request, Edit::merging).await
}

/// PUT: as `/api/annotation`, for each document.
pub(crate) async fn put(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    edit(request, Edit::replacing).await
}

/// Applies all documents if all can be applied, and returns the annotations that have changed. Documents of one
/// annotation are applied in their order.
async fn edit(mut request: ApiRequest<'_>, edit: fn(Annotation) -> Edit) -> Result<Reply, HttpError> {
    let engine = &request.parts.engine;
    let documents = parsed(&mut request.body, &engine.resources().compute, parse::bulk).await?;
    let annotations = Annotations::from_engine(engine).announcing(request.parts.uids.meta_changes());
    let mut edits = Vec::with_capacity(documents.len());
    for sent in documents {
        let key = AnnotationKey::as_sent(annotations.layout(), &sent.tsuid, sent.start_time);
        let key =
            key.map_err(|error| HttpError::bad_request(error.to_string()).with_details(shown(&sent)))?;
        let edit = edit(sent);
        if !edit.is_empty() {
            edits.push((key, edit));
        }
    }
    // A small edit returns all of a large annotation, and many may be of the same one.
    let description =
        QueryDescription::without_range(format!("annotations:edit ({} annotations)", edits.len()));
    let admitted = engine.admit(request.context, description, None).await?;
    let mut body = BodyWriter::new();
    body.hold_of(admitted.budget())?;
    body.out().push(b'[');
    let put = move |(key, edit): (AnnotationKey, Edit)| {
        let annotations = annotations.clone();
        async move { annotations.put(&key, &edit, &Precondition::None).await }
    };
    let mut stored = stream::iter(distinct_runs(edits))
        .flat_map(move |run| stream::iter(run).map(put.clone()).buffered(CONCURRENT));
    let mut is_first = true;
    while let Some(stored) = stored.next().await {
        let stored = stored.map_err(|error| failure::annotation_error(&error))?;
        if !std::mem::take(&mut is_first) {
            body.out().push(b',');
        }
        body.out()
            .extend_from_slice(&render::annotation(&stored.annotation));
        body.roll()?;
    }
    body.out().push(b']');
    Ok(Reply::json(body.finish()?))
}

/// Splits edits into runs without two edits of one annotation.
fn distinct_runs(edits: Vec<(AnnotationKey, Edit)>) -> Vec<Vec<(AnnotationKey, Edit)>> {
    let mut runs = Vec::new();
    let (mut run, mut seen) = (Vec::new(), HashSet::new());
    for edit in edits {
        let (row, qualifier) = edit.0.cell();
        if !seen.insert((row.to_vec(), qualifier.to_vec())) {
            seen.clear();
            seen.insert((row.to_vec(), qualifier.to_vec()));
            runs.push(std::mem::take(&mut run));
        }
        run.push(edit);
    }
    runs.push(run);
    runs
}

/// An annotation as OpenTSDB's errors show it.
fn shown(annotation: &Annotation) -> String {
    format!(
        "Annotation error: TSUID: {} Start: {}  Description: {}",
        annotation.tsuid,
        annotation.start_time,
        annotation.description.as_deref().unwrap_or("null")
    )
}

/// DELETE: the annotations of series, and global ones if `global` is set, that begin in a range.
pub(crate) async fn delete(mut request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let engine = &request.parts.engine;
    let range = if request.body.bytes.is_empty() {
        parse::BulkDelete::from_parameters(request.parameters, now_ms())?
    } else {
        let now_ms = now_ms();
        let parse = move |content: &[u8]| parse::BulkDelete::from_json(content, now_ms);
        parsed(&mut request.body, &engine.resources().compute, parse).await?
    };
    let annotations = Annotations::from_engine(engine);
    let mut sources = Vec::new();
    for text in range.tsuids.iter().flatten() {
        let series = series_of(annotations.layout(), text).map_err(|error| failure::key_error(&error))?;
        sources.push(Source::Series(series));
    }
    sources.sort_unstable();
    sources.dedup();
    if range.global {
        sources.push(Source::Global);
    }
    let range_ms = (range.start_ms, range.end_ms);
    let description = QueryDescription {
        sub_queries: vec![format!("annotations:delete ({} sources)", sources.len())],
        range_ms,
    };
    let admitted = engine.admit(request.context, description, None).await?;
    let deleted = annotations.remove_range(engine.storage(), &sources, range_ms, admitted.context());
    let deleted = deleted.await.map_err(|error| failure::annotation_error(&error))?;
    let tsuids = serde_json::to_string(&range.tsuids).unwrap_or_default();
    let body = format!(
        r#"{{"tsuids":{tsuids},"global":{},"startTime":{},"endTime":{},"totalDeleted":{deleted}}}"#,
        range.global, range.start_ms, range.end_ms
    );
    Ok(Reply::json(body.into_bytes()))
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::RowKeyLayout;

    use super::*;

    #[test]
    fn edits_of_one_annotation_are_in_different_runs() {
        let edit = |start| {
            let key = AnnotationKey::as_sent(&RowKeyLayout::default(), "", start).unwrap();
            (key, Edit::default())
        };
        let starts = |edits: [i64; 6]| {
            let runs = distinct_runs(edits.map(edit).into());
            let starts =
                |run: Vec<(AnnotationKey, Edit)>| run.iter().map(|(key, _)| key.start_time()).collect();
            runs.into_iter().map(starts).collect::<Vec<Vec<i64>>>()
        };
        assert_eq!(starts([1, 2, 3, 4, 5, 6]), [[1, 2, 3, 4, 5, 6]]);
        assert_eq!(starts([1, 2, 1, 3, 2, 2]), [vec![1, 2], vec![1, 3, 2], vec![2]]);
        assert_eq!(starts([7; 6]), vec![vec![7]; 6]);
    }
}
