//! `/api/annotations`: the global annotations of a range.

use oxtsdb_query::Hours;
use oxtsdb_query::QueryDescription;
use oxtsdb_query::annotation::{ends_within, global_annotations};
use oxtsdb_query::language::time::now_ms;
use oxtsdb_schema::annotation::millis;

use super::parse::end_before_start;
use super::{document, render};
use crate::http::api_request::ApiRequest;
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::reply::Reply;

/// GET.
pub(crate) async fn list(mut request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let range = document(&mut request).await?;
    let start = range.start_time;
    if start < 1 {
        return Err(HttpError::bad_request("Missing start time"));
    }
    let end = match range.end_time {
        0 => now_ms() / 1000,
        end => end,
    };
    if end < start {
        return Err(end_before_start());
    }
    let engine = &request.parts.engine;
    let range_ms = (millis(start), millis(end));
    let description = QueryDescription {
        sub_queries: vec!["annotations:global".to_owned()],
        range_ms,
    };
    let admitted = engine.admit(request.context, description, None).await?;
    let hours = Hours::overlapping(range_ms.0, range_ms.1);
    let (annotations, _held) = global_annotations(engine.storage(), hours, admitted.context()).await?;
    let mut body = BodyWriter::new();
    body.hold_of(admitted.budget())?;
    body.out().push(b'[');
    let inside = annotations
        .iter()
        .filter(|annotation| ends_within(annotation, (start, end)));
    for (place, annotation) in inside.enumerate() {
        if place > 0 {
            body.out().push(b',');
        }
        body.out().extend_from_slice(&render::annotation(annotation));
        body.roll()?;
    }
    body.out().push(b']');
    Ok(Reply::json(body.finish()?))
}
