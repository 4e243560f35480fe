//! Results as streams in Arrow's IPC format, which are printed as they arrive.

use std::collections::HashMap;
use std::io::{IsTerminal as _, stdout};

use anyhow::{Context as _, ensure};
use oxtsdb_arrow_stream::{BatchWriter, END, Row, Series, Value, schema};
use oxtsdb_client::{DataClient, ExpressionFrame, Points, QueryFrame, Results, Timestamp};
use oxtsdb_command::stdout::print_bytes;
use oxtsdb_command::target::Server;

use super::result::named;

/// The part of a frame that is printed.
pub(super) enum Printed {
    Series(Series),
    Points(Points),
    Nothing,
}

/// Rejects a terminal.
///
/// # Errors
///
/// If standard output is one.
pub(super) fn check_output() -> anyhow::Result<()> {
    ensure!(
        !stdout().is_terminal(),
        "--format arrow prints bytes, and standard output is a terminal; append `> FILE`, or pipe them into a program"
    );
    Ok(())
}

/// Prints a result. Without an error it has the end of a stream; nothing is printed before the first batch is complete.
///
/// # Errors
///
/// Those of the query, and of standard output.
pub(super) async fn print<F: Send + 'static>(
    mut frames: Results<F>,
    server: &Server<DataClient>,
    printed: impl Fn(F) -> Printed,
) -> anyhow::Result<()> {
    let mut all_series = HashMap::new();
    let mut batch = BatchWriter::default();
    let mut bytes = schema();
    while let Some(frame) = frames
        .next()
        .await
        .map_err(|error| server.error("query", &error))?
    {
        match printed(frame) {
            Printed::Series(series) => {
                all_series.insert(series.number, series);
            }
            Printed::Points(points) => {
                let series = all_series.get(&(points.series as usize));
                let series =
                    series.with_context(|| format!("points of undeclared series {}", points.series))?;
                let mut rows = points.iter().map(row).peekable();
                while rows.peek().is_some() {
                    batch.fill(series, &mut rows);
                    if batch.is_full() {
                        bytes.extend(batch.take());
                        print_bytes(&bytes)?;
                        bytes.clear();
                    }
                }
            }
            Printed::Nothing => {}
        }
    }
    bytes.extend(batch.take());
    bytes.extend(END);
    Ok(print_bytes(&bytes)?)
}

/// The part of a query's frame.
pub(super) fn of_query(frame: QueryFrame) -> Printed {
    match frame {
        QueryFrame::Series(series) => Printed::Series(Series::new(
            series.query as usize,
            series.number as usize,
            series.metric,
            series.tags,
        )),
        QueryFrame::Points(points) => Printed::Points(points),
        QueryFrame::Annotations { .. } | QueryFrame::Done { .. } | QueryFrame::Statistics(_) => {
            Printed::Nothing
        }
    }
}

/// The part of an expression's frame; `outputs` are numbered in place of sub-queries.
pub(super) fn of_expression(frame: ExpressionFrame, outputs: &[String]) -> Printed {
    match frame {
        ExpressionFrame::Series(series) => {
            let output = outputs.iter().position(|output| *output == series.output);
            let number = series.number as usize;
            let series = named(series, Vec::new());
            let output = output.unwrap_or_default();
            Printed::Series(Series::new(output, number, series.metric, series.tags))
        }
        ExpressionFrame::Points(points) => Printed::Points(points),
        ExpressionFrame::Done { .. } | ExpressionFrame::Statistics(_) => Printed::Nothing,
    }
}

fn row((timestamp, value): (Timestamp, oxtsdb_client::Value)) -> Row {
    Row {
        time_ms: timestamp.millis(),
        value: match value {
            oxtsdb_client::Value::Int(int) => Value::Int(int),
            oxtsdb_client::Value::Double(double) => Value::Double(double),
        },
    }
}
