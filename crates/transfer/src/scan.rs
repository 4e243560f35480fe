//! `tsdb scan`: rows and cells as they are stored.

mod names;
mod output;
#[cfg_attr(not(feature = "parquet"), path = "scan/no_parquet.rs")]
mod parquet;
pub mod selection;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use futures::future::LocalBoxFuture;
use jiff::tz::TimeZone;
use oxtsdb_client::proto::data::v1::{CellView, ScanRowsRequest, ScanTableRequest, StoredRow};
use oxtsdb_client::{Error, UidClient};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::{DataTarget, Server, UidTarget};
use oxtsdb_command::time_zone::{self, TimeZoneArgs};

use names::Names;
use parquet::ParquetFile;

/// Print rows and cells as they are stored
///
/// `tsdb scan [START [END]] METRIC [TAGK=FILTER ...]`, `tsdb scan [START [END]] --tsuid HEX ...` or
/// `tsdb scan [START [END]] --all`. Times and filters are as for `tsdb query`; without times all
/// hours are printed, else the hours that overlap START to END. Rows are never split.
///
/// A row is ROW_KEY, METRIC, BASE_TIME, TIME and tags, with tabs between; then its cells, indented by
/// two blanks, QUALIFIER, VALUE, TYPE and VERSION_MS; then the cell's points, indented by four,
/// TIMESTAMP and NUMBER. Keys, qualifiers and values are hex. A UID without a name is printed
/// as [UID]. --import prints lines that `tsdb import` reads.
///
/// --parquet writes the points to a file with columns metric, timestamp (milliseconds, UTC), value (double), integer (null unless
/// the value is an integer) and tags (a map), in the order of the table. A point that is stored in several cells is there as often.
///
/// Exit status: 0 also if there are no rows.
#[derive(Debug, Args)]
pub struct ScanArgs {
    #[command(flatten)]
    target: DataTarget,

    #[command(flatten)]
    uid_target: UidTarget,

    /// Series by TSUID, in hex; can be repeated
    #[arg(long, value_name = "HEX")]
    tsuid: Vec<String>,

    /// All rows
    #[arg(long)]
    all: bool,

    /// The metric, if it looks like a time
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,

    /// Maximum number of rows; 0: all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    limit: u64,

    /// Print cells as bytes, not decoded
    #[arg(long, conflicts_with_all = ["decoded", "full", "import"])]
    raw: bool,

    /// Print points, and the bytes only of cells without points
    #[arg(long, conflicts_with_all = ["full", "import"])]
    decoded: bool,

    /// Print bytes and points [default]
    #[arg(long, conflicts_with = "import")]
    full: bool,

    /// Print points as lines METRIC TIMESTAMP VALUE TAGK=TAGV ..., for `tsdb import`
    #[arg(long)]
    import: bool,

    /// Write points to a Parquet file, which must not exist. Needs a build with `--features parquet`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "decoded", "full", "import", "no_names"])]
    parquet: Option<PathBuf>,

    /// Print TSUIDs, without looking up names in the UID service
    #[arg(long, conflicts_with = "import")]
    no_names: bool,

    #[command(flatten)]
    time_zone: TimeZoneArgs,

    /// [START [END]] [METRIC [TAGK=FILTER ...]]
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

/// Scans, and prints rows as they arrive.
///
/// # Errors
///
/// If the arguments select nothing, or a call fails.
pub fn run(args: ScanArgs) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    Box::pin(execute(args))
}

async fn execute(args: ScanArgs) -> anyhow::Result<ExitCode> {
    let zone = args.time_zone.zone()?;
    let selection = selection::selection(
        &args.words,
        args.metric.as_deref(),
        &args.tsuid,
        args.all,
        time_zone::now_ms()?,
        &zone,
    )?;
    let view = match (args.raw, args.decoded || args.import || args.parquet.is_some()) {
        (true, _) => CellView::Raw,
        (_, true) => CellView::Decoded,
        _ => CellView::Full,
    };
    let names = if args.no_names {
        None
    } else {
        Some(NameLookUp::connect(args.uid_target.uid()?).await?)
    };
    let mut printer = Printer {
        names,
        view,
        zone,
        import: args.import,
        parquet: args.parquet.as_deref().map(ParquetFile::create).transpose()?,
        left_out: 0,
    };

    let server = args.target.data()?;
    let (range, view) = (Some(selection.range), view.into());
    // A scan has no deadline: its duration depends on the table.
    let client = server.client.without_deadline();
    let mut rows = match selection.source {
        Some(source) => client.scan_rows(ScanRowsRequest {
            source: Some(source),
            range,
            view,
            limit: args.limit,
            ..ScanRowsRequest::default()
        }),
        None => client.scan_table(ScanTableRequest {
            range,
            view,
            limit: args.limit,
            ..ScanTableRequest::default()
        }),
    };
    while let Some(rows) = rows.next().await.map_err(|error| server.error("scan", &error))? {
        printer.print(&rows).await?;
    }
    let count = printer.left_out;
    match printer.parquet {
        Some(file) => {
            let points = file.close()?;
            eprintln!("{points} points; left out {count} cells without points");
        }
        None if count > 0 => eprintln!("left out {count} cells or points that cannot be imported"),
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Names from the UID service.
struct NameLookUp {
    server: Server<UidClient>,
    names: Names,
}

impl NameLookUp {
    async fn connect(server: Server<UidClient>) -> anyhow::Result<Self> {
        match Names::connect(server.client.clone()).await {
            Ok(names) => Ok(Self { server, names }),
            Err(error) => Err(failed_look_up(&server, &error)),
        }
    }

    async fn learn(&mut self, rows: &[StoredRow]) -> anyhow::Result<()> {
        let tsuids = rows.iter().map(|row| row.tsuid.as_ref());
        let learned = self.names.learn(tsuids).await;
        learned.map_err(|error| failed_look_up(&self.server, &error))
    }
}

fn failed_look_up(server: &Server<UidClient>, error: &Error) -> anyhow::Error {
    server.error("look up names", error)
}

/// Prints rows.
struct Printer {
    names: Option<NameLookUp>,
    view: CellView,
    zone: TimeZone,
    import: bool,
    parquet: Option<ParquetFile>,
    left_out: u64,
}

impl Printer {
    async fn print(&mut self, rows: &[StoredRow]) -> anyhow::Result<()> {
        if let Some(look_up) = &mut self.names {
            look_up.learn(rows).await?;
        }
        let mut text = String::new();
        for row in rows {
            let look_up = self.names.as_ref();
            let name = look_up.and_then(|look_up| look_up.names.series(&row.tsuid));
            if let Some(file) = &mut self.parquet {
                match name {
                    Some(name) => self.left_out += file.add(row, &name)?,
                    None => self.left_out += row.cells.len() as u64,
                }
                continue;
            }
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
        Ok(print(&text)?)
    }
}
