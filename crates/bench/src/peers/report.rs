//! The tables.

use std::time::Duration;

use comfy_table::Table;

use super::{Compared, Measured, queries, title};
use crate::report::{ms, thousands};

/// The cost of writes.
pub(super) fn writes(all: &[Compared]) -> Table {
    let mut table = Table::new();
    table.set_header([
        "load",
        "server",
        "points/s",
        "server CPU s/Mpt",
        "generator CPU s/Mpt",
        "peak MiB",
        "longest wait",
        "written B/pt, in all",
        "on disk B/pt",
    ]);
    for one in all {
        let of_point = |amount: f64| amount / one.load.points() as f64;
        for (name, used) in [
            ("OxTSDB", &one.oxtsdb),
            ("VictoriaMetrics", &one.victoria_metrics),
        ] {
            table.add_row([
                title(one.load),
                name.to_owned(),
                thousands(1.0 / of_point(used.wall.as_secs_f64())),
                format!("{:.3}", of_point(used.cpu_seconds * 1e6)),
                format!("{:.3}", of_point(used.generator_seconds * 1e6)),
                (used.peak_memory >> 20).to_string(),
                ms(used.longest),
                format!(
                    "{:.2}, {:.2}",
                    of_point(used.written as f64),
                    of_point(used.written_in_all as f64)
                ),
                format!("{:.2}", of_point(used.kept as f64)),
            ]);
        }
    }
    table
}

/// Times of queries.
pub(super) fn queries(all: &[Compared]) -> Table {
    let mut table = Table::new();
    table.set_header([
        "load",
        "query",
        "head: OxTSDB",
        "VictoriaMetrics",
        "ratio",
        "parts: OxTSDB",
        "VictoriaMetrics",
        "ratio",
    ]);
    for one in all {
        let names = queries::measured(one.load.hosts, one.load.steps);
        let [head, parts] = one.query_times();
        for ((query, head), parts) in names.iter().zip(head).zip(parts) {
            let mut row = vec![title(one.load), query.name.to_owned()];
            for [ours, theirs] in [head, parts] {
                row.extend([
                    ms(ours),
                    ms(theirs),
                    ratio(ours.as_secs_f64(), theirs.as_secs_f64()),
                ]);
            }
            table.add_row(row);
        }
    }
    table
}

/// All figures as ratios.
pub(super) fn ratios(all: &[Compared]) -> Table {
    let mut table = Table::new();
    table.set_header([
        "load",
        "points/s",
        "CPU",
        "peak memory",
        "longest wait",
        "written in all",
        "on disk",
        "queries from head",
        "queries from parts",
    ]);
    for one in all {
        let of = |figure: fn(&Measured) -> f64| ratio(figure(&one.oxtsdb), figure(&one.victoria_metrics));
        let mut row = vec![
            title(one.load),
            of(|used| 1.0 / used.wall.as_secs_f64()),
            of(|used| used.cpu_seconds),
            of(|used| used.peak_memory as f64),
            of(|used| used.longest.as_secs_f64()),
            of(|used| used.written_in_all as f64),
            of(|used| used.kept as f64),
        ];
        row.extend(one.query_times().map(|times| {
            let ratios = times
                .iter()
                .map(|[ours, theirs]| ratio(ours.as_secs_f64(), theirs.as_secs_f64()));
            ratios.collect::<Vec<_>>().join(", ")
        }));
        table.add_row(row);
    }
    table
}

impl Compared {
    /// Medians of both servers by query: from the head, and from parts.
    fn query_times(&self) -> [Vec<[Duration; 2]>; 2] {
        [0, 1].map(|from| {
            let pairs = self.oxtsdb.queries[from]
                .iter()
                .zip(&self.victoria_metrics.queries[from]);
            pairs.map(|(ours, theirs)| [ours.median, theirs.median]).collect()
        })
    }
}

/// The quotient, with two decimals.
fn ratio(ours: f64, theirs: f64) -> String {
    if theirs > 0.0 {
        format!("{:.2}", ours / theirs)
    } else {
        "–".to_owned()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ratios_have_two_decimals_and_a_divisor() {
        assert_eq!(super::ratio(3.0, 2.0), "1.50");
        assert_eq!(super::ratio(3.0, 0.0), "–");
    }
}
