//! Encodes expression results as messages.

use std::iter::once;

use oxtsdb_proto::data::v1::query_expressions_response::{Done, Frame, Series as SeriesMessage};
use oxtsdb_proto::data::v1::{QueryExpressionsRequest, QueryExpressionsResponse};
use oxtsdb_query::Statistics;
use oxtsdb_query::expression::Series;

use crate::grpc::query::frames::{blocks, frame_points, number, statistics_message};

/// The messages of a result, each encoded when the stream is polled.
pub(super) fn messages(
    lists: Vec<(String, Vec<Series>)>,
    statistics: Statistics,
    request: &QueryExpressionsRequest,
) -> impl Iterator<Item = QueryExpressionsResponse> + Send + use<> {
    let with_tsuids = request.include_tsuids;
    let encoding = (frame_points(request.frame_points), request.delta_timestamps);
    let mut next = 0;
    let outputs = lists.into_iter().flat_map(move |(output, list)| {
        let done = Done {
            output: output.clone(),
            series_count: number(list.len()),
        };
        let first = next;
        next += list.len();
        let series = list.into_iter().enumerate().flat_map(move |(place, series)| {
            let place = number(first + place);
            let head = head(place, &output, &series, with_tsuids);
            let points = blocks(place, series.points, encoding).map(Frame::Points);
            once(Frame::Series(head)).chain(points)
        });
        series.chain(once(Frame::Done(done)))
    });
    let last = once(Frame::Statistics(statistics_message(&statistics)));
    outputs
        .chain(last)
        .map(|frame| QueryExpressionsResponse { frame: Some(frame) })
}

fn head(place: u32, output: &str, series: &Series, with_tsuids: bool) -> SeriesMessage {
    let tags = series.tags.values();
    let tsuids = series.tsuids.iter().filter(|_| with_tsuids);
    SeriesMessage {
        series: place,
        output: output.to_owned(),
        alias: series.alias.as_deref().unwrap_or_default().to_owned(),
        metrics: series.metrics.values().map(ToString::to_string).collect(),
        tags: tags
            .map(|tag| (tag.key.to_string(), tag.value.to_string()))
            .collect(),
        aggregate_tags: series.aggregate_tags.values().map(ToString::to_string).collect(),
        tsuids: tsuids.map(|tsuid| tsuid.as_bytes().to_vec().into()).collect(),
    }
}
