//! Applies the rules of a tree to a series. Pure.
//!
//! ```text
//!   series ─► names, one for each level and part ─► place: branches below ROOT, and a leaf
//! ```
//!
//! Levels ascend; on a level the first rule that yields a name counts. A rule with a separator yields its parts as one
//! name each, and the level is evaluated again for each. Names are then combined from the last to the first:
//!
//! - The last name is the leaf; the others are branches.
//! - Levels without a name are skipped, unless the tree matches strictly: then the series has no place.
//! - A branch with the name of its parent is merged with it; so is a first branch named `ROOT`.
//! - **One name alone is no place.** OpenTSDB places a leaf only below a branch of its own; its test shows a leaf in
//!   the root that it never stores.
//!
//! Messages are OpenTSDB's, for the testing of rules. OpenTSDB fails on a tree without rules, on an empty value with a
//! separator, and where two rules of a level share the parts of one value and one has none left; here these yield no
//! name.
//!
//! Source: OpenTSDB 2.4, `TreeBuilder.processRuleset`.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_schema::Tsuid;
use oxtsdb_schema::tree::{ROOT_NAME, RuleDocument, RuleType, TreeId};

use super::error::TreeError;
use super::rule::{Extraction, MAX_RULES_BYTES, Rule, RuleKey};

/// The most names that a series may yield, empty ones included. Each is a level, and 4 bytes of a row key.
const MAX_NAMES: usize = 250;

/// The most bytes of all names of a series. Each branch repeats the names above it.
const MAX_NAME_BYTES: usize = 16 * 1024;

/// The most messages about a series.
const MAX_MESSAGES: usize = 2000;

/// The names of a series and the custom fields that rules use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeriesFacts {
    pub(crate) tsuid: Tsuid,
    pub(crate) metric: Subject,
    /// In the order of the TSUID.
    pub(crate) tags: Vec<(Subject, Subject)>,
}

/// The name of a metric, tag key or tag value, and its custom fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub(crate) name: Arc<str>,
    /// `None`: it has none, or no rule needs them.
    pub(crate) custom: Option<Arc<BTreeMap<String, String>>>,
}

/// Where a series belongs in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The series becomes a leaf.
    Place(Place),
    /// The tree matches strictly, and these rules failed: the last one of each level that yielded no name.
    NotMatched {
        /// Ascending by level.
        failed: Vec<RuleKey>,
        /// The only name, as in [`Outcome::TooFewNames`].
        root_leaf: Option<String>,
    },
    /// Fewer than two names. The only one, which OpenTSDB's test shows as a leaf of the root.
    TooFewNames(Option<String>),
    /// The rules yield more or longer names than a place may have.
    TooLarge(TooLarge),
}

/// A place in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The names of the branches below the root, from the first level.
    pub branches: Vec<String>,
    /// The name of the leaf.
    pub leaf: String,
}

/// Why a series cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// Too many names: the place is too deep.
    #[error("the rules yield more than {MAX_NAMES} names")]
    Names,
    /// The names are too long together.
    #[error("the names have more than {MAX_NAME_BYTES} bytes")]
    Bytes,
}

/// The rules of a tree, compiled.
#[derive(Clone, Debug)]
pub(crate) struct RuleSet {
    tree: TreeId,
    strict: bool,
    /// By level, then order; no level is empty.
    levels: Vec<Vec<Rule>>,
    bytes: usize,
}

impl RuleSet {
    /// Compiles rules, which ascend by level and order.
    ///
    /// # Errors
    ///
    /// [`TreeError::InvalidRule`] for the first rule that cannot be applied; [`TreeError::RulesTooLarge`].
    pub(crate) fn compile<'a>(
        tree: TreeId,
        strict: bool,
        rules: impl IntoIterator<Item = &'a RuleDocument>,
    ) -> Result<Self, TreeError> {
        let mut levels: Vec<Vec<Rule>> = Vec::new();
        let mut bytes = 0;
        for document in rules {
            let rule = Rule::compile(document)?;
            bytes += rule.memory_bytes();
            if bytes > MAX_RULES_BYTES {
                return Err(TreeError::RulesTooLarge(tree));
            }
            match levels.last_mut() {
                Some(level)
                    if level
                        .first()
                        .is_some_and(|first| first.key.level == rule.key.level) =>
                {
                    level.push(rule);
                }
                _ => levels.push(vec![rule]),
            }
        }
        Ok(Self {
            tree,
            strict,
            levels,
            bytes,
        })
    }

    /// The memory that the rules take, in bytes.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// The custom fields that rules use, with the types of the rules.
    pub(crate) fn custom_fields(&self) -> impl Iterator<Item = (RuleType, &str)> {
        let rules = self.levels.iter().flatten();
        rules
            .filter(|rule| !matches!(rule.key.rule_type, RuleType::Metric | RuleType::Tagk))
            .map(|rule| (rule.key.rule_type, rule.custom_field.as_str()))
    }

    /// Where a series belongs.
    pub(crate) fn place(&self, series: &SeriesFacts) -> Outcome {
        self.evaluate(series, &mut Messages(None))
    }

    /// Where a series belongs, and OpenTSDB's messages on the way there.
    pub(crate) fn test(&self, series: &SeriesFacts) -> (Outcome, Vec<String>) {
        let mut messages = Messages(Some(Vec::new()));
        let outcome = self.evaluate(series, &mut messages);
        (outcome, messages.0.unwrap_or_default())
    }

    fn evaluate(&self, series: &SeriesFacts, messages: &mut Messages) -> Outcome {
        let evaluation = Evaluation {
            series,
            messages,
            splits: None,
        };
        let (names, failed) = match evaluation.names(&self.levels) {
            Ok(names_and_failed) => names_and_failed,
            Err(too_large) => {
                messages.add(|| too_large.to_string());
                return Outcome::TooLarge(too_large);
            }
        };
        let outcome = combine(self.tree, series, names, messages);
        if self.strict && !failed.is_empty() {
            messages.add(|| {
                format!(
                    "TSUID failed to match one or more rule levels, will not add: {}",
                    series.tsuid
                )
            });
            let root_leaf = match outcome {
                Outcome::TooFewNames(root_leaf) => root_leaf,
                _ => None,
            };
            return Outcome::NotMatched { failed, root_leaf };
        }
        outcome
    }
}

/// Messages, if they are requested.
struct Messages(Option<Vec<String>>);

impl Messages {
    fn add(&mut self, message: impl FnOnce() -> String) {
        if let Some(messages) = &mut self.0
            && messages.len() < MAX_MESSAGES
        {
            messages.push(message());
        }
    }
}

/// The evaluation of the levels for one series.
struct Evaluation<'a, 'm> {
    series: &'a SeriesFacts,
    messages: &'m mut Messages,
    /// The parts of a value that was split, and the next one; they belong to the level, whichever rule made them.
    splits: Option<(Vec<&'a str>, usize)>,
}

impl<'a> Evaluation<'a, '_> {
    /// A name for each level and part, in order, empty where no rule yielded one; and the failed rules.
    fn names(mut self, levels: &[Vec<Rule>]) -> Result<(Vec<String>, Vec<RuleKey>), TooLarge> {
        let (mut names, mut failed, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut levels = levels.iter();
        let mut level = levels.next();
        while let Some(rules) = level {
            if names.len() == MAX_NAMES {
                return Err(TooLarge::Names);
            }
            let mut name = String::new();
            for rule in rules {
                self.messages.add(|| format!("Processing rule: {}", rule.key));
                name = self.apply(rule)?;
                if !name.is_empty() {
                    break;
                }
            }
            if name.is_empty() {
                failed.extend(rules.last().map(|rule| rule.key));
            }
            bytes += name.len();
            if bytes > MAX_NAME_BYTES {
                return Err(TooLarge::Bytes);
            }
            names.push(name);
            if self
                .splits
                .as_ref()
                .is_none_or(|(parts, next)| *next >= parts.len())
            {
                self.splits = None;
                level = levels.next();
            }
        }
        Ok((names, failed))
    }

    /// The name that a rule yields; empty: none.
    fn apply(&mut self, rule: &Rule) -> Result<String, TooLarge> {
        let series = self.series;
        let key = rule.key;
        let holder = match key.rule_type {
            RuleType::Metric => return self.extract(rule, &series.metric.name),
            RuleType::Tagk => {
                let value = series.tags.iter().find(|(tagk, _)| *tagk.name == *rule.field);
                self.messages
                    .add(|| matched(value.is_some(), "tagk", &rule.field, key));
                return value.map_or(Ok(String::new()), |(_, tagv)| self.extract(rule, &tagv.name));
            }
            RuleType::MetricCustom => Some(&series.metric),
            RuleType::TagkCustom => {
                let tagk = series
                    .tags
                    .iter()
                    .map(|(tagk, _)| tagk)
                    .find(|tagk| *tagk.name == *rule.field);
                self.messages
                    .add(|| matched(tagk.is_some(), "tagk", &rule.field, key));
                tagk
            }
            RuleType::TagvCustom => {
                let tagv = series
                    .tags
                    .iter()
                    .map(|(_, tagv)| tagv)
                    .find(|tagv| *tagv.name == *rule.field);
                self.messages
                    .add(|| matched(tagv.is_some(), "tagv", &rule.field, key));
                tagv
            }
        };
        let Some(holder) = holder else {
            return Ok(String::new());
        };
        let value = holder
            .custom
            .as_ref()
            .and_then(|custom| custom.get(&rule.custom_field));
        let name = value.map_or(Ok(String::new()), |value| self.extract(rule, value))?;
        self.messages
            .add(|| matched(value.is_some(), "custom tag", &rule.custom_field, key));
        Ok(name)
    }

    /// Cuts the name out of a value.
    fn extract(&mut self, rule: &Rule, value: &'a str) -> Result<String, TooLarge> {
        match &rule.extraction {
            Extraction::Whole => self.format(rule, value, value),
            Extraction::Group(regex, index) => {
                let Some(groups) = regex.find(value) else {
                    return Ok(String::new());
                };
                match groups.get(index + 1) {
                    None => {
                        let last = regex.group_count();
                        self.messages.add(|| {
                            format!(
                                "Regex group index [{index}] for rule {} was out of bounds [{last}]",
                                rule.key
                            )
                        });
                        Ok(String::new())
                    }
                    Some(None | Some("")) => {
                        self.messages
                            .add(|| format!("Extracted value for rule {} was null or empty", rule.key));
                        Ok(String::new())
                    }
                    Some(Some(group)) => self.format(rule, value, group),
                }
            }
            Extraction::Split(separator) => {
                if self.splits.is_none() {
                    if value.is_empty() {
                        return Ok(String::new());
                    }
                    let parts = separator.split(value, MAX_NAMES).ok_or(TooLarge::Names)?;
                    if parts.is_empty() {
                        self.messages.add(|| {
                            format!(
                                "Separator did not match, created an empty list on rule: {}",
                                rule.key
                            )
                        });
                    }
                    self.splits = Some((parts, 0));
                }
                let part = self.splits.as_mut().and_then(|(parts, next)| {
                    *next += 1;
                    parts.get(*next - 1).copied()
                });
                part.map_or(Ok(String::new()), |part| self.format(rule, value, part))
            }
        }
    }

    /// Replaces the tokens of a display format.
    fn format(&mut self, rule: &Rule, value: &str, extracted: &str) -> Result<String, TooLarge> {
        if rule.display_format.is_empty() {
            return within(extracted.len()).map(|()| extracted.to_owned());
        }
        let tsuid = self.series.tsuid.to_string();
        let tag_name = match rule.key.rule_type {
            RuleType::Metric => "",
            RuleType::Tagk => &rule.field,
            RuleType::MetricCustom | RuleType::TagkCustom | RuleType::TagvCustom => &rule.custom_field,
        };
        let mut name = rule.display_format.clone();
        // In this order; a value may contain a later token.
        for (token, replacement) in [
            ("{ovalue}", value),
            ("{value}", extracted),
            ("{tsuid}", &tsuid),
            ("{tag_name}", tag_name),
        ] {
            let count = name.matches(token).count();
            if count == 0 {
                continue;
            }
            if token == "{tag_name}" && rule.key.rule_type == RuleType::Metric {
                self.messages.add(|| {
                    format!(
                        "Display rule {} was of the wrong type to match on {{tag_name}}",
                        rule.key
                    )
                });
            }
            within(
                (name.len() - count * token.len()).saturating_add(count.saturating_mul(replacement.len())),
            )?;
            name = name.replace(token, replacement);
        }
        within(name.len()).map(|()| name)
    }
}

fn within(bytes: usize) -> Result<(), TooLarge> {
    if bytes > MAX_NAME_BYTES {
        return Err(TooLarge::Bytes);
    }
    Ok(())
}

fn matched(is_match: bool, what: &str, field: &str, rule: RuleKey) -> String {
    let verb = if is_match { "Matched" } else { "No match on" };
    format!("{verb} {what} [{field}] for rule: {rule}")
}

/// Combines the names from the last to the first.
fn combine(tree: TreeId, series: &SeriesFacts, names: Vec<String>, messages: &mut Messages) -> Outcome {
    let root = format!("ID: [{:04X}] Name: [{ROOT_NAME}]", tree.get());
    // The names below the current one, from the last; the leaf once it is known.
    let (mut leaf, mut below) = (None, Vec::new());
    let mut current: Option<&str> = names.last().map(String::as_str);
    for index in (0..names.len()).rev() {
        // OpenTSDB counts from the root, and prints the depth of the next level.
        let depth = index + 2;
        let previous = index
            .checked_sub(1)
            .and_then(|index| names.get(index))
            .map(String::as_str);
        let parent = || previous.map_or_else(|| root.clone(), |name| format!("Name: [{name}]"));
        let Some(name) = current.filter(|name| !name.is_empty()) else {
            current = previous;
            continue;
        };
        match (&leaf, previous) {
            (None, Some("")) => {
                messages.add(|| format!("Depth [{depth}] Parent branch was empty, rolling back"));
            }
            (None, _) => {
                messages.add(|| {
                    let leaf = format!("name: {name} tsuid: {}", series.tsuid);
                    format!(
                        "Depth [{depth}] Adding leaf [{leaf}] to parent branch [{}]",
                        parent()
                    )
                });
                leaf = Some(name.to_owned());
                current = previous;
            }
            (Some(_), None) => {}
            (Some(_), Some("")) => {
                messages.add(|| {
                    format!("Depth [{depth}] Skipping a non-matched branch, returning: Name: [{name}]")
                });
            }
            (Some(_), Some(previous)) if previous == name => {
                messages.add(|| format!("Depth [{depth}] Current was the same as previous"));
            }
            (Some(_), Some(_)) => {
                messages.add(|| {
                    format!(
                        "Depth [{depth}] Adding branch: Name: [{name}] to parent: {}",
                        parent()
                    )
                });
                below.push(name.to_owned());
                current = previous;
            }
        }
    }
    let (Some(first), Some(leaf)) = (current, leaf.clone()) else {
        return Outcome::TooFewNames(leaf);
    };
    let first = Some(first.to_owned()).filter(|first| first != ROOT_NAME);
    let branches = first.into_iter().chain(below.into_iter().rev()).collect();
    Outcome::Place(Place { branches, leaf })
}

#[cfg(test)]
mod tests;
