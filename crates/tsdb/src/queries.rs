//! `tsdb queries`: lists and cancels running queries.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::proto::data::v1::RunningQuery;
use oxtsdb_command::target::DataTarget;

/// List the running queries of a data service, or cancel some
///
/// Prints a line for each query, the oldest first: its number, how long it has been running, what it has
/// read, the memory it holds, and its sub-queries; standard error says so if there is none. Exit status: 0 done; 1 if there is no such query.
#[derive(Debug, Args)]
pub(crate) struct QueriesArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Cancel the query with this number; its caller gets an error; can be repeated
    #[arg(long, value_name = "NUMBER")]
    end: Vec<u64>,
}

/// Lists or cancels.
///
/// # Errors
///
/// If the call fails.
pub(crate) async fn run(args: QueriesArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.data()?;
    if args.end.is_empty() {
        let queries = server.client.list_queries().await;
        let queries = queries.map_err(|error| server.error("queries", &error))?;
        for query in &queries {
            println!("{}", line(query));
        }
        if queries.is_empty() {
            eprintln!("no query is running");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut missing = false;
    for id in args.end {
        match server.client.cancel_query(id).await {
            Ok(()) => println!("{id} cancelled"),
            Err(error) => {
                eprintln!("tsdb: {}", server.error("queries", &error));
                missing = true;
            }
        }
    }
    Ok(ExitCode::from(u8::from(missing)))
}

/// A query in one line.
fn line(query: &RunningQuery) -> String {
    let elapsed = query.elapsed.unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
    let seconds = elapsed.seconds as f64 + f64::from(elapsed.nanos) / 1e9;
    format!(
        "{} {seconds:.1} s, {} series, {} rows, {} points, {} MiB read, {} MiB held: {}",
        query.id,
        query.series,
        query.rows,
        query.points,
        query.bytes >> 20,
        query.memory_bytes >> 20,
        query.sub_queries.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_one_line_each() {
        let query = RunningQuery {
            id: 7,
            sub_queries: vec!["sum:m".to_owned(), "avg:n{host=wildcard(*)}".to_owned()],
            elapsed: Some(prost_types::Duration {
                seconds: 1,
                nanos: 250_000_000,
            }),
            rows: 12,
            points: 3000,
            bytes: 5 << 20,
            memory_bytes: 1 << 20,
            series: 2,
            ..RunningQuery::default()
        };
        assert_eq!(
            line(&query),
            "7 1.2 s, 2 series, 12 rows, 3000 points, 5 MiB read, 1 MiB held: sum:m avg:n{host=wildcard(*)}"
        );
    }
}
