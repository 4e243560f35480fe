//! `tsdb scan`: rows and cells as they are stored.

mod names;
mod output;
mod selection;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::tz::TimeZone;
use oxtsdb_proto::data::v1::scan_rows_request::View;
use oxtsdb_proto::data::v1::scan_rows_response::Row;
use oxtsdb_proto::data::v1::{ScanRowsRequest, ScanRowsResponse};
use tonic::{Code, Status, Streaming};
use tracing::warn;

use crate::cli::{DataTarget, UidTarget};
use crate::query::print;
use crate::remote::{describe, may_pass};
use crate::time_zone::{self, TimeZoneArgs};
use names::Names;
use selection::Selection;

/// Show rows and cells as they are stored
///
/// `tsdb scan [START [END]] METRIC [TAGK=FILTER ...]`, `tsdb scan [START [END]] --tsuid HEX ...` or
/// `tsdb scan [START [END]] --all`. Times and filters are those of `tsdb query`; without times all
/// hours are shown, else those that overlap START to END. Rows are shown whole.
///
/// A row is ROW_KEY, METRIC, BASE_TIME, TIME and tags, with tabs between; then its cells, indented by
/// two blanks, QUALIFIER, VALUE, TYPE and VERSION_MS; then the cell's points, indented by four,
/// TIMESTAMP and NUMBER. Keys, qualifiers and values are hex. A UID without a name is shown as
/// [UID]. With --import, lines that `tsdb import` reads.
///
/// Exit status: 0 also if there are no rows.
#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    target: DataTarget,

    #[command(flatten)]
    uid_target: UidTarget,

    /// Series by TSUID, as hex; may be repeated
    #[arg(long, value_name = "HEX")]
    tsuid: Vec<String>,

    /// All rows there are
    #[arg(long)]
    all: bool,

    /// The metric, where it could be taken for a time
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,

    /// So many rows at most; 0: all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    limit: u64,

    /// Cells as bytes, not decoded
    #[arg(long, conflicts_with_all = ["decoded", "full", "import"])]
    raw: bool,

    /// Points, and the bytes only of cells that hold none
    #[arg(long, conflicts_with_all = ["full", "import"])]
    decoded: bool,

    /// Bytes and points [default]
    #[arg(long, conflicts_with = "import")]
    full: bool,

    /// Points as lines METRIC TIMESTAMP VALUE TAGK=TAGV ..., for `tsdb import`
    #[arg(long)]
    import: bool,

    /// Do not ask the UID service for names; TSUIDs are shown instead
    #[arg(long, conflicts_with = "import")]
    no_names: bool,

    #[command(flatten)]
    time_zone: TimeZoneArgs,

    /// [START [END]] [METRIC [TAGK=FILTER ...]]
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

/// How often a scan that broke is taken up again without having gone on.
const ATTEMPTS: u32 = 5;

/// Scans, and prints rows as they come.
///
/// # Errors
///
/// If the arguments select nothing, or a call fails.
pub(crate) async fn run(args: ScanArgs) -> anyhow::Result<ExitCode> {
    let zone = args.time_zone.zone()?;
    let selection = selection::selection(
        &args.words,
        args.metric.as_deref(),
        &args.tsuid,
        args.all,
        time_zone::now_ms()?,
        &zone,
    )?;
    let view = match (args.raw, args.decoded || args.import) {
        (true, _) => View::Raw,
        (_, true) => View::Decoded,
        _ => View::Full,
    };
    let uid_target = args.uid_target.open()?;
    let names_failed = |status: Status| uid_target.error("look up names", &status);
    let names = if args.no_names {
        None
    } else {
        Some(Names::connect(uid_target.uids()).await.map_err(names_failed)?)
    };
    let mut printer = Printer {
        names,
        view,
        zone,
        import: args.import,
        left_out: 0,
    };

    let target = args.target.open()?;
    let mut scan = ResumingScan::new(selection, view, args.limit);
    while let Some(rows) = scan
        .next(|request| {
            let mut client = target.data();
            async move { Ok(client.scan_rows(request).await?.into_inner()) }
        })
        .await
        .map_err(|status| target.error("scan", &status))?
    {
        printer.print(&rows).await.map_err(|error| match error {
            PrintError::Names(status) => names_failed(status),
            PrintError::Output(error) => error.into(),
        })?;
    }
    if printer.left_out > 0 {
        let count = printer.left_out;
        eprintln!("left out {count} cells or points that cannot be imported");
    }
    Ok(ExitCode::SUCCESS)
}

/// A scan that goes on behind the last row when its stream breaks.
struct ResumingScan {
    request: ScanRowsRequest,
    stream: Option<Streaming<ScanRowsResponse>>,
    failures: u32,
    /// The limit of the contract has no word for "no more".
    done: bool,
}

impl ResumingScan {
    fn new(selection: Selection, view: View, limit: u64) -> Self {
        let request = ScanRowsRequest {
            source: Some(selection.source),
            range: Some(selection.range),
            view: view as i32,
            limit,
            ..ScanRowsRequest::default()
        };
        Self {
            request,
            stream: None,
            failures: 0,
            done: false,
        }
    }

    /// The next rows; `None` after the last.
    async fn next<F>(&mut self, open: impl Fn(ScanRowsRequest) -> F) -> Result<Option<Vec<Row>>, Status>
    where
        F: Future<Output = Result<Streaming<ScanRowsResponse>, Status>>,
    {
        while !self.done {
            let stream = match &mut self.stream {
                Some(stream) => Ok(stream),
                None => match open(self.request.clone()).await {
                    Ok(stream) => Ok(self.stream.insert(stream)),
                    Err(status) => Err(status),
                },
            };
            let answer = match stream {
                Ok(stream) => stream.message().await,
                Err(status) => Err(status),
            };
            match answer {
                Ok(Some(answer)) => {
                    self.failures = 0;
                    self.remember(&answer.rows);
                    return Ok(Some(answer.rows));
                }
                Ok(None) => self.done = true,
                // A first call that fails is told at once. A server may give each call its own
                // deadline, and a long scan takes several.
                Err(status)
                    if (may_pass(&status) || status.code() == Code::DeadlineExceeded)
                        && self.failures < ATTEMPTS
                        && !self.request.start_after_row_key.is_empty() =>
                {
                    self.failures += 1;
                    self.stream = None;
                    warn!(status = describe(&status), "the scan broke, taking it up again");
                    tokio::time::sleep(Duration::from_millis(100) * self.failures).await;
                }
                Err(status) => return Err(status),
            }
        }
        Ok(None)
    }

    fn remember(&mut self, rows: &[Row]) {
        let Some(last) = rows.last() else { return };
        self.request.start_after_row_key.clone_from(&last.row_key);
        if self.request.limit > 0 {
            self.request.limit = self.request.limit.saturating_sub(rows.len() as u64);
            self.done = self.request.limit == 0;
        }
    }
}

/// Prints rows.
struct Printer {
    names: Option<Names>,
    view: View,
    zone: TimeZone,
    import: bool,
    left_out: u64,
}

/// Why rows could not be printed.
enum PrintError {
    Names(Status),
    Output(std::io::Error),
}

impl Printer {
    async fn print(&mut self, rows: &[Row]) -> Result<(), PrintError> {
        if let Some(names) = &mut self.names {
            let tsuids = rows.iter().map(|row| row.tsuid.as_ref());
            names.learn(tsuids).await.map_err(PrintError::Names)?;
        }
        let mut text = String::new();
        for row in rows {
            let name = self.names.as_ref().and_then(|names| names.series(&row.tsuid));
            if !self.import {
                text += &output::row(row, name.as_ref(), self.view, &self.zone);
                continue;
            }
            match name.filter(|name| name.complete) {
                Some(name) => {
                    let (lines, left_out) = output::import_lines(row, &name);
                    text += &lines;
                    self.left_out += left_out;
                }
                None => self.left_out += row.cells.len() as u64,
            }
        }
        print(&text).map_err(PrintError::Output)
    }
}
