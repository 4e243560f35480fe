//! Resolves the series of a request.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_ingest::{PointErrorReason, Resolution, Resolved, Writer};
use oxtsdb_metadata::uids::series::{Requested, Series, SeriesRef, SeriesText, Syntax};
use oxtsdb_proto::write_view::{SeriesKey, WriteView, tags};
use tonic::Status;

use crate::grpc::status;

/// The series of a request, in their order; some are [`known`]. Only the tags of the others are parsed.
///
/// # Errors
///
/// When the UID service fails; while it is unavailable, only if no series is cached.
pub(super) async fn resolve(
    writer: &Writer,
    points: &WriteView<'_>,
    known: Vec<Option<Series>>,
    deadline: Option<Instant>,
) -> Result<Vec<Resolved>, Status> {
    if known.iter().all(Option::is_some) {
        return Ok(known.into_iter().flatten().map(Ok).collect());
    }
    let (mut pairs, mut ends) = (Vec::new(), Vec::with_capacity(known.len()));
    for (key, known) in points.keys().zip(&known) {
        match key {
            SeriesKey::Encoded { tags: text, .. } if known.is_none() => pairs.extend(tags(text)),
            SeriesKey::Name(name) => {
                let tags = name.tags.iter();
                pairs.extend(tags.map(|tag| (tag.key.as_str(), tag.value.as_str())));
            }
            _ => {}
        }
        ends.push(pairs.len());
    }
    let mut start = 0;
    let requested = points
        .keys()
        .zip(known)
        .zip(ends)
        .filter_map(|((key, known), end)| {
            let tags = pairs
                .get(std::mem::replace(&mut start, end)..end)
                .unwrap_or_default();
            if let Some(known) = known {
                return Some(Requested::Known(known));
            }
            let series = match key {
                SeriesKey::Missing => return None,
                SeriesKey::Encoded { metric, tags: text } => SeriesRef::Text {
                    text: series_text(metric, text),
                    tags,
                },
                SeriesKey::Name(name) => SeriesRef::Names {
                    metric: &name.metric,
                    tags,
                },
                SeriesKey::Tsuid(tsuid) => SeriesRef::Tsuid(tsuid),
            };
            Some(Requested::Series(series))
        });
    let requested: Vec<_> = requested.collect();
    let resolved = writer.resolve(requested.into_iter(), deadline).await;
    let Resolution { series, outage } = resolved.map_err(|error| status::write_status(&error))?;
    if let Some(outage) = outage
        && !series.iter().any(Result::is_ok)
    {
        return Err(status::uids_status(&outage));
    }
    let missing = Arc::new(PointErrorReason::NoSeries);
    let mut resolved = series.into_iter();
    let in_order = points.keys().map(|key| match key {
        SeriesKey::Missing => Err(Arc::clone(&missing)),
        _ => resolved.next().unwrap_or_else(|| Err(Arc::clone(&missing))),
    });
    Ok(in_order.collect())
}

/// Of each series, what is cached by its text.
pub(super) fn known(writer: &Writer, points: &WriteView<'_>) -> Vec<Option<Series>> {
    let mut texts = Vec::with_capacity(points.keys().len());
    texts.extend(points.keys().filter_map(|key| match key {
        SeriesKey::Encoded { metric, tags } => Some(series_text(metric, tags)),
        _ => None,
    }));
    let mut known = writer.known(&texts).into_iter();
    let in_order = points.keys().map(|key| match key {
        SeriesKey::Encoded { .. } => known.next().flatten(),
        _ => None,
    });
    in_order.collect()
}

const fn series_text<'a>(metric: &'a str, tags: &'a str) -> SeriesText<'a> {
    SeriesText {
        syntax: Syntax::Protobuf,
        metric,
        tags,
    }
}
