//! Writes of bodies, chunk by chunk.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use oxtsdb_ingest::{Caller, Example, NewHistogram, RejectionKind};
use oxtsdb_metadata::uids::series::{Requested, SeriesRef};

use super::{Chunk, ChunkHistogram, ChunkPoint, MappedSeries, RejectedPoint, sent};
use crate::front::counters::Counters;
use crate::http::api_request::ApiParts;
use crate::http::error::HttpError;
use crate::http::put::outcome::{Batches, Flags, Outcome, Violation};
use crate::http::request_body::RequestBody;

/// Bodies up to this size are decoded inline.
const INLINE_BYTES: usize = 64 << 10;

/// The outcome of a body.
#[derive(Debug, Default)]
pub(in crate::http) struct Written {
    /// Of all points and cells.
    pub(in crate::http) outcome: Outcome,
    /// Histograms with all their points and cells.
    pub(in crate::http) histograms: usize,
    /// Points and cells of histograms.
    pub(in crate::http) histogram_points: usize,
    /// Samples that say that there is no value.
    pub(in crate::http) without_value: usize,
}

impl Written {
    /// Counts the histograms of a chunk.
    fn count(&mut self, histograms: &[ChunkHistogram], failed: &Failed) {
        for histogram in histograms {
            let failed_count = failed.count(histogram);
            self.histogram_points += histogram.points.len() + histogram.cells.len() - failed_count;
            self.histograms += usize::from(histogram.is_complete && failed_count == 0);
        }
    }
}

/// The places of the points and of the cells of a chunk that were not stored, ascending.
#[derive(Debug, Default)]
struct Failed {
    points: Vec<usize>,
    cells: Vec<usize>,
}

impl Failed {
    /// How many are of a histogram.
    fn count(&self, histogram: &ChunkHistogram) -> usize {
        let within = |failed: &[usize], places: &Range<usize>| {
            let before = |place: usize| failed.partition_point(|failed| *failed < place);
            before(places.end) - before(places.start)
        };
        within(&self.points, &histogram.points) + within(&self.cells, &histogram.cells)
    }
}

/// The points of an outcome that were not stored, for the sender: how many, and why the first ones.
pub(in crate::http) fn error(outcome: &Outcome) -> Option<(StatusCode, String)> {
    const SHOWN: usize = 3;
    let Outcome {
        success,
        failed,
        details,
        failure,
        ..
    } = outcome;
    if *failed == 0 {
        return None;
    }
    let shown: Vec<String> = details
        .iter()
        .take(SHOWN)
        .map(|(number, reason)| format!("{number}: {reason}"))
        .collect();
    let more = if *failed > SHOWN { ", …" } else { "" };
    let text = format!(
        "partial write: {success} points stored, dropped={failed}: {}{more}",
        shown.join(", ")
    );
    Some((failure.unwrap_or(StatusCode::BAD_REQUEST), text))
}

/// Decodes a body chunk by chunk, and stores the points of each. `decode` takes where a chunk begins, and returns where the
/// next one does; the end of the body is the end.
///
/// # Errors
///
/// If a chunk cannot be decoded, or not be stored: the chunks before it are stored then, and a repetition is safe.
pub(in crate::http) async fn write<S, D>(
    parts: &ApiParts,
    caller: &Caller,
    mut body: RequestBody,
    mut state: S,
    decode: D,
) -> Result<Written, HttpError>
where
    S: Send + 'static,
    D: Fn(&Bytes, &mut S) -> Result<Option<Chunk>, HttpError> + Send + Sync + 'static,
{
    let flags = Flags {
        details: true,
        ..Flags::default()
    };
    let deadline = flags.deadline();
    let is_small = body.bytes.len() <= INLINE_BYTES;
    let compute = body.compute(parts.writer.compute());
    let mut charged = 0;
    let mut written = Written::default();
    let mut batches = Batches::new(&parts.counters, caller, flags);
    let decode = Arc::new(decode);
    loop {
        let chunk = if is_small {
            decode(&body.bytes, &mut state)?
        } else {
            let (bytes, decode) = (body.bytes.clone(), Arc::clone(&decode));
            let job = move || (decode(&bytes, &mut state), state);
            let (chunk, next) = compute.run(job).await?;
            state = next;
            chunk?
        };
        let Some(chunk) = chunk else {
            written.outcome = batches.outcome();
            return Ok(written);
        };
        Counters::add(&parts.counters.left_out, chunk.left_out);
        let held = chunk.held_bytes();
        if held > charged {
            body.charge(held - charged).await?;
            charged = held;
        }
        let failed = store(parts, &body.bytes, &chunk, &mut batches, deadline).await?;
        written.count(&chunk.histograms, &failed);
        written.without_value += chunk.without_value;
    }
}

/// Stores a chunk of a body. Returns the places of what was not stored.
async fn store(
    parts: &ApiParts,
    body: &[u8],
    chunk: &Chunk,
    batches: &mut Batches<'_>,
    deadline: std::time::Instant,
) -> Result<Failed, HttpError> {
    for rejected in &chunk.rejected {
        let violation = match rejected.kind {
            RejectionKind::Value | RejectionKind::Timestamp => Violation::InvalidValue,
            _ => Violation::IllegalArgument,
        };
        let violation = violation(rejected.kind, rejected.reason.clone());
        batches.reject(rejected.number, violation, |reason| Example {
            reason: reason.to_owned(),
            point: match &rejected.point {
                RejectedPoint::Sent(sent) => sent.clone(),
                RejectedPoint::OfSeries(series) => chunk.shown(series, body),
            },
        });
    }
    let all_tags: Vec<(&str, &str)> = chunk
        .tags
        .iter()
        .map(|(key, value)| (chunk.at(key), chunk.at(value)))
        .collect();
    let tags_of = |series: &MappedSeries| {
        all_tags
            .get(series.tags.start as usize..series.tags.end as usize)
            .unwrap_or_default()
    };
    let series_ref = |series: &MappedSeries| {
        let (metric, tags) = (chunk.at(&series.metric), tags_of(series));
        match chunk.sent_as {
            Some(sent_as) if !series.sent.is_empty() => SeriesRef::Text {
                text: (sent_as.text)(metric, sent(body, &series.sent)),
                tags,
            },
            _ => SeriesRef::Names { metric, tags },
        }
    };
    let mut end = |count: usize, written, series_at: &dyn Fn(usize) -> Option<MappedSeries>| {
        let errors = batches.end(count, written)?;
        for error in &errors {
            let Some(series) = series_at(error.index) else {
                continue;
            };
            batches.reject_point(series.number, &error.reason, tags_of(&series), |reason| Example {
                reason: reason.to_owned(),
                point: chunk.shown(&series, body),
            });
        }
        let mut failed: Vec<usize> = errors.iter().map(|error| error.index).collect();
        failed.sort_unstable();
        Ok::<_, HttpError>(failed)
    };
    let mut failed = Failed::default();
    let points = &chunk.points;
    if !points.is_empty() {
        let requested = points.iter().map(|ChunkPoint { series, .. }| {
            let known = series.known.and_then(|index| chunk.known.get(index as usize));
            match known {
                Some(known) => Requested::Known(known.clone()),
                None => Requested::Series(series_ref(series)),
            }
        });
        let point = |index: usize| (points[index].timestamp, points[index].value);
        let written = parts.writer.write_points(requested, point, Some(deadline)).await;
        failed.points = end(points.len(), written, &|index| {
            Some(points.get(index)?.series.clone())
        })?;
    }
    let cells = &chunk.cells;
    if !cells.is_empty() {
        let histograms = cells.iter().map(|cell| NewHistogram {
            series: series_ref(&cell.series),
            timestamp: cell.timestamp,
            value: &cell.value,
        });
        let histograms: Vec<_> = histograms.collect();
        let written = parts.writer.write_histograms(&histograms, Some(deadline)).await;
        failed.cells = end(cells.len(), written, &|index| {
            Some(cells.get(index)?.series.clone())
        })?;
    }
    Ok(failed)
}
