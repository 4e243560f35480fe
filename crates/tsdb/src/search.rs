//! `tsdb search`: lists series by metric, tag keys and tag values.

mod output;
mod text;
mod words;

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use oxtsdb_client::proto::data::v1::{CountSeriesRequest, ExportSeriesRequest, SeriesSource};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;

use self::output::Writer;

/// List the series that exist, by metric, tag keys and tag values
///
/// `tsdb search METRIC [TAG ...]`; `*` or no METRIC: any. TAG is TAGK=TAGV, TAGK=TAGV|TAGV, TAGK= (any value) or
/// =TAGV (any key); a series must have all of them. Quote `*` and `|` for the shell.
///
/// Prints a line for each series, TSUID, METRIC and TAGK=TAGV ..., with tabs between, ascending by TSUID. No points
/// are read. Exit status: 1 if there is none.
///
/// `tsdb search --text QUERY [--kind KIND]` searches metadata by text, on a server that runs with --text-search. QUERY
/// is in the syntax of Elasticsearch's query strings: `metric:sys.cpu* AND host:web01`, `description:"disk full"`.
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Maximum number of series; 0: all
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    limit: u64,

    /// Print only the number of series
    #[arg(long, conflicts_with_all = ["format", "limit", "text"])]
    count: bool,

    /// Find series by the row keys of table tsdb, not in tsdb-meta; reads the keys of all rows
    #[arg(long)]
    use_data_table: bool,

    /// Search metadata by text; the best results come first
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["words", "use_data_table"])]
    text: Option<String>,

    /// Documents that --text searches
    #[arg(long, value_enum, default_value_t = text::Kind::Series, requires = "text")]
    kind: text::Kind,

    /// [METRIC] [TAG ...]
    #[arg(required_unless_present = "text", value_name = "WORD")]
    words: Vec<String>,
}

/// Output formats.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A line for each series
    Text,
    /// An array, as `results` of OpenTSDB's /api/search/lookup
    Json,
    /// Lines tsuid,metric,tags
    Csv,
}

/// Lists or counts series.
///
/// # Errors
///
/// If a word is not a tag, or a call fails, for example because there is no such name.
pub(crate) async fn run(args: SearchArgs) -> anyhow::Result<ExitCode> {
    if let Some(query) = args.text {
        let server = args.target.data()?;
        return text::run(&server, query, args.kind, args.format, args.limit).await;
    }
    let selector = words::selector(&args.words)?;
    let source = if args.use_data_table {
        SeriesSource::DataTable
    } else {
        SeriesSource::MetaTable
    };
    let server = args.target.data()?;
    let client = server.client.without_deadline();
    if args.count {
        let request = CountSeriesRequest {
            selector: Some(selector.into()),
            source: source.into(),
            ..CountSeriesRequest::default()
        };
        let counted = client.count_series(request).await;
        let counted = counted.map_err(|error| server.error("search", &error))?;
        print(&format!("{}\n", counted.series))?;
        return Ok(ExitCode::from(u8::from(counted.series == 0)));
    }
    let request = ExportSeriesRequest {
        selector: Some(selector.into()),
        source: source.into(),
        ..ExportSeriesRequest::default()
    };
    let mut batches = client.export_series(request);
    let mut writer = Writer::new(args.format);
    let mut left = if args.limit == 0 { u64::MAX } else { args.limit };
    while left > 0 {
        let batch = batches.next().await;
        let Some(mut series) = batch.map_err(|error| server.error("search", &error))? else {
            break;
        };
        series.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= series.len() as u64;
        print(&writer.series(&series)?)?;
    }
    print(&writer.end())?;
    Ok(ExitCode::from(u8::from(writer.count() == 0)))
}
