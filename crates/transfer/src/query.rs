//! `tsdb query`: runs a query and prints its result.

mod arrow;
mod explain;
mod expression;
mod output;
mod picture;
mod plot;
mod request;
mod result;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use futures::future::LocalBoxFuture;
use jiff::tz::TimeZone;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;
use oxtsdb_command::time_zone::{self, TimeZoneArgs};
use oxtsdb_plot::Size;
use oxtsdb_proto::data::v1::QueryExpressionsRequest;
use oxtsdb_query::expression::function::NamedFunction;
use oxtsdb_query::{Aggregator, FilterType};

pub(crate) use request::filter;
use result::QueryOutput;

/// Query points, in OpenTSDB's query language
///
/// Times: 1h-ago (ms s m h d w n y), now, 2012-09-05, '2012-09-05 12:00:00Z' and all of RFC 3339, 2012-09-05T12:00 (--utc,
/// --timezone), OpenTSDB's 2012/09/05-12:00:00, 2012/09/05-12:00, 2012/09/05, seconds of at most 10 digits, or milliseconds.
/// START and END are inclusive; a date is its midnight.
///
/// An expression is AGGREGATOR[:DOWNSAMPLE][:rate[{counter,MAX,RESET}]][:explicit_tags]:METRIC
/// [{TAGK=FILTER,...}[{...}]], and as part also pre-agg, rollup_raw, rollup_fallback, rollup_fallback_raw,
/// percentiles[NUMBER,...] or show-histogram-buckets, for example `sum:1m-avg:rate:sys.cpu.nice{host=*}`. DOWNSAMPLE is
/// INTERVAL-FUNCTION[-FILL] with FILL zero or nan; with a `c` after the unit intervals are those of the
/// calendar: `1dc-sum`, `1nc-max-zero`. The tags in the first braces also group. FILTER is a value, `a|b`,
/// a pattern with `*`, or TYPE(...).
///
/// --expr computes over the results of several expressions, as OpenTSDB's /api/query/gexp:
/// `--expr 'scale(divide(sum:m{host=*},sum:n{host=*}),100)'`. sum, difference, multiply and divide join
/// series by tags; a missing value counts as 0. movingAverage takes a count or a time.
///
/// Annotations of the series are listed below their tables, and marked in charts; see `tsdb annotate`. CSV has none.
///
/// Prints nothing unless the result is complete; --format arrow prints it while it arrives, and only a complete one has the end
/// of its format. Exit status: 0 also if there are no points; 1 if
/// the query failed, for example because there is no such metric.
#[derive(Debug, Args)]
#[command(after_long_help = lists())]
pub struct QueryArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// Print times in JSON in milliseconds, not seconds
    #[arg(long)]
    ms: bool,

    /// Draw a chart of each series instead of a table, or a picture of all series into a file .svg or .png
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["format", "ms"])]
    plot: Option<Option<PathBuf>>,

    /// Width and height of the picture, in pixels
    #[arg(
        long,
        value_name = "WIDTHxHEIGHT",
        default_value = "1024x512",
        requires = "plot"
    )]
    plot_size: Size,

    /// Maximum number of charts
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    plot_series: usize,

    /// Time-out of the query, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,

    /// Do not print annotations
    #[arg(long)]
    no_annotations: bool,

    /// Also print global annotations
    #[arg(long, conflicts_with = "no_annotations")]
    global_annotations: bool,

    /// Compute as OpenTSDB, including its quirks, where its result differs
    #[arg(long)]
    opentsdb_quirks: bool,

    /// Print the plan of the query without running it
    #[arg(long, conflicts_with_all = ["format", "ms", "plot"])]
    explain: bool,

    /// Compute FUNCTION(EXPRESSION,...); can be repeated
    #[arg(long, value_name = "CALL", conflicts_with = "explain")]
    expr: Vec<String>,

    #[command(flatten)]
    time_zone: TimeZoneArgs,

    /// Start, end (default: now), and one or more expressions; with --expr no others
    #[arg(required = true, num_args = 1.., value_names = ["START [END] EXPRESSION"])]
    words: Vec<String>,
}

/// Output formats.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table for each series
    Table,
    /// As OpenTSDB's /api/query responds
    Json,
    /// Lines metric,tags,timestamp_ms,time,value
    Csv,
    /// A table in Arrow's IPC streaming format, for pandas, DuckDB and others; not to a terminal
    Arrow,
}

/// Runs the query.
///
/// # Errors
///
/// If the arguments are not a query, or the query fails.
pub fn run(args: QueryArgs) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    Box::pin(execute(args))
}

async fn execute(args: QueryArgs) -> anyhow::Result<ExitCode> {
    let zone = args.time_zone.zone()?;
    if let Some(file) = picture_of(&args) {
        // Before the query.
        picture::Form::from_path(file)?;
    } else if let (Some(_), Some(word)) = (&args.plot, args.words.first())
        && picture::Form::from_path(Path::new(word)).is_ok()
    {
        bail!("--plot draws in the terminal; for a picture, write `--plot={word}`");
    }
    let is_arrow = matches!(args.format, Format::Arrow);
    if is_arrow {
        arrow::check_output()?;
    }
    if args.expr.is_empty() && args.words.len() < 2 {
        let message = "missing expression, for example `sum:1m-avg:sys.cpu.nice{host=*}`\n";
        clap::Error::raw(ErrorKind::TooFewValues, message).exit();
    }
    let server = args.target.data()?;
    let client = server
        .client
        .with_timeout(Duration::from_secs(args.timeout.into()));
    if !args.expr.is_empty() {
        let request = expressions_request(&args, &zone)?;
        let outputs = request.outputs.clone();
        let frames = client.query_expressions(request).await;
        let frames = frames.map_err(|error| server.error("query", &error))?;
        if is_arrow {
            arrow::print(frames, &server, |frame| arrow::of_expression(frame, &outputs)).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let result = frames.into_result().await;
        let result = result.map_err(|error| server.error("query", &error))?;
        let series = result::expression_series(result, &outputs);
        return show(
            &args,
            &QueryOutput {
                series,
                global: Vec::new(),
            },
            &zone,
        );
    }
    let mut request = request::request(&args.words, time_zone::now_ms()?, &zone)?;
    request.opentsdb_quirks = args.opentsdb_quirks;
    request.include_annotations = !args.no_annotations;
    request.include_global_annotations = args.global_annotations;
    if args.explain {
        let plans = client.explain(request).await;
        let plans = plans.map_err(|error| server.error("explain", &error))?;
        print(&explain::text(&plans))?;
        return Ok(ExitCode::SUCCESS);
    }
    let frames = client.query(request).await;
    let frames = frames.map_err(|error| server.error("query", &error))?;
    if is_arrow {
        arrow::print(frames, &server, arrow::of_query).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let result = frames.into_result().await;
    let result = result.map_err(|error| server.error("query", &error))?;
    show(&args, &result::query_output(result), &zone)
}

/// The request of `--expr`.
fn expressions_request(args: &QueryArgs, zone: &TimeZone) -> anyhow::Result<QueryExpressionsRequest> {
    let (times, others) = request::times(&args.words, time_zone::now_ms()?, zone)?;
    ensure!(
        others.is_empty(),
        "`{}` is neither a time nor part of --expr; with --expr there are no other expressions",
        others.join(" ")
    );
    let mut request = expression::request(&args.expr, times, zone)?;
    request.opentsdb_quirks = args.opentsdb_quirks;
    Ok(request)
}

/// Prints a result.
fn show(args: &QueryArgs, result: &QueryOutput, zone: &TimeZone) -> anyhow::Result<ExitCode> {
    if let Some(file) = picture_of(args) {
        picture::write(file, args.plot_size, result, zone)?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = match args.format {
        _ if args.plot.is_some() => plot::plots(result, args.plot_series, zone),
        Format::Table => output::table(result, zone),
        Format::Json => output::json(result, args.ms),
        Format::Csv => output::csv(&result.series, zone)?,
        // Printed as it arrived.
        Format::Arrow => return Ok(ExitCode::SUCCESS),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The file of a picture; `None` for charts in the terminal.
fn picture_of(args: &QueryArgs) -> Option<&Path> {
    args.plot.as_ref()?.as_deref()
}

/// The aggregators, filter types and functions, from the tables that parse them.
fn lists() -> String {
    let aggregators: Vec<_> = Aggregator::ALL.iter().map(Aggregator::name).collect();
    let filters = FilterType::all().iter();
    let filters: Vec<_> = filters
        .map(|one| format!("{}({})", one.name(), one.example()))
        .collect();
    let functions: Vec<_> = NamedFunction::all().iter().map(NamedFunction::example).collect();
    format!(
        "Aggregators: {}\n\nFilter types: {}\n\nFunctions: {}",
        aggregators.join(", "),
        filters.join(", "),
        functions.join(", ")
    )
}
