//! A random request to `/api/query`, as POST or GET.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

use super::data::METRICS;
use super::downsampling::ZONES;
use super::mistake;
use super::range::Range;
use super::sub_query::SubQuery;
use crate::http::{Http, HttpResponse};

/// An HTTP request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Path and query string.
    pub path: String,
    /// The body of a POST; `None` for a GET.
    pub body: Option<String>,
}

/// A query, before it is written as POST or GET.
#[derive(Clone, Debug)]
struct Query {
    range: Range,
    /// The time zone of dates and calendars; POST only.
    zone: Option<String>,
    /// Whether all downsampling follows the calendar.
    use_calendar: bool,
    /// The sub-queries.
    sub_queries: Vec<SubQuery>,
    /// `msResolution`, `showTSUIDs`, … in POST; `ms`, `show_tsuids`, … in GET.
    flags: Vec<Flag>,
}

/// An option of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flag {
    in_body: &'static str,
    in_path: &'static str,
}

/// All options; `arrays` exists only in the path.
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

impl Request {
    /// A random request; `tsuids` has the TSUIDs of each metric's series, in the order of [`METRICS`].
    pub fn new(random: &mut StdRng, tsuids: &[Vec<String>]) -> Self {
        let query = Query::new(random, tsuids);
        let is_wrong = random.random_ratio(1, 16);
        let is_get = random.random_ratio(2, 5);
        if is_get {
            let mut parameters = query.to_parameters();
            if is_wrong {
                mistake::in_parameters(random, &mut parameters, query.fills());
            }
            let path = path(&parameters);
            return Self { path, body: None };
        }
        let mut json = query.to_json(random);
        let mut body = None;
        if is_wrong {
            body = mistake::in_body(random, &mut json, query.fills());
        }
        let has_arrays = query.flags.iter().any(|flag| flag.in_path == "arrays");
        Self {
            path: format!("/api/query{}", if has_arrays { "?arrays" } else { "" }),
            body: Some(body.unwrap_or_else(|| json.to_string())),
        }
    }

    /// Whether a sub-query selects only series with exactly the given tags.
    pub fn has_explicit_tags(&self) -> bool {
        self.has_one_of(&["explicitTags", "explicit_tags"])
    }

    /// Whether calendar windows may be filled.
    pub fn fills_calendars(&self) -> bool {
        self.has_one_of(&["useCalendar", "c-"]) && self.has_one_of(&["-nan", "-NaN", "-null", "-zero"])
    }

    fn has_one_of(&self, texts: &[&str]) -> bool {
        let mut parts = std::iter::once(&self.path).chain(&self.body);
        parts.any(|part| texts.iter().any(|text| part.contains(text)))
    }

    /// Sends the request.
    ///
    /// # Errors
    ///
    /// If the server does not respond.
    pub async fn send(&self, http: &Http) -> anyhow::Result<HttpResponse> {
        match &self.body {
            Some(body) => http.post_bytes(&self.path, &[], body.clone().into_bytes()).await,
            None => http.get(&self.path).await,
        }
    }

    /// The request as a shell command.
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

impl Query {
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

    /// Whether a fill policy applies.
    fn fills(&self) -> bool {
        self.sub_queries
            .iter()
            .filter_map(|sub_query| sub_query.downsample.as_deref())
            .any(|text| text.matches('-').count() == 2 && !text.ends_with("-none"))
    }

    fn to_json(&self, random: &mut StdRng) -> Value {
        let mut json = Map::new();
        // Sometimes numbers are JSON numbers.
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

/// The path of `/api/query` with escaped parameters.
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
