//! `tsdb delete`: deletes points.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use oxtsdb_client::proto::data::v1::delete_points_request::Source;
use oxtsdb_client::proto::data::v1::scan_rows_request::Source as Selected;
use oxtsdb_client::proto::data::v1::{DeletePointsRequest, DeletePointsResponse};
use oxtsdb_command::progress::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;
use oxtsdb_command::time_zone::{self, TimeZoneArgs};
use oxtsdb_transfer::scan::selection::selection;

/// Delete the points of some series in a range of time
///
/// `tsdb delete START END METRIC [TAGK=FILTER ...]` or `tsdb delete START END --tsuid HEX ...`. Times and filters
/// are as for `tsdb query`; points at START and at END are deleted too. Without --yes nothing is deleted: the command
/// prints what would be. Names, metadata, annotations and histograms stay. Deleted points cannot be restored, except from a
/// snapshot or a copy.
///
/// A delete that was interrupted is completed by repeating it.
///
/// Exit status: 0 also if there are no points; 1 if cells cannot be decoded, or rows kept points because they were
/// written meanwhile.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Series by TSUID, in hex; can be repeated
    #[arg(long, value_name = "HEX")]
    tsuid: Vec<String>,

    /// The metric, if it looks like a time
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,

    /// Delete; without it, count only
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    time_zone: TimeZoneArgs,

    /// START END [METRIC [TAGK=FILTER ...]]
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

/// Deletes, or counts what would be deleted.
///
/// # Errors
///
/// If the arguments select nothing, or the call fails.
pub(crate) async fn run(args: DeleteArgs) -> anyhow::Result<ExitCode> {
    let zone = args.time_zone.zone()?;
    let now_ms = time_zone::now_ms()?;
    let metric = args.metric.as_deref();
    let selection = selection(&args.words, metric, &args.tsuid, false, now_ms, &zone)?;
    if selection.times < 2 {
        bail!("missing START and END: the first two words are the times of the points to delete");
    }
    let source = selection.source.map(|source| match source {
        Selected::Metric(metric) => Source::Metric(metric),
        Selected::Tsuids(tsuids) => Source::Tsuids(tsuids),
    });
    let request = DeletePointsRequest {
        source,
        range: Some(selection.range),
        dry_run: !args.yes,
    };
    let server = args.target.data()?;
    let bar = progress();
    // As long as the table is large.
    let mut steps = server.client.without_deadline().delete_points(request);
    let mut last = DeletePointsResponse::default();
    while let Some(step) = steps
        .next()
        .await
        .map_err(|error| server.error("delete", &error))?
    {
        bar.set_message(format!("{} points of {} series", step.points, step.series));
        last = step;
    }
    bar.finish_and_clear();
    print(&report(&last, args.yes))?;
    Ok(ExitCode::from(u8::from(
        last.damaged_cells > 0 || last.contended_rows > 0,
    )))
}

fn report(deleted: &DeletePointsResponse, is_done: bool) -> String {
    let verb = if is_done { "deleted" } else { "would delete" };
    let mut report = format!("{verb} {} points of {} series", deleted.points, deleted.series);
    if deleted.rows > 0 {
        report.push_str(&format!(" in {} rows", deleted.rows));
    }
    report.push('\n');
    if !is_done && deleted.points > 0 {
        report.push_str("nothing was deleted; --yes deletes\n");
    }
    if deleted.damaged_cells > 0 {
        let cells = deleted.damaged_cells;
        report.push_str(&format!(
            "{cells} cells cannot be decoded and stay; see `tsdb scan --full`\n"
        ));
    }
    if deleted.contended_rows > 0 {
        let rows = deleted.contended_rows;
        report.push_str(&format!(
            "{rows} rows kept points, because they were written meanwhile; repeat the command\n"
        ));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_what_was_deleted_and_what_stays() {
        let mut deleted = DeletePointsResponse {
            series: 2,
            points: 30,
            ..DeletePointsResponse::default()
        };
        assert_eq!(
            report(&deleted, false),
            "would delete 30 points of 2 series\nnothing was deleted; --yes deletes\n"
        );
        (deleted.rows, deleted.contended_rows) = (4, 1);
        assert_eq!(
            report(&deleted, true),
            "deleted 30 points of 2 series in 4 rows\n\
             1 rows kept points, because they were written meanwhile; repeat the command\n"
        );
    }
}
