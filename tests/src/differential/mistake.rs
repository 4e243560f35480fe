//! Random mistakes in a valid request.
//!
//! If a fill policy applies, the end is not changed: a missing end means now and some invalid ones mean the year 5138,
//! and filling all windows up to there would take OpenTSDB minutes.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

const TIMES: [&str; 15] = [
    "",
    "x",
    "2013/1/1",
    "2013-01-01",
    "2013/01/01T00:00",
    "2013/13/41",
    "2013/01/01-25:61",
    "1x-ago",
    "h-ago",
    "0h-ago",
    "-5",
    "1356998400.1234",
    "ms",
    " 1356998400",
    "99999999999999",
];
const DOWNSAMPLES: [&str; 18] = [
    "1m",
    "-",
    "1m-",
    "1m-avg-nan-x",
    "1m-foo",
    "1m-none",
    "1m-avg-foo",
    "1m-avg-scalar",
    "0m-avg",
    "0dc-sum",
    "xm-avg",
    "1x-avg",
    "1.5h-avg",
    "1hm-sum",
    "0ALL-sum",
    "all-sum",
    "1DC-sum",
    "99999999999dc-sum",
];
const AGGREGATORS: [&str; 4] = ["", "Sum", "bogus", "p98"];
const METRICS: [&str; 3] = ["", "nosuch", "a b"];
const TAG_VALUES: [&str; 14] = [
    "",
    "nosuch",
    "|",
    "web01||x",
    "|web01",
    "wildcard(a)",
    "wildcard(a*",
    "bogus(a)",
    "regexp(a()",
    "regexp([)",
    "(",
    "()",
    "literal_or()",
    "iliteral_or(|)",
];
const TSUIDS: [&str; 6] = ["", "zz", "00", "0", "000001", "000009000001000001"];
const EXPRESSIONS: [&str; 22] = [
    "",
    "sum",
    "sum:",
    ":hours",
    "sum:a:b:c:d:hours",
    "sum:foo:hours",
    "sum:rate{:hours",
    "sum:rate{}:hours",
    "sum:rate{x}:hours",
    "sum:rate{counter:hours",
    "sum:ratecounter:hours",
    "sum:rate{counter,x}:hours",
    "sum:rate{counter,1,x}:hours",
    "sum:rate{counter,1,2,3}:hours",
    "sum:hours{host=web01",
    "sum:hours{host}",
    "sum:hours{host=}",
    "sum:hours{=web01}",
    "sum:hours{host=a=b}",
    "sum:hours{host=*}{dc=*}{cpu=*}",
    "sum:hours{host=*}}",
    "sum:{host=*}",
];

fn some(random: &mut StdRng, of: &[&str]) -> String {
    (*of.choose(random).expect("there are some")).to_owned()
}

/// Adds a mistake to the parameters of a GET; the first one is the start. `fills`: whether a fill policy applies.
pub(super) fn in_parameters(random: &mut StdRng, parameters: &mut Vec<(String, String)>, fills: bool) {
    let mut place = random.random_range(0..parameters.len());
    if fills && parameters[place].0 == "end" {
        place = 0;
    }
    let (name, value) = &mut parameters[place];
    match name.as_str() {
        _ if random.random_ratio(1, 8) => {
            parameters.remove(place);
        }
        "start" | "end" => *value = some(random, &TIMES),
        "m" => *value = some(random, &EXPRESSIONS),
        "tsuid" => *value = format!("sum:{}", some(random, &TSUIDS)),
        _ => parameters[0].1 = some(random, &TIMES),
    }
}

/// Adds a mistake to the body of a POST, or returns a body that is no JSON; `fills`: whether a fill policy applies.
pub(super) fn in_body(random: &mut StdRng, body: &mut Value, fills: bool) -> Option<String> {
    let zones = ["utc", "+05:00", "GMT+5", "Mars/Base", "europe/berlin"];
    match random.random_range(0..14) {
        0 if !fills => body["end"] = json!(some(random, &TIMES)),
        0 | 1 => body["start"] = json!(some(random, &TIMES)),
        2 => body["timezone"] = json!(some(random, &zones)),
        3 => {
            // Not a null in an array, for which OpenTSDB returns varying errors or no response.
            let wrong = [json!([]), json!({}), json!(null), json!("x")];
            body["queries"] = wrong.choose(random).expect("there are some").clone();
        }
        4 => {
            let text = body.to_string();
            let end = random.random_range(0..text.len().min(30));
            return Some(text.chars().take(end).collect());
        }
        5 => {
            let field = ["start", "queries"].choose(random).expect("there are some");
            body.as_object_mut().map(|fields| fields.remove(*field));
        }
        _ => in_sub_query(random, &mut body["queries"][0]),
    }
    None
}

fn in_sub_query(random: &mut StdRng, query: &mut Value) {
    match random.random_range(0..10) {
        0 => query["aggregator"] = json!(some(random, &AGGREGATORS)),
        1 => query["metric"] = json!(some(random, &METRICS)),
        2 | 3 => query["downsample"] = json!(some(random, &DOWNSAMPLES)),
        4 => query["tags"] = json!({"host": some(random, &TAG_VALUES)}),
        5 => query["tags"] = json!({"nokey": "*"}),
        6 => query["tsuids"] = json!([some(random, &TSUIDS)]),
        7 => {
            query["rate"] = json!(true);
            query["rateOptions"] = json!({"counterMax": "x"});
        }
        8 => {
            let kinds = [
                "literal_or",
                "bogus",
                "wildcard",
                "regexp",
                "",
                "iliteral_or",
                "not_literal_or",
            ];
            let filter = some(random, &["", "nosuch", "|", "a", "(", "web01||x"]);
            let tagk = some(random, &["host", "host", "nokey", ""]);
            query["filters"] = json!([{"type": some(random, &kinds), "tagk": tagk, "filter": filter}]);
        }
        _ => {
            let field = ["aggregator", "metric"].choose(random).expect("there are some");
            query.as_object_mut().map(|fields| fields.remove(*field));
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn keeps_the_end_if_a_fill_policy_applies() {
        let mut random = StdRng::seed_from_u64(1);
        let pairs = [("start", "1"), ("end", "2"), ("m", "sum:1m-sum-nan:hours")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let query = json!({"start": 1, "end": 2, "queries": [{"downsample": "1m-sum-nan"}]});
        let mut ends = 0;
        for _ in 0..1000 {
            let mut parameters = pairs.to_vec();
            in_parameters(&mut random, &mut parameters, true);
            assert!(parameters != pairs && parameters.contains(&pairs[1]));
            let mut parameters = pairs.to_vec();
            in_parameters(&mut random, &mut parameters, false);
            ends += usize::from(!parameters.contains(&pairs[1]));
            let mut body = query.clone();
            in_body(&mut random, &mut body, true);
            assert_eq!(body["end"], 2);
            let mut body = query.clone();
            in_body(&mut random, &mut body, false);
            ends += usize::from(body["end"] != 2);
        }
        assert!(ends > 100, "else it is made wrong");
    }
}
