//! Random calls for `/api/query/gexp`: `exp=scale(sum(sum:1h-avg:a{host=*},max:1h-avg:a{host=*}),2)`.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use super::text::{AGGREGATORS, fixed_windows};
use crate::differential::data::{METRICS, Metric};
use crate::differential::range::Range;
use crate::differential::request::{Request, path};

/// Most nested calls.
const DEPTH: usize = 3;

/// The parts that sub-queries of a request usually share, since combined series need the same number of values.
struct Common<'a> {
    metric: &'a Metric,
    windows: Option<String>,
    tags: String,
    may_rate: bool,
}

/// A random request.
pub fn request(random: &mut StdRng) -> Request {
    let metric = METRICS.choose(random).expect("there are some");
    let range = Range::new(random, metric);
    let common = Common {
        metric,
        windows: random
            .random_ratio(3, 5)
            .then(|| fixed_windows(random, range.length, !range.is_relative)),
        tags: tags(random),
        may_rate: random.random_ratio(1, 8),
    };
    let mut parameters = vec![
        ("start".to_owned(), range.start.clone()),
        ("end".to_owned(), range.end.clone()),
    ];
    for _ in 0..*[1, 1, 1, 1, 1, 2].choose(random).expect("there are some") {
        let depth = random.random_range(1..=DEPTH);
        let mut text = call(random, &common, depth);
        if random.random_ratio(1, 20) {
            text = mistake(random, &text);
        }
        parameters.push(("exp".to_owned(), text));
    }
    for flag in [
        "ms",
        "show_tsuids",
        "show_query",
        "no_annotations",
        "arrays",
        "show_stats",
    ] {
        if random.random_ratio(1, 6) {
            parameters.push((flag.to_owned(), String::new()));
        }
    }
    Request {
        path: path(&parameters).replacen("/api/query", "/api/query/gexp", 1),
        body: None,
    }
}

/// A random call with at most `depth` nested calls.
fn call(random: &mut StdRng, common: &Common<'_>, depth: usize) -> String {
    let name = *[
        "scale",
        "absolute",
        "alias",
        "movingAverage",
        "highestMax",
        "highestCurrent",
        "sum",
        "sumSeries",
        "difference",
        "diffSeries",
        "multiply",
        "multiplySeries",
        "divide",
        "divideSeries",
        "sum",
        "divide",
    ]
    .choose(random)
    .expect("there are some");
    let text = match name {
        "scale" => Some(
            *["2", "0.5", "-1", "1", "0", "100", "-0.125", "1e3"]
                .choose(random)
                .expect("some"),
        ),
        "alias" => Some(
            *["x", "a.b", "@host", "on.@dc.@host", "a,b"]
                .choose(random)
                .expect("some"),
        ),
        "movingAverage" => Some(
            *["1", "2", "3", "10", "'5m'", "'90sec'", "'1h'", "'2day'"]
                .choose(random)
                .expect("some"),
        ),
        "highestMax" | "highestCurrent" => Some(*["1", "2", "3", "20"].choose(random).expect("some")),
        _ => None,
    };
    let count = match text {
        _ if name == "absolute" => 1,
        Some(_) => *[1, 1, 1, 1, 2].choose(random).expect("some"),
        None => *[2, 2, 2, 2, 2, 2, 3].choose(random).expect("some"),
    };
    let mut arguments: Vec<String> = (0..count).map(|_| argument(random, common, depth)).collect();
    arguments.extend(text.map(str::to_owned));
    format!("{name}({})", arguments.join(","))
}

fn argument(random: &mut StdRng, common: &Common<'_>, depth: usize) -> String {
    if depth > 1 && random.random_ratio(1, 2) {
        return call(random, common, depth - 1);
    }
    let aggregator = *AGGREGATORS.choose(random).expect("there are some");
    let metric = if random.random_ratio(1, 10) {
        METRICS.choose(random).expect("there are some")
    } else {
        common.metric
    };
    let mut text = aggregator.to_owned();
    if common.may_rate && random.random() {
        text.push_str(":rate");
    }
    if let Some(windows) = &common.windows {
        text = format!("{text}:{windows}");
    }
    let tags = if random.random_ratio(1, 8) {
        tags(random)
    } else {
        common.tags.clone()
    };
    format!("{text}:{}{tags}", metric.name)
}

/// Random tags in braces; may be empty.
fn tags(random: &mut StdRng) -> String {
    let tags = [
        "",
        "{host=*}",
        "{host=*}",
        "{host=*}",
        "{dc=*}",
        "{dc=*}",
        "{host=*,dc=*}",
        "{host=web01|web02}",
        "{dc=lga}",
        "{host=web01}",
        "{owner=*}",
        "{host=nosuch}",
    ];
    (*tags.choose(random).expect("there are some")).to_owned()
}

/// Adds a mistake to a call.
fn mistake(random: &mut StdRng, text: &str) -> String {
    match random.random_range(0..8) {
        0 => text.replacen('(', "", 1),
        1 => text.strip_suffix(')').unwrap_or(text).to_owned(),
        2 => format!("no{text}"),
        3 => format!("scale({text},x)"),
        4 => format!("movingAverage({text})"),
        5 => format!("highestMax({text},0)"),
        6 => format!("sum({text})"),
        _ => format!("timeShift({text},'1h')"),
    }
}
