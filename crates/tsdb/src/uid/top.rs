//! `tsdb uid top`: the metrics and tag keys that make the most series.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use oxtsdb_client::SeriesSelector;
use oxtsdb_client::proto::data::v1::{
    CardinalityOrder, CountSeriesRequest, CountSeriesResponse, SeriesSource,
};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;

/// Print the tag keys with the most values, and the metrics with the most series
///
/// Says which tag explodes. All numbers are exact. Without METRIC the series of all metrics are counted. Calls the
/// data service. Exit status: 1 if there are no series.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Order of tag keys
    #[arg(long, value_enum, default_value_t = By::Values)]
    by: By,

    /// Maximum number of metrics, and of tag keys
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    max: u16,

    /// Count the series in the row keys of table tsdb, not in tsdb-meta; reads the keys of all rows
    #[arg(long)]
    use_data_table: bool,

    /// Only the series of this metric
    metric: Option<String>,
}

/// The order of tag keys.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// By their number of distinct values
    Values,
    /// By the number of series that have them
    Series,
}

/// Runs `tsdb uid top`.
///
/// # Errors
///
/// If the call fails, for example because there is no such metric.
pub(super) async fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.data()?;
    let selector = match &args.metric {
        Some(metric) => SeriesSelector::metric(metric),
        None => SeriesSelector::all(),
    };
    let order = match args.by {
        By::Values => CardinalityOrder::ByValues,
        By::Series => CardinalityOrder::BySeries,
    };
    let source = if args.use_data_table {
        SeriesSource::DataTable
    } else {
        SeriesSource::MetaTable
    };
    let request = CountSeriesRequest {
        selector: Some(selector.into()),
        source: source.into(),
        max_metrics: args.max.into(),
        max_tag_keys: args.max.into(),
        order: order.into(),
    };
    let counted = server.client.without_deadline().count_series(request).await;
    let counted = counted.map_err(|error| server.error("uid top", &error))?;
    print(&text(&counted, args.metric.is_none()))?;
    Ok(ExitCode::from(u8::from(counted.series == 0)))
}

/// A sentence, the tag keys, and the metrics if there may be several.
fn text(counted: &CountSeriesResponse, with_metrics: bool) -> String {
    let of = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let mut text = of(counted.series, "series", "series");
    if with_metrics {
        text += &format!(" of {}", of(counted.metric_count, "metric", "metrics"));
    }
    text += &format!(", {}\n", of(counted.tag_key_count, "tag key", "tag keys"));
    if !counted.tag_keys.is_empty() {
        let rows = counted.tag_keys.iter().map(|key| {
            let name = name(&key.name, &key.uid);
            [name, key.values.to_string(), key.series.to_string()]
        });
        text += &format!("\n{}\n", table(["tag key", "values", "series"], rows));
    }
    if with_metrics && !counted.metrics.is_empty() {
        let rows = counted.metrics.iter();
        let rows = rows.map(|metric| [name(&metric.name, &metric.uid), metric.series.to_string()]);
        text += &format!("\n{}\n", table(["metric", "series"], rows));
    }
    text
}

/// A name, or the UID if it has none.
pub(crate) fn name(name: &str, uid: &[u8]) -> String {
    if name.is_empty() {
        format!("[{}]", hex::encode_upper(uid))
    } else {
        name.to_owned()
    }
}

/// A table with text in the first column, and numbers in the others.
pub(crate) fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in rows {
        table.add_row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::proto::data::v1::count_series_response::{MetricCardinality, TagKeyCardinality};

    use super::*;

    #[test]
    fn shows_the_largest_first() {
        let key = |name: &str, uid: u8, values, series| TagKeyCardinality {
            uid: vec![0, 0, uid].into(),
            name: name.to_owned(),
            series,
            values,
        };
        let counted = CountSeriesResponse {
            series: 30,
            metric_count: 1,
            metrics: vec![MetricCardinality {
                uid: vec![0, 0, 1].into(),
                name: "sys.cpu".to_owned(),
                series: 30,
            }],
            tag_key_count: 2,
            tag_keys: vec![key("host", 1, 10, 30), key("", 255, 3, 30)],
        };
        let shown = text(&counted, true);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(shown.lines().next(), Some("30 series of 1 metric, 2 tag keys"));
        assert_eq!(lines[2], ["tag", "key", "values", "series"]);
        assert_eq!(lines[3], ["host", "10", "30"]);
        assert_eq!(lines[4], ["[0000FF]", "3", "30"]);
        assert_eq!(lines[7], ["sys.cpu", "30"]);
        assert!(!text(&counted, false).contains("sys.cpu"));
    }
}
