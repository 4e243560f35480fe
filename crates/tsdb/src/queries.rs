//! `tsdb queries`: what a data service is answering, and how to end it.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_proto::data::v1::{EndQueryRequest, ListQueriesRequest, RunningQuery};

use crate::cli::DataTarget;

/// List the queries that a data service is answering, or end some
///
/// For each query, the oldest first: its number, for how long it has been answered, what it has read
/// and holds, and its questions. Exit status: 0 done; 1 if there is no such query.
#[derive(Debug, Args)]
pub(crate) struct QueriesArgs {
    #[command(flatten)]
    target: DataTarget,

    /// End the query with this number; its caller gets an error
    #[arg(long, value_name = "NUMBER")]
    end: Vec<u64>,
}

/// Lists, or ends.
///
/// # Errors
///
/// If the service does not answer, or there is no such query.
pub(crate) async fn run(args: QueriesArgs) -> anyhow::Result<ExitCode> {
    let target = args.target.open()?;
    let mut client = target.data();
    if args.end.is_empty() {
        let answer = client.list_queries(ListQueriesRequest {}).await;
        let answer = answer.map_err(|status| target.error("queries", &status))?;
        for query in &answer.into_inner().queries {
            println!("{}", line(query));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut missing = false;
    for id in args.end {
        let answer = client.end_query(EndQueryRequest { id }).await;
        match answer.map_err(|status| target.error("queries", &status)) {
            Ok(_) => println!("{id} ended"),
            Err(error) => {
                eprintln!("tsdb: {error}");
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
        query.questions.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_one_line() {
        let query = RunningQuery {
            id: 7,
            questions: vec!["sum:m".to_owned(), "avg:n{host=wildcard(*)}".to_owned()],
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
