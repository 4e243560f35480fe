//! A question to `/api/query`, as POST or GET.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

use super::data::METRICS;
use super::downsampling::{FUNCTIONS, ZONES, specification};
use super::filters::{Filter, filter, tag};
use super::mistake;
use super::range::Range;
use crate::http::{Answer, Http};

/// A question as it is sent.
#[derive(Clone, Debug)]
pub struct Question {
    /// Path and query string.
    pub path: String,
    /// The body of a POST; without one it is a GET.
    pub body: Option<String>,
}

/// What is asked.
#[derive(Clone, Debug)]
struct Asked {
    range: Range,
    /// Of dates and calendars; GET has none.
    zone: Option<String>,
    /// Windows of the calendar for all downsampling.
    use_calendar: bool,
    /// The sub-queries.
    sub_queries: Vec<SubQuery>,
    /// `msResolution`, `showTSUIDs`, … in POST; `ms`, `show_tsuids`, … in GET.
    flags: Vec<Flag>,
}

/// What a question may ask for beside its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flag {
    in_body: &'static str,
    in_path: &'static str,
}

/// `arrays` can be asked for in the path only.
const FLAGS: [Flag; 8] = [
    flag("msResolution", "ms"),
    flag("showTSUIDs", "show_tsuids"),
    flag("showQuery", "show_query"),
    flag("showStats", "show_stats"),
    flag("showSummary", "show_summary"),
    flag("noAnnotations", "no_annotations"),
    flag("padding", "padding"),
    flag("", "arrays"),
];

const fn flag(in_body: &'static str, in_path: &'static str) -> Flag {
    Flag { in_body, in_path }
}

/// A sub-query.
#[derive(Clone, Debug)]
struct SubQuery {
    /// How series become one.
    aggregator: String,
    /// The metric, if no TSUIDs are asked for.
    metric: String,
    /// TSUIDs in hex.
    tsuids: Vec<String>,
    /// Downsampling.
    downsample: Option<String>,
    /// A rate, with options or without.
    rate: Option<Option<RateOptions>>,
    /// Entries of the tags map.
    tags: Vec<(String, String)>,
    /// Filters.
    filters: Vec<Filter>,
    /// Only series with just these tags.
    explicit_tags: bool,
}

/// Options of a rate.
#[derive(Clone, Copy, Debug)]
struct RateOptions {
    /// It only goes up.
    counter: bool,
    /// Where it starts again.
    counter_max: Option<i64>,
    /// Rates above are none.
    reset_value: Option<i64>,
    /// Steps down give no point.
    drop_resets: bool,
}

impl Question {
    /// A random one; `tsuids` are those of the metrics, in their order.
    pub fn new(random: &mut StdRng, tsuids: &[Vec<String>]) -> Self {
        let asked = Asked::new(random, tsuids);
        let is_wrong = random.random_ratio(1, 16);
        let is_get = random.random_ratio(2, 5);
        if is_get {
            let mut parameters = asked.to_parameters();
            if is_wrong {
                mistake::in_parameters(random, &mut parameters, asked.fills());
            }
            let path = path(&parameters);
            return Self { path, body: None };
        }
        let mut json = asked.to_json(random);
        let mut body = None;
        if is_wrong {
            body = mistake::in_body(random, &mut json, asked.fills());
        }
        let has_arrays = asked.flags.iter().any(|flag| flag.in_path == "arrays");
        Self {
            path: format!("/api/query{}", if has_arrays { "?arrays" } else { "" }),
            body: Some(body.unwrap_or_else(|| json.to_string())),
        }
    }

    /// Whether a sub-query wants series with just the tags that it names.
    pub fn has_explicit_tags(&self) -> bool {
        self.has_one_of(&["explicitTags", "explicit_tags"])
    }

    /// Whether windows of a calendar may be filled.
    pub fn fills_calendars(&self) -> bool {
        self.has_one_of(&["useCalendar", "c-"]) && self.has_one_of(&["-nan", "-NaN", "-null", "-zero"])
    }

    fn has_one_of(&self, texts: &[&str]) -> bool {
        let mut parts = std::iter::once(&self.path).chain(&self.body);
        parts.any(|part| texts.iter().any(|text| part.contains(text)))
    }

    /// Asks.
    ///
    /// # Errors
    ///
    /// If there is no answer.
    pub async fn ask(&self, http: &Http) -> anyhow::Result<Answer> {
        match &self.body {
            Some(body) => http.post_bytes(&self.path, &[], body.clone().into_bytes()).await,
            None => http.get(&self.path).await,
        }
    }

    /// For a shell: what follows the address of a server.
    pub fn to_curl(&self) -> String {
        match &self.body {
            Some(body) => format!(
                "curl 'HOST:PORT{}' -d '{}'",
                self.path,
                body.replace('\'', "'\\''")
            ),
            None => format!("curl 'HOST:PORT{}'", self.path),
        }
    }
}

impl Asked {
    fn new(random: &mut StdRng, tsuids: &[Vec<String>]) -> Self {
        let number = random.random_range(0..METRICS.len());
        let metric = &METRICS[number];
        let range = Range::new(random, metric);
        let mut sub_queries: Vec<SubQuery> = Vec::new();
        let count = *[1, 1, 1, 1, 1, 1, 2, 3].choose(random).expect("there are some");
        for _ in 0..count {
            match sub_queries.last() {
                Some(same) if random.random_ratio(1, 4) => sub_queries.push(same.clone()),
                _ => sub_queries.push(SubQuery::new(random, metric.name, &tsuids[number], &range)),
            }
        }
        let zone = random
            .random_ratio(3, 4)
            .then(|| (*ZONES.choose(random).expect("some")).to_owned());
        let flags = FLAGS.into_iter().filter(|_| random.random_ratio(1, 6)).collect();
        Self {
            range,
            zone,
            use_calendar: random.random_ratio(1, 6),
            sub_queries,
            flags,
        }
    }

    /// Whether windows are filled.
    fn fills(&self) -> bool {
        self.sub_queries
            .iter()
            .filter_map(|query| query.downsample.as_deref())
            .any(|text| text.matches('-').count() == 2 && !text.ends_with("-none"))
    }

    fn to_json(&self, random: &mut StdRng) -> Value {
        let mut json = Map::new();
        // Numbers as numbers, now and then.
        let mut time = |text: &str| match serde_json::from_str::<i64>(text) {
            Ok(number) if random.random() => json!(number),
            _ => json!(text),
        };
        json.insert("start".to_owned(), time(&self.range.start));
        json.insert("end".to_owned(), time(&self.range.end));
        if let Some(zone) = &self.zone {
            json.insert("timezone".to_owned(), json!(zone));
        }
        if self.use_calendar {
            json.insert("useCalendar".to_owned(), json!(true));
        }
        for flag in self.flags.iter().filter(|flag| !flag.in_body.is_empty()) {
            json.insert(flag.in_body.to_owned(), json!(true));
        }
        let queries: Vec<Value> = self.sub_queries.iter().map(SubQuery::to_json).collect();
        json.insert("queries".to_owned(), Value::Array(queries));
        Value::Object(json)
    }

    fn to_parameters(&self) -> Vec<(String, String)> {
        let mut parameters = vec![
            ("start".to_owned(), self.range.start.clone()),
            ("end".to_owned(), self.range.end.clone()),
        ];
        parameters.extend(self.sub_queries.iter().map(SubQuery::to_parameter));
        let flags = self
            .flags
            .iter()
            .map(|flag| (flag.in_path.to_owned(), String::new()));
        parameters.extend(flags);
        parameters
    }
}

impl SubQuery {
    fn new(random: &mut StdRng, metric: &str, tsuids: &[String], range: &Range) -> Self {
        let aggregator = match random.random_range(0..10) {
            0 => "none",
            1..3 => "sum",
            _ => FUNCTIONS.choose(random).expect("there are some"),
        };
        let downsample = random
            .random_ratio(3, 5)
            .then(|| specification(random, range.length, !range.is_relative))
            // The instant of a window over the whole range is the start, which moves.
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

    fn to_json(&self) -> Value {
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

    /// `m` or `tsuid`. Filters that group and tags go into the first braces.
    fn to_parameter(&self) -> (String, String) {
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

/// A path with its parameters, escaped.
pub(super) fn path(parameters: &[(String, String)]) -> String {
    let pairs: Vec<String> = parameters
        .iter()
        .map(|(name, value)| match value.as_str() {
            "" => name.clone(),
            value => format!("{name}={}", escaped(value)),
        })
        .collect();
    format!("/api/query?{}", pairs.join("&"))
}

fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b':' | b',' | b'*' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
