//! The rules file: TOML.
//!
//! ```toml
//! [[rule]]                     # the first rule that matches a name decides; without one, it is allowed
//! name = "no-uuids"            # in errors; default: `rule` and its number
//! action = "deny"              # or "allow"
//! kind = "tagv"                # metrics, tagk or tagv; default: all
//! tag_key = "host"             # tag values for this key only
//! pattern = "[0-9a-f]{8}-"     # names in which the regular expression is found; default: all
//! except = "^web"              # but not those in which this one is
//!
//! [[quota]]                    # at most `limit` names
//! kind = "tagv"                # of this kind
//! tag_key = "user"             # tag values that are assigned for this key only
//! limit = 100000
//!
//! [warnings]
//! percent = 90                 # of a number space, or of a quota
//! days = 30                    # until the forecast exhaustion
//! ```

use std::collections::HashSet;

use oxtsdb_schema::UidKind;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use super::{Policy, Quota, Rule, Scope, Warnings};

/// The most bytes of a rules file.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// The most rules, and the most quotas, of a file.
const MAX_ENTRIES: usize = 1000;

/// The most characters of a regular expression.
const MAX_PATTERN: usize = 1000;

/// The most memory of a compiled regular expression, in bytes.
const MAX_PROGRAM_BYTES: usize = 256 << 10;

/// The longest tag key of a rule or quota, in characters. It is part of a row key.
const MAX_TAG_KEY: usize = 1000;

/// Error of a rules file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFileError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The file is not TOML, or has an unknown key.
    #[error("{0}")]
    Toml(String),
    /// An entry breaks a rule.
    #[error("{entry}: {field}: {rule}")]
    Entry {
        /// The rule or quota.
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
    rule: Vec<FileRule>,
    #[serde(default)]
    quota: Vec<FileQuota>,
    #[serde(default)]
    warnings: FileWarnings,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRule {
    name: Option<String>,
    action: Action,
    kind: Option<String>,
    tag_key: Option<String>,
    pattern: Option<String>,
    except: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Action {
    Allow,
    Deny,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileQuota {
    kind: String,
    tag_key: Option<String>,
    limit: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileWarnings {
    percent: Option<u64>,
    days: Option<u64>,
}

impl Policy {
    /// Parses a rules file.
    ///
    /// # Errors
    ///
    /// The first entry that is wrong, and its field.
    pub(crate) fn parse(text: &str) -> Result<Self, PolicyFileError> {
        let file: File = toml::from_str(text).map_err(|error| toml_error(text, &error))?;
        for (entries, count) in [("[[rule]]", file.rule.len()), ("[[quota]]", file.quota.len())] {
            if count > MAX_ENTRIES {
                let rule = format!("{count} entries, at most {MAX_ENTRIES} are allowed");
                return Err(entry_error("file", entries, rule));
            }
        }
        let rules = file.rule.into_iter().enumerate();
        let rules = rules
            .map(|(index, rule)| rule.check(index))
            .collect::<Result<_, _>>()?;
        let quotas = file.quota.into_iter().enumerate();
        let quotas: Vec<Quota> = quotas
            .map(|(index, quota)| quota.check(index))
            .collect::<Result<_, _>>()?;
        let mut scopes = HashSet::new();
        for quota in &quotas {
            if !scopes.insert(&quota.scope) {
                let rule = format!("another quota limits {} already", quota.scope);
                return Err(entry_error(&quota.setting, "kind", rule));
            }
        }
        let defaults = Warnings::default();
        let warnings = Warnings {
            percent: file.warnings.percent.unwrap_or(defaults.percent),
            days: file.warnings.days.unwrap_or(defaults.days),
        };
        if !(1..=100).contains(&warnings.percent) {
            let rule = format!("{} is not a percentage, expected 1 to 100", warnings.percent);
            return Err(entry_error("[warnings]", "percent", rule));
        }
        Ok(Self {
            rules,
            quotas,
            warnings,
        })
    }

    /// Adds, before all other rules, that names of a kind must contain a match of each of the patterns. Empty
    /// patterns are left out, as in OpenTSDB.
    ///
    /// # Errors
    ///
    /// A pattern is not a regular expression.
    pub(crate) fn add_whitelist(
        &mut self,
        kind: UidKind,
        setting: &'static str,
        patterns: &str,
        delimiter: &str,
    ) -> Result<(), PolicyFileError> {
        let patterns = patterns.split(delimiter).filter(|pattern| !pattern.is_empty());
        for (index, pattern) in patterns.enumerate() {
            let except = expression(setting, "pattern", pattern)?;
            let rule = Rule {
                label: format!("{setting} {pattern}"),
                allow: false,
                kind: Some(kind),
                tag_key: None,
                pattern: None,
                except: Some(except),
            };
            self.rules.insert(index, rule);
        }
        Ok(())
    }
}

impl FileRule {
    fn check(self, index: usize) -> Result<Rule, PolicyFileError> {
        let label = self.name.unwrap_or_else(|| format!("rule {}", index + 1));
        let kind = match &self.kind {
            Some(text) => Some(kind(&label, text)?),
            None => None,
        };
        let compile = |field, pattern: Option<String>| match pattern {
            Some(pattern) => expression(&label, field, &pattern).map(Some),
            None => Ok(None),
        };
        Ok(Rule {
            allow: self.action == Action::Allow,
            tag_key: tag_key(&label, kind.unwrap_or(UidKind::Tagv), self.tag_key)?,
            pattern: compile("pattern", self.pattern)?,
            except: compile("except", self.except)?,
            kind,
            label,
        })
    }
}

impl FileQuota {
    fn check(self, index: usize) -> Result<Quota, PolicyFileError> {
        let setting = format!("quota {}", index + 1);
        let kind = kind(&setting, &self.kind)?;
        Ok(Quota {
            scope: Scope {
                kind,
                tag_key: tag_key(&setting, kind, self.tag_key)?,
            },
            limit: self.limit,
            setting,
        })
    }
}

fn kind(entry: &str, text: &str) -> Result<UidKind, PolicyFileError> {
    let unknown = |_| {
        let rule = format!("`{text}` is not a kind, expected metrics, tagk or tagv");
        entry_error(entry, "kind", rule)
    };
    text.parse().map_err(unknown)
}

fn tag_key(entry: &str, kind: UidKind, tag_key: Option<String>) -> Result<Option<String>, PolicyFileError> {
    let Some(text) = &tag_key else { return Ok(None) };
    let chars = text.chars().count();
    let rule = if kind != UidKind::Tagv {
        format!("only tag values have a tag key, kind is {kind}")
    } else if !(1..=MAX_TAG_KEY).contains(&chars) {
        format!("has {chars} characters, expected 1 to {MAX_TAG_KEY}")
    } else {
        return Ok(tag_key);
    };
    Err(entry_error(entry, "tag_key", rule))
}

fn expression(entry: &str, field: &'static str, pattern: &str) -> Result<Regex, PolicyFileError> {
    let chars = pattern.chars().count();
    if chars > MAX_PATTERN {
        let rule = format!("has {chars} characters, at most {MAX_PATTERN} are allowed");
        return Err(entry_error(entry, field, rule));
    }
    RegexBuilder::new(pattern)
        .size_limit(MAX_PROGRAM_BYTES)
        .build()
        .map_err(|error| entry_error(entry, field, syntax_error(pattern, &error)))
}

/// The error of an expression in one line, with its position if there is one.
fn syntax_error(pattern: &str, error: &regex::Error) -> String {
    use regex_syntax::Error;

    let (kind, span) = match regex_syntax::parse(pattern) {
        Err(Error::Parse(error)) => (error.kind().to_string(), *error.span()),
        Err(Error::Translate(error)) => (error.kind().to_string(), *error.span()),
        _ => return format!("`{pattern}`: {}", error.to_string().replace('\n', " ")),
    };
    format!("`{pattern}`: {kind}, at character {}", span.start.column)
}

/// The error of TOML in one line.
fn toml_error(text: &str, error: &toml::de::Error) -> PolicyFileError {
    let line = error
        .span()
        .and_then(|span| text.get(..span.start))
        .map(|before| before.matches('\n').count() + 1);
    let message = error.message().replace('\n', " ");
    PolicyFileError::Toml(match line {
        Some(line) => format!("line {line}: {message}"),
        None => message,
    })
}

fn entry_error(entry: &str, field: &'static str, rule: impl Into<String>) -> PolicyFileError {
    PolicyFileError::Entry {
        entry: entry.to_owned(),
        field,
        rule: rule.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Policy::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_entry_and_the_field() {
        assert_eq!(
            error("[[rule]]\naction='deny'\n[[rule]]\nname='ids'\naction='deny'\npattern='a(b'"),
            "ids: pattern: `a(b`: unclosed group, at character 2"
        );
        assert_eq!(
            error("[[rule]]\naction='deny'\nexcept='(?!x)'"),
            "rule 1: except: `(?!x)`: look-around, including look-ahead and look-behind, is not supported, at character 1"
        );
        assert_eq!(
            error("[[rule]]\naction='deny'\nkind='tag'"),
            "rule 1: kind: `tag` is not a kind, expected metrics, tagk or tagv"
        );
        assert_eq!(
            error("[[quota]]\nkind='tagk'\ntag_key='host'\nlimit=1"),
            "quota 1: tag_key: only tag values have a tag key, kind is tagk"
        );
        assert_eq!(
            error("[[quota]]\nkind='tagk'\nlimit=1\n[[quota]]\nkind='tagk'\nlimit=2"),
            "quota 2: kind: another quota limits tagk already"
        );
        assert_eq!(
            error("[warnings]\npercent=0"),
            "[warnings]: percent: 0 is not a percentage, expected 1 to 100"
        );
        let large = format!("[[rule]]\naction='deny'\npattern='{}'", "x".repeat(1001));
        assert_eq!(
            error(&large),
            "rule 1: pattern: has 1001 characters, at most 1000 are allowed"
        );
        assert!(error("[[rule]]\naction='deny'\npattern='(a{500}){500}'").contains("size limit"));
    }

    #[test]
    fn errors_of_toml_name_the_line() {
        assert!(error("[[rule]]\naction='reject'").starts_with("line 2: "));
        assert!(error("\n[[rule]]\naction='deny'\nkinds='x'").starts_with("line 4: unknown field `kinds`"));
        assert!(error("[[quota]]\nkind='tagk'\nlimit=-1").starts_with("line 3: "));
        assert!(error("rule = 1").starts_with("line 1: "));
    }
}
