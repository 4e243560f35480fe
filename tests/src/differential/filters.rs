//! Random tags and filters of a sub-query.

use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

use super::data::{DCS, HOSTS, RARE_TAGS};

/// A filter.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// The type, such as `wildcard`.
    pub(super) kind: String,
    /// The tag key.
    pub(super) tagk: String,
    /// The values or the pattern.
    pub(super) filter: String,
    /// Whether each value is a group.
    pub(super) group_by: bool,
}

impl Filter {
    /// The JSON of a POST.
    pub(super) fn to_json(&self) -> Value {
        json!({"type": self.kind, "tagk": self.tagk, "filter": self.filter, "groupBy": self.group_by})
    }

    /// The pair in the braces of a GET.
    pub(super) fn to_pair(&self) -> String {
        format!("{}={}({})", self.tagk, self.kind, self.filter)
    }
}

/// A random filter of any type.
pub(super) fn filter(random: &mut StdRng) -> Filter {
    let kind = *[
        "literal_or",
        "iliteral_or",
        "not_literal_or",
        "not_iliteral_or",
        "wildcard",
        "iwildcard",
        "regexp",
    ]
    .choose(random)
    .expect("there are some");
    let tagk = key(random);
    let known = kind == "literal_or";
    let filter = match kind {
        "wildcard" | "iwildcard" => glob(random),
        "regexp" => regexp(random),
        _ => literals(random, tagk, known),
    };
    Filter {
        kind: kind.to_owned(),
        tagk: tagk.to_owned(),
        filter,
        group_by: random.random_ratio(2, 5),
    }
}

/// A random entry of `tags`.
pub(super) fn tag(random: &mut StdRng) -> (String, String) {
    let tagk = key(random);
    let value = match random.random_range(0..6) {
        0 | 1 => "*".to_owned(),
        2 => glob(random),
        3 => literals(random, tagk, true),
        _ => {
            let filter = filter(random);
            let kind = if random.random_ratio(1, 4) {
                filter.kind.to_uppercase()
            } else {
                filter.kind
            };
            return (filter.tagk, format!("{kind}({})", filter.filter));
        }
    };
    (tagk.to_owned(), value)
}

fn key(random: &mut StdRng) -> &'static str {
    match random.random_range(0..10) {
        0..6 => "host",
        6..9 => "dc",
        _ => RARE_TAGS.choose(random).expect("there are some").0,
    }
}

/// One to three values of a key, separated by pipes. Negative and case-insensitive filters may have unknown values
/// and values in another case.
fn literals(random: &mut StdRng, tagk: &str, known: bool) -> String {
    let values: Vec<&str> = match tagk {
        "host" => HOSTS.to_vec(),
        "dc" => DCS.to_vec(),
        _ => RARE_TAGS
            .iter()
            .filter(|(key, _)| *key == tagk)
            .map(|(_, value)| *value)
            .collect(),
    };
    let mut chosen = Vec::new();
    for _ in 0..random.random_range(1..4) {
        let value = *values.choose(random).expect("there are some");
        chosen.push(match random.random_range(0..8) {
            0 if !known => "nosuch".to_owned(),
            1 if !known => value.to_uppercase(),
            _ => value.to_owned(),
        });
    }
    let mut text = chosen.join("|");
    if random.random_ratio(1, 12) {
        text.push('|');
    }
    text
}

fn glob(random: &mut StdRng) -> String {
    let globs = [
        "*", "web*", "WEB*", "*0", "*0*", "w*1", "w*b", "w*1*b", "eb*0", "*b", "d*A", "**", "we**1", "l*",
        "*x", "p*x", "*a*", "*web01*", "W*0*1", "*.b",
    ];
    (*globs.choose(random).expect("there are some")).to_owned()
}

fn regexp(random: &mut StdRng) -> String {
    let regexps = [
        ".*",
        "",
        "b0",
        "^web0[12]$",
        "(?i)web",
        "[^a-z]",
        "a|x$",
        "^.{1,4}$",
        "db[-.]\\w",
        "\\d+",
        "^\\p{Lu}",
        "(web|db).*",
        "[a-c&&[^b]]",
        "\\Qdb.b\\E",
        "x*",
        "^$",
        "web0[1-2]",
        "(?:l|p)[gh]",
        "\\bx\\b",
        "l.a|p.x",
        "[[:alpha:]]",
        "\\S",
        "w{1}e{1,2}b+?",
    ];
    (*regexps.choose(random).expect("there are some")).to_owned()
}
