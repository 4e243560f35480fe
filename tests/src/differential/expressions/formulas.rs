//! Random named metrics and arithmetic over them for `/api/query/exp`.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

use super::text::{AGGREGATORS, fixed_windows};
use crate::differential::data::{METRICS, Metric};
use crate::differential::filters::filter;
use crate::differential::range::Range;
use crate::differential::request::Request;

/// A random request.
pub fn request(random: &mut StdRng) -> Request {
    let metric = METRICS.choose(random).expect("there are some");
    let range = Range::new(random, metric);
    let filters = filters(random);
    let names = &["a", "b", "cc"][..*[1, 2, 2, 2, 3].choose(random).expect("some")];
    let mut body = json!({
        "time": time(random, &range),
        "metrics": names.iter().map(|name| input(random, name, metric, &filters)).collect::<Vec<_>>(),
    });
    if !filters.is_empty() {
        body["filters"] = json!(filters);
    }
    let mut known: Vec<&str> = names.to_vec();
    let mut expressions = Vec::new();
    for name in &["e", "f", "g"][..*[0, 1, 1, 1, 1, 2, 2, 3].choose(random).expect("some")] {
        expressions.push(expression(random, name, &known));
        // An expression that refers to another one needs the same timestamps, so only some may.
        if random.random_ratio(1, 2) {
            known.push(name);
        }
    }
    let mut shown: Vec<&str> = names.to_vec();
    shown.extend(["e", "f", "g"]);
    if !expressions.is_empty() || random.random() {
        body["expressions"] = json!(expressions);
    }
    if random.random_ratio(1, 2) {
        let outputs = (0..random.random_range(1..4)).map(|_| {
            let mut output = json!({"id": shown.choose(random).expect("some")});
            if random.random_ratio(1, 4) {
                output["alias"] = json!("An alias");
            }
            output
        });
        body["outputs"] = outputs.collect();
    }
    if random.random_ratio(1, 20) {
        mistake(random, &mut body);
    }
    Request {
        path: "/api/query/exp".to_owned(),
        body: Some(body.to_string()),
    }
}

fn time(random: &mut StdRng, range: &Range) -> Value {
    let mut time = json!({
        "start": range.start,
        "end": range.end,
        "aggregator": AGGREGATORS.choose(random).expect("some"),
    });
    if random.random_ratio(1, 6) {
        time["timezone"] = json!("America/New_York");
    }
    if random.random_ratio(1, 8) {
        time["rate"] = json!(true);
    }
    if random.random_ratio(3, 5) {
        let windows = fixed_windows(random, range.length, false);
        let mut parts = windows.split('-');
        time["downsampler"] = json!({"interval": parts.next(), "aggregator": parts.next()});
        if random.random_ratio(1, 3) {
            time["downsampler"]["fillPolicy"] = fill(random);
        }
    }
    time
}

fn fill(random: &mut StdRng) -> Value {
    let policies = [
        json!({"policy": "nan"}),
        json!({"policy": "zero"}),
        json!({"policy": "null"}),
        json!({"policy": "none"}),
        json!({"policy": "scalar", "value": 7}),
        json!({"policy": "scalar", "value": -0.5}),
    ];
    policies.choose(random).expect("some").clone()
}

/// Up to two filters with ids.
fn filters(random: &mut StdRng) -> Vec<Value> {
    let count = *[0, 1, 1, 1, 1, 2].choose(random).expect("some");
    let filters = ["x", "yy"].into_iter().take(count);
    let filters = filters.map(|id| {
        let tags: Vec<Value> = if random.random_ratio(3, 4) {
            let tagk = *["host", "host", "dc"].choose(random).expect("some");
            vec![json!({"type": "wildcard", "tagk": tagk, "filter": "*", "groupBy": true})]
        } else {
            (0..random.random_range(1..3))
                .map(|_| filter(random).to_json())
                .collect()
        };
        let mut filter = json!({"id": id, "tags": tags});
        if random.random_ratio(1, 20) {
            filter["explicitTags"] = json!(true);
        }
        filter
    });
    filters.collect()
}

fn input(random: &mut StdRng, name: &str, common: &Metric, filters: &[Value]) -> Value {
    let metric = if random.random_ratio(1, 8) {
        METRICS.choose(random).expect("some")
    } else {
        common
    };
    let mut input = Map::new();
    input.insert("id".to_owned(), json!(name));
    input.insert("metric".to_owned(), json!(metric.name));
    if let Some(filter) = filters.choose(random).filter(|_| random.random_ratio(7, 8)) {
        input.insert("filter".to_owned(), filter["id"].clone());
    }
    if random.random_ratio(1, 4) {
        let aggregator = AGGREGATORS.choose(random).expect("some");
        input.insert("aggregator".to_owned(), json!(aggregator));
    }
    if random.random_ratio(1, 3) {
        input.insert("fillPolicy".to_owned(), fill(random));
    }
    Value::Object(input)
}

fn expression(random: &mut StdRng, name: &str, known: &[&str]) -> Value {
    let mut expression = json!({"id": name, "expr": arithmetic(random, known, 3)});
    if random.random_ratio(1, 2) {
        let operator = *["union", "intersection"].choose(random).expect("some");
        expression["join"] = json!({"operator": operator});
        if random.random_ratio(1, 4) {
            expression["join"]["useQueryTags"] = json!(true);
        }
        if random.random_ratio(1, 4) {
            expression["join"]["includeAggTags"] = json!(random.random::<bool>());
        }
    }
    if random.random_ratio(1, 4) {
        expression["fillPolicy"] = fill(random);
    }
    expression
}

/// Random arithmetic with at least one name and at most `levels` levels.
fn arithmetic(random: &mut StdRng, known: &[&str], levels: usize) -> String {
    if levels == 0 || random.random_ratio(1, 4) {
        return (*known.choose(random).expect("some")).to_owned();
    }
    let left = arithmetic(random, known, levels - 1);
    let numbers = ["2", "100", "0.5", "-1", "1.0", "0", "1.5E2"];
    let right = if random.random_ratio(1, 3) {
        (*numbers.choose(random).expect("some")).to_owned()
    } else {
        arithmetic(random, known, levels - 1)
    };
    let mut one_of = |operators: &[&'static str]| *operators.choose(random).expect("some");
    let operator = one_of(&["+", "-", "*", "/"]);
    let other = one_of(&[
        "<", ">", "<=", ">=", "==", "!=", "&&", "||", "and", "or", "%", "mod", "div",
    ]);
    match random.random_range(0..12) {
        0 | 1 => format!("({left} {other} {right})"),
        2 => format!("({left} > {right} ? {left} : {right})"),
        3 => format!("-{left}"),
        4 => format!("{left} {operator} {right}"),
        _ => format!("({left} {operator} {right})"),
    }
}

fn mistake(random: &mut StdRng, body: &mut Value) {
    match random.random_range(0..12) {
        0 => body["time"] = Value::Null,
        1 => body["metrics"] = json!([]),
        2 => body["metrics"][0]["metric"] = json!("no.such"),
        3 => body["metrics"][0]["filter"] = json!("nosuch"),
        4 => body["metrics"][0]["id"] = json!("a-b"),
        5 => body["expressions"] = json!([{"id": "e", "expr": "a + zz"}]),
        6 => body["expressions"] = json!([{"id": "e", "expr": "e + a"}]),
        7 => body["expressions"] = json!([{"id": "e", "expr": "f + a"}, {"id": "f", "expr": "e * 2"}]),
        8 => body["time"]["aggregator"] = json!("nosuch"),
        9 => body["time"]["start"] = json!("nosuch"),
        10 => body["expressions"] = json!([{"id": "a", "expr": "a * 2"}]),
        _ => body["time"]["downsampler"] = json!({"interval": "1x", "aggregator": "sum"}),
    }
}
