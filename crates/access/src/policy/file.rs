//! The policy file: TOML.
//!
//! ```toml
//! telnet = "loopback"          # serve telnet connections of this machine, as `telnet`; default: "off"
//!
//! [groups]
//! operators = ["sub:alice", "san:ops.example.org"]
//!
//! [[rule]]
//! name = "collectors"          # in logs; default: `rule` and its number
//! who = ["san:spiffe://prod/collectors/*", "@operators"]
//!                              # names, beginnings of names, groups; `*`: every caller with credentials
//! may = ["write"]              # read, write, administer
//! on = ["oxtsdb.data.v1.DataService", "/api/put"]
//!                              # services, methods, HTTP endpoints, `telnet/COMMAND`; grpc, http, telnet; default: all
//! metrics = ["sys.", "net."]   # beginnings of metrics; only operations that check them; default: all
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Policy, Rule, Target, Who};
use crate::operation::{Action, GRPC, HTTP, TELNET};

/// The most bytes of a policy file.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The most rules of a file, and the most elements of a list.
const MAX_ENTRIES: usize = 1000;

/// The longest name or prefix, in characters.
const MAX_NAME: usize = 1000;

/// Error of a policy file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read, is not TOML, or has an unknown key.
    #[error("{0}")]
    File(String),
    /// An entry breaks a rule.
    #[error("{entry}: {field}: {rule}")]
    Entry {
        /// The rule or the group.
        entry: String,
        /// Its field.
        field: &'static str,
        /// Why the value is rejected.
        rule: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    telnet: Option<String>,
    #[serde(default)]
    groups: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    rule: Vec<FileRule>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    name: Option<String>,
    who: Vec<String>,
    may: Vec<String>,
    on: Option<Vec<String>>,
    metrics: Option<Vec<String>>,
}

impl Policy {
    /// Parses a policy file.
    ///
    /// # Errors
    ///
    /// The first entry that is wrong, and its field.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let file: File = toml::from_str(text).map_err(|error| toml_error(text, &error))?;
        let telnet = match file.telnet.as_deref() {
            None | Some("off") => false,
            Some("loopback") => true,
            Some(other) => {
                let rule = format!("`{other}` is unknown, expected off or loopback");
                return Err(entry_error("file", "telnet", rule));
            }
        };
        let count = file.rule.len();
        if count > MAX_ENTRIES {
            let rule = format!("{count} entries, at most {MAX_ENTRIES} are allowed");
            return Err(entry_error("file", "[[rule]]", rule));
        }
        let mut groups = BTreeMap::new();
        for (name, members) in file.groups {
            let entry = format!("group {name}");
            check_list(&entry, "members", &members)?;
            let members = members
                .iter()
                .map(|member| who(member).map_err(|rule| entry_error(&entry, "members", rule)));
            groups.insert(name, members.collect::<Result<Vec<_>, _>>()?);
        }
        let rules = file.rule.into_iter().enumerate();
        let rules = rules.map(|(index, rule)| rule.check(index, &groups));
        Ok(Self {
            rules: rules.collect::<Result<_, _>>()?,
            telnet,
        })
    }
}

impl FileRule {
    fn check(self, index: usize, groups: &BTreeMap<String, Vec<Who>>) -> Result<Rule, PolicyError> {
        let label = self.name.unwrap_or_else(|| format!("rule {}", index + 1));
        check_list(&label, "who", &self.who)?;
        check_list(&label, "may", &self.may)?;
        let mut callers = Vec::new();
        for name in &self.who {
            match name.strip_prefix('@') {
                None => callers.push(who(name).map_err(|rule| entry_error(&label, "who", rule))?),
                Some(group) => {
                    let members = groups.get(group).ok_or_else(|| {
                        let nearest = nearest(group, groups.keys().map(String::as_str));
                        entry_error(&label, "who", format!("unknown group `@{group}`{nearest}"))
                    })?;
                    callers.extend(members.iter().cloned());
                }
            }
        }
        let may = self.may.iter().map(|name| action(name));
        let may: Vec<Action> = may
            .collect::<Result<_, _>>()
            .map_err(|rule| entry_error(&label, "may", rule))?;
        if let Some(on) = &self.on {
            check_list(&label, "on", on)?;
        }
        if let Some(metrics) = &self.metrics {
            check_list(&label, "metrics", metrics)?;
        }
        let mut rule = Rule {
            label: label.into(),
            who: callers,
            may,
            on: Vec::new(),
            metrics: self
                .metrics
                .map(|metrics| metrics.into_iter().map(Into::into).collect()),
        };
        for name in self.on.unwrap_or_default() {
            let target = target(&name).map_err(|error| entry_error(&rule.label, "on", error))?;
            rule.check_target(&name, &target)?;
            rule.on.push(target);
        }
        if rule.metrics.is_some() && !operations().any(|operation| rule.grants(&operation)) {
            let error = "none of the operations of this rule checks metrics";
            return Err(entry_error(&rule.label, "metrics", error));
        }
        Ok(rule)
    }
}

impl Rule {
    /// Rejects a target that the rest of the rule never grants.
    fn check_target(&self, name: &str, target: &Target) -> Result<(), PolicyError> {
        let of_target = || operations().filter(|operation| target.has(operation.name));
        if !of_target().any(|operation| self.may.contains(&operation.action)) {
            let mut needed: Vec<_> = of_target().map(|operation| operation.action.as_str()).collect();
            needed.sort_unstable();
            needed.dedup();
            let rule = format!(
                "`{name}` needs {}, which `may` does not have",
                needed.join(" or ")
            );
            return Err(entry_error(&self.label, "on", rule));
        }
        if self.metrics.is_some() && !of_target().any(|operation| operation.checks_metrics) {
            let rule = format!("`{name}` does not check metrics, a rule with `metrics` cannot grant it");
            return Err(entry_error(&self.label, "on", rule));
        }
        Ok(())
    }
}

/// All operations; of HTTP endpoints one for each action.
fn operations() -> impl Iterator<Item = crate::Operation> {
    let http = HTTP.iter().flat_map(|endpoint| {
        let template = endpoint.operation(&http::Method::GET, false);
        let of = move |action| crate::Operation { action, ..template };
        endpoint.actions().map(of)
    });
    GRPC.iter().chain(TELNET).copied().chain(http)
}

fn who(name: &str) -> Result<Who, String> {
    const KINDS: [&str; 3] = ["san:", "sub:", "group:"];
    match name {
        "*" => return Ok(Who::Authenticated),
        "anonymous" | "telnet" => return Ok(Who::Name(name.into())),
        _ => {}
    }
    let is_named = |kind: &str| name.strip_prefix(kind).is_some_and(|name| !name.is_empty());
    if !KINDS.into_iter().any(is_named) {
        return Err(format!(
            "`{name}` is no caller, expected san:NAME, sub:NAME, group:NAME, anonymous, telnet or *"
        ));
    }
    match name.strip_suffix('*') {
        Some(prefix) if prefix.contains('*') => Err(format!("`{name}` has a `*` before its end")),
        Some(prefix) => Ok(Who::Prefix(prefix.into())),
        None if name.contains('*') => Err(format!("`{name}` has a `*` before its end")),
        None => Ok(Who::Name(name.into())),
    }
}

fn action(name: &str) -> Result<Action, String> {
    let action = Action::ALL.into_iter().find(|action| action.as_str() == name);
    action.ok_or_else(|| format!("`{name}` is not a right, expected read, write or administer"))
}

fn target(name: &str) -> Result<Target, String> {
    match name {
        "grpc" => return Ok(Target::Grpc),
        "http" => return Ok(Target::Http),
        "telnet" => return Ok(Target::Telnet),
        _ => {}
    }
    let known = || operations().map(|operation| operation.name);
    if known().any(|operation| operation == name) {
        return Ok(Target::Operation(name.into()));
    }
    let services = || {
        GRPC.iter()
            .filter_map(|operation| Some(operation.name.split_once('/')?.0))
    };
    if services().any(|service| service == name) {
        return Ok(Target::Service(name.into()));
    }
    let kind = match name.split_once('/') {
        Some(("", _)) => "HTTP endpoint",
        Some(("telnet", _)) => "telnet command",
        Some(_) => "gRPC method",
        None => "gRPC service",
    };
    let nearest = nearest(name, known().chain(services()));
    Err(format!("unknown {kind} `{name}`{nearest}"))
}

/// `, did you mean …`, if a known name is similar.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let similar = known
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, _)| *distance <= 2)
        .min();
    similar.map_or_else(String::new, |(_, known)| format!(", did you mean `{known}`?"))
}

fn check_list(entry: &str, field: &'static str, list: &[String]) -> Result<(), PolicyError> {
    if !(1..=MAX_ENTRIES).contains(&list.len()) {
        let rule = format!("has {} elements, expected 1 to {MAX_ENTRIES}", list.len());
        return Err(entry_error(entry, field, rule));
    }
    for name in list {
        let chars = name.chars().count();
        if !(1..=MAX_NAME).contains(&chars) {
            let rule = format!("an element has {chars} characters, expected 1 to {MAX_NAME}");
            return Err(entry_error(entry, field, rule));
        }
    }
    Ok(())
}

/// The error of TOML in one line.
fn toml_error(text: &str, error: &toml::de::Error) -> PolicyError {
    let line = error
        .span()
        .and_then(|span| text.get(..span.start))
        .map(|before| before.matches('\n').count() + 1);
    let message = error.message().replace('\n', " ");
    PolicyError::File(match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    })
}

fn entry_error(entry: &str, field: &'static str, rule: impl Into<String>) -> PolicyError {
    PolicyError::Entry {
        entry: entry.to_owned(),
        field,
        rule: rule.into(),
    }
}
