//! `tsdb query`: asks the data service, and shows the answer.

mod answer;
mod explain;
mod expression;
mod output;
mod plot;
mod request;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::error::ErrorKind;
use clap::{Args, ValueEnum};
use jiff::tz::TimeZone;
use oxtsdb_proto::data::v1::ExplainRequest;
use oxtsdb_proto::deadline::correct_timeout;
use tonic::Request;

use crate::cli::DataTarget;
use crate::time_zone::{self, TimeZoneArgs};
use answer::Series;
pub(crate) use request::filter;

/// Ask for points, in OpenTSDB's query language
///
/// Times: 1h-ago (ms s m h d w n y), now, 2012/09/05-12:00:00, 2012/09/05-12:00, 2012/09/05,
/// seconds of at most 10 digits, or milliseconds. START and END are inside.
///
/// An expression is AGGREGATOR[:DOWNSAMPLE][:rate[{counter,MAX,RESET}]][:explicit_tags]:METRIC
/// [{TAGK=FILTER,...}[{...}]], for example `sum:1m-avg:rate:sys.cpu.nice{host=*}`. Aggregators are all
/// of OpenTSDB's: sum, min, max, avg, count, none, dev, median, p99 and so on. DOWNSAMPLE is
/// INTERVAL-FUNCTION[-FILL] with FILL zero or nan; with a `c` behind the unit intervals are those of the
/// calendar: `1dc-sum`, `1nc-max-zero`. The tags in the first braces also group. FILTER is a value, `a|b`,
/// a pattern with `*`, or TYPE(...) with TYPE one of literal_or, iliteral_or, not_literal_or,
/// not_iliteral_or, wildcard, iwildcard, regexp.
///
/// With --expr points of several expressions are computed with, as by OpenTSDB's /api/query/gexp:
/// `--expr 'scale(divide(sum:m{host=*},sum:n{host=*}),100)'`. Functions are sum, difference, multiply,
/// divide (joined by tags; what is not there counts as 0), scale(q,FACTOR), absolute(q), alias(q,NAME),
/// movingAverage(q,COUNT) or (q,'5min'), highestMax(q,COUNT), highestCurrent(q,COUNT).
///
/// Nothing is printed unless the answer is whole. Exit status: 0 also if there are no points; 1 if
/// the query failed, for example because there is no such metric.
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    target: DataTarget,

    /// How to print the answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// In JSON give times in milliseconds; seconds otherwise
    #[arg(long)]
    ms: bool,

    /// Draw a chart of each series in place of a table
    #[arg(long, conflicts_with_all = ["format", "ms"])]
    plot: bool,

    /// Draw so many series at most
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    plot_series: usize,

    /// Give up after so long, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    timeout: u32,

    /// Answer as OpenTSDB, oddities included, where the answer would be another one
    #[arg(long)]
    opentsdb_quirks: bool,

    /// Say how the query would be answered, in place of answering it
    #[arg(long, conflicts_with_all = ["format", "ms", "plot"])]
    explain: bool,

    /// Compute with expressions: FUNCTION(EXPRESSION,...); may be given more than once
    #[arg(long, value_name = "CALL", conflicts_with = "explain")]
    expr: Vec<String>,

    #[command(flatten)]
    time_zone: TimeZoneArgs,

    /// Start, end (now, if left out), and one or more expressions; with --expr no others
    #[arg(required = true, num_args = 1.., value_names = ["START [END] EXPRESSION"])]
    words: Vec<String>,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A table for each series
    Table,
    /// As OpenTSDB's /api/query answers
    Json,
    /// Lines metric,tags,timestamp_ms,time,value
    Csv,
}

/// Asks once.
///
/// # Errors
///
/// If the arguments are no query, or the query fails.
pub(crate) async fn run(args: QueryArgs) -> anyhow::Result<ExitCode> {
    let zone = args.time_zone.zone()?;
    if args.expr.is_empty() && args.words.len() < 2 {
        let message = "no expression, expected for example sum:1m-avg:sys.cpu.nice{host=*}\n";
        clap::Error::raw(ErrorKind::TooFewValues, message).exit();
    }
    if !args.expr.is_empty() {
        let series = ask_expressions(&args, &zone).await?;
        return show(&args, &series, &zone);
    }
    let mut request = request::request(&args.words, time_zone::now_ms()?, &zone)?;
    request.opentsdb_quirks = args.opentsdb_quirks;
    let target = args.target.open()?;
    if args.explain {
        let mut request = Request::new(ExplainRequest { query: Some(request) });
        request.set_timeout(Duration::from_secs(args.timeout.into()));
        let explained = target.data().explain(request).await;
        let explained = explained.map_err(|status| target.error("explain", &correct_timeout(status)))?;
        print(&explain::text(&explained.into_inner()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut request = Request::new(request);
    request.set_timeout(Duration::from_secs(args.timeout.into()));
    let answer = async { answer::receive(target.data().query(request).await?.into_inner()).await };
    let series = answer
        .await
        .map_err(|status| target.error("query", &correct_timeout(status)))?;
    show(&args, &series, &zone)
}

/// Asks for the expressions of `--expr`.
async fn ask_expressions(args: &QueryArgs, zone: &TimeZone) -> anyhow::Result<Vec<Series>> {
    let (range, others) = request::range(&args.words, time_zone::now_ms()?, zone)?;
    ensure!(
        others.is_empty(),
        "`{}` is neither a time nor of --expr; with --expr there are no other expressions",
        others.join(" ")
    );
    let mut request = expression::request(&args.expr, range, zone)?;
    request.opentsdb_quirks = args.opentsdb_quirks;
    let outputs = request.outputs.clone();
    let mut request = Request::new(request);
    request.set_timeout(Duration::from_secs(args.timeout.into()));
    let target = args.target.open()?;
    let answer = async {
        let frames = target.data().query_expressions(request).await?.into_inner();
        answer::receive_expressions(frames, &outputs).await
    };
    answer
        .await
        .map_err(|status| target.error("query", &correct_timeout(status)))
}

/// Prints an answer.
fn show(args: &QueryArgs, series: &[Series], zone: &TimeZone) -> anyhow::Result<ExitCode> {
    let text = match args.format {
        _ if args.plot => plot::plots(series, args.plot_series, zone),
        Format::Table => output::table(series, zone),
        Format::Json => output::json(series, args.ms),
        Format::Csv => output::csv(series, zone)?,
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints, and is content if the reader has seen enough (`| head`).
///
/// # Errors
///
/// If standard output fails otherwise.
pub(crate) fn print(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
