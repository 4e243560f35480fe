//! Messages of the write calls, as the domain's types. Columns are borrowed, not copied.

use oxtsdb_ingest::columns::{Block, Continuation, Declaration, DeltaTimestamps, Tables};
use oxtsdb_proto::data::v1::columns::{Block as BlockMessage, SeriesDeclaration};
use oxtsdb_proto::data::v1::{Columns, DeltaTimestamps as DeltaTimestampsMessage};
use oxtsdb_proto::write_view::{self, SeriesColumns, SeriesKey, WriteView};
use tonic::Status;

use crate::grpc::status;

/// Adds the declarations of `columns` to `tables`. `within` is the path of the columns, with its dot.
pub(in crate::grpc) fn declare(within: &str, columns: &Columns, tables: &mut Tables) -> Result<(), Status> {
    let symbols = Continuation {
        first: columns.first_symbol,
        new: columns.new_symbols.iter().map(String::as_str),
    };
    let series = Continuation {
        first: columns.first_series,
        new: columns.new_series.iter().map(declaration),
    };
    tables
        .declare(symbols, series)
        .map_err(|violation| status::violation_status(within, &violation))
}

fn declaration(message: &SeriesDeclaration) -> Declaration<'_> {
    if message.tsuid.is_empty() {
        Declaration::Symbols {
            metric: message.metric_symbol,
            tags: &message.tag_symbols,
        }
    } else {
        Declaration::Tsuid(&message.tsuid)
    }
}

/// The blocks of `columns`.
pub(in crate::grpc) fn blocks(columns: &Columns) -> impl Iterator<Item = Block<'_>> {
    columns.blocks.iter().map(block)
}

fn block(message: &BlockMessage) -> Block<'_> {
    Block {
        series: &message.series,
        timestamps: &message.timestamps,
        deltas: message.delta_timestamps.as_ref().map(delta_timestamps),
        doubles: &message.values,
        ints: &message.int_values,
    }
}

fn delta_timestamps(message: &DeltaTimestampsMessage) -> DeltaTimestamps<'_> {
    DeltaTimestamps {
        first: message.first,
        deltas: &message.deltas,
        last: message.last,
    }
}

/// A block for each series. `numbers` has the numbers of the series in the table.
pub(super) fn series_blocks<'a>(
    points: &'a WriteView<'_>,
    numbers: &'a [u32],
) -> impl Iterator<Item = Block<'a>> {
    let numbers = numbers.iter().map(std::slice::from_ref);
    points.columns().zip(numbers).map(|(columns, number)| Block {
        series: number,
        ..series_block(columns)
    })
}

/// The names of a series as text, or its TSUID.
pub(super) fn series_name(points: &WriteView<'_>, number: u32) -> Option<String> {
    let mut text = String::new();
    let mut name = |metric: &str, tags: &mut dyn Iterator<Item = (&str, &str)>| {
        text.push_str(metric);
        tags.for_each(|(key, value)| text.push_str(&format!(" {key}={value}")));
    };
    match points.keys().nth(number as usize)? {
        SeriesKey::Missing => return None,
        SeriesKey::Encoded { metric, tags } => name(metric, &mut write_view::tags(tags)),
        SeriesKey::Name(message) => {
            let tags = message.tags.iter();
            name(
                &message.metric,
                &mut tags.map(|tag| (tag.key.as_str(), tag.value.as_str())),
            );
        }
        SeriesKey::Tsuid(tsuid) => text = format!("TSUID {}", hex::encode_upper(tsuid)),
    }
    Some(text)
}

fn series_block(columns: SeriesColumns<'_>) -> Block<'_> {
    Block {
        series: &[],
        timestamps: columns.timestamps,
        deltas: None,
        doubles: columns.values,
        ints: columns.int_values,
    }
}

/// How many points `columns` have.
pub(in crate::grpc) fn point_count(columns: &Columns) -> usize {
    blocks(columns).map(|block| block.point_count()).sum()
}

/// How many points the series have.
pub(super) fn series_point_count(points: &WriteView<'_>) -> usize {
    let blocks = points.columns().map(series_block);
    blocks.map(|block| block.point_count()).sum()
}
