//! A random sub-query, as JSON and as a query-string parameter.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

use super::downsampling::{FUNCTIONS, specification};
use super::filters::{Filter, filter, tag};
use super::range::Range;

/// A sub-query.
#[derive(Clone, Debug)]
pub(super) struct SubQuery {
    /// The aggregator.
    aggregator: String,
    /// The metric, unless TSUIDs are requested.
    metric: String,
    /// TSUIDs in hex.
    tsuids: Vec<String>,
    /// The downsampling specification.
    pub(super) downsample: Option<String>,
    /// The rate, with or without options.
    rate: Option<Option<RateOptions>>,
    /// Entries of `tags`.
    tags: Vec<(String, String)>,
    /// Entries of `filters`.
    filters: Vec<Filter>,
    /// Only series with exactly these tags.
    explicit_tags: bool,
}

/// Options of a rate.
#[derive(Clone, Copy, Debug)]
struct RateOptions {
    /// Whether the series is a counter.
    counter: bool,
    /// The value at which the counter overflows.
    counter_max: Option<i64>,
    /// Rates above this value become 0.
    reset_value: Option<i64>,
    /// Whether counter resets produce no point.
    drop_resets: bool,
}

impl SubQuery {
    pub(super) fn new(random: &mut StdRng, metric: &str, tsuids: &[String], range: &Range) -> Self {
        let aggregator = match random.random_range(0..10) {
            0 => "none",
            1..3 => "sum",
            _ => FUNCTIONS.choose(random).expect("there are some"),
        };
        let downsample = random
            .random_ratio(3, 5)
            .then(|| specification(random, range.length, !range.is_relative))
            // The timestamp of a window over the whole range is the start, which is relative to now.
            .filter(|text| !(range.is_relative && text.contains("all")));
        let mut sub_query = Self {
            aggregator: aggregator.to_owned(),
            metric: metric.to_owned(),
            tsuids: Vec::new(),
            downsample,
            rate: random
                .random_ratio(1, 4)
                .then(|| random.random_ratio(1, 2).then(|| RateOptions::new(random))),
            tags: Vec::new(),
            filters: Vec::new(),
            explicit_tags: random.random_ratio(1, 20),
        };
        if random.random_ratio(1, 8) {
            for _ in 0..random.random_range(1..4) {
                sub_query
                    .tsuids
                    .push(tsuids.choose(random).expect("a metric has series").clone());
            }
        }
        for _ in 0..*[0, 0, 0, 0, 1, 1, 2].choose(random).expect("there are some") {
            let (key, value) = tag(random);
            sub_query.tags.retain(|(other, _)| *other != key);
            sub_query.tags.push((key, value));
        }
        for _ in 0..*[0, 0, 0, 1, 1, 1, 2, 3].choose(random).expect("there are some") {
            sub_query.filters.push(filter(random));
        }
        sub_query
    }

    pub(super) fn to_json(&self) -> Value {
        let mut json = Map::new();
        let mut insert = |key: &str, value: Value| json.insert(key.to_owned(), value);
        insert("aggregator", json!(self.aggregator));
        if self.tsuids.is_empty() {
            insert("metric", json!(self.metric));
        } else {
            insert("tsuids", json!(self.tsuids));
        }
        if let Some(downsample) = &self.downsample {
            insert("downsample", json!(downsample));
        }
        if let Some(rate) = &self.rate {
            insert("rate", json!(true));
            if let Some(options) = rate {
                insert("rateOptions", options.to_json());
            }
        }
        if !self.tags.is_empty() {
            let tags = self.tags.iter().map(|(key, value)| (key.clone(), json!(value)));
            insert("tags", Value::Object(tags.collect()));
        }
        if !self.filters.is_empty() {
            let filters = self.filters.iter().map(Filter::to_json);
            insert("filters", Value::Array(filters.collect()));
        }
        if self.explicit_tags {
            insert("explicitTags", json!(true));
        }
        Value::Object(json)
    }

    /// The parameter `m` or `tsuid`. Tags and grouping filters go into the first braces.
    pub(super) fn to_parameter(&self) -> (String, String) {
        let mut text = self.aggregator.clone();
        if let Some(rate) = &self.rate {
            text.push_str(":rate");
            if let Some(options) = rate {
                text.push_str(&options.to_text());
            }
        }
        if let Some(downsample) = &self.downsample {
            text.push(':');
            text.push_str(downsample);
        }
        if self.explicit_tags {
            text.push_str(":explicit_tags");
        }
        text.push(':');
        if !self.tsuids.is_empty() {
            text.push_str(&self.tsuids.join(","));
            return ("tsuid".to_owned(), text);
        }
        text.push_str(&self.metric);
        let (grouping, others): (Vec<_>, Vec<_>) = self.filters.iter().partition(|filter| filter.group_by);
        let mut first: Vec<String> = self
            .tags
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        first.extend(grouping.iter().map(|filter| filter.to_pair()));
        if !first.is_empty() || !others.is_empty() {
            text.push_str(&format!("{{{}}}", first.join(",")));
        }
        if !others.is_empty() {
            let others: Vec<String> = others.iter().map(|filter| filter.to_pair()).collect();
            text.push_str(&format!("{{{}}}", others.join(",")));
        }
        ("m".to_owned(), text)
    }
}

impl RateOptions {
    fn new(random: &mut StdRng) -> Self {
        let mut number = |numbers: &[i64]| {
            random
                .random_ratio(2, 3)
                .then(|| numbers[random.random_range(0..numbers.len())])
        };
        Self {
            counter_max: number(&[1000, 65_536, 100, i64::MAX, 4_294_967_295]),
            reset_value: number(&[0, 1, 100, 1_000_000]),
            counter: random.random_ratio(3, 4),
            drop_resets: random.random_ratio(1, 3),
        }
    }

    fn to_json(self) -> Value {
        let mut json = Map::new();
        json.insert("counter".to_owned(), json!(self.counter));
        json.insert("dropResets".to_owned(), json!(self.drop_resets));
        for (key, value) in [("counterMax", self.counter_max), ("resetValue", self.reset_value)] {
            if let Some(value) = value {
                json.insert(key.to_owned(), json!(value));
            }
        }
        Value::Object(json)
    }

    /// `{counter,MAX,RESET}`
    fn to_text(self) -> String {
        let text = |value: Option<i64>| value.map(|value| value.to_string()).unwrap_or_default();
        let mut options = vec![
            if self.drop_resets {
                "dropcounter"
            } else {
                "counter"
            }
            .to_owned(),
        ];
        if self.counter_max.is_some() || self.reset_value.is_some() {
            options.push(text(self.counter_max));
        }
        if self.reset_value.is_some() {
            options.push(text(self.reset_value));
        }
        format!("{{{}}}", options.join(","))
    }
}
