//! The policy of assignment: which names may get a UID, how many of them, and when to warn.
//!
//! The policy applies on the write path, and only to names without a UID: existing names cost nothing. An operator's
//! explicit assignment is not subject to it, as OpenTSDB's `uid assign` is not subject to its filter, but counts
//! towards the quotas. Names keep the UIDs that they have, whatever the rules say later.
//!
//! - `file` parses the rules file, [`watch`] reads it again when it changes.
//! - `apply` assigns the names that it allows.
//! - [`quota`] counts names, in table `tsdb-uid-state`.
//!
//! Source of the patterns that must all match: OpenTSDB 2.4, `UniqueIdWhitelistFilter`.

pub(crate) mod apply;
mod file;
pub mod quota;
pub mod watch;

use std::fmt;

use oxtsdb_schema::{Name, UidKind};
use regex::Regex;

pub use file::PolicyFileError;

/// The policy of assignment. The default allows everything.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    quotas: Vec<Quota>,
    warnings: Warnings,
}

/// When the service warns that a kind of UIDs runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warnings {
    /// From this part of the number space, or of a quota, in percent.
    pub percent: u64,
    /// From this number of days before the forecast exhaustion.
    pub days: u64,
}

impl Default for Warnings {
    fn default() -> Self {
        Self {
            percent: 90,
            days: 30,
        }
    }
}

/// Allows or denies the names that it matches.
#[derive(Clone, Debug)]
struct Rule {
    /// Its name in errors.
    label: String,
    allow: bool,
    kind: Option<UidKind>,
    /// Matches tag values that are assigned for this key.
    tag_key: Option<String>,
    /// Matches names in which it is found.
    pattern: Option<Regex>,
    /// Does not match names in which it is found.
    except: Option<Regex>,
}

/// A limit of the count of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The names that it counts.
    pub scope: Scope,
    /// The most names.
    pub limit: u64,
    /// Its place in the rules file.
    pub setting: String,
}

/// The names that a quota counts: all names of a kind, or the tag values that were assigned for one tag key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// Their kind.
    pub kind: UidKind,
    /// With [`UidKind::Tagv`]: the tag key.
    pub tag_key: Option<String>,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tag_key {
            Some(tag_key) => write!(f, "{} of tag key `{tag_key}`", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

/// The rule that denies a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The name of the rule.
    pub rule: String,
}

impl Policy {
    /// Whether it allows everything without a count.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.quotas.is_empty()
    }

    /// Its quotas.
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }

    /// When to warn.
    pub fn warnings(&self) -> Warnings {
        self.warnings
    }

    /// Checks a name without a UID. The first rule that matches decides; without one, the name is allowed.
    ///
    /// # Errors
    ///
    /// The rule that denies it.
    pub fn check(&self, kind: UidKind, name: &Name, tag_key: Option<&str>) -> Result<(), Denied> {
        if self.rules.is_empty() {
            return Ok(());
        }
        let name = name.to_text();
        let first = self.rules.iter().find(|rule| rule.matches(kind, &name, tag_key));
        match first {
            Some(rule) if !rule.allow => Err(Denied {
                rule: rule.label.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// The quotas that count a name.
    pub fn quotas_of<'a>(
        &'a self,
        kind: UidKind,
        tag_key: Option<&'a str>,
    ) -> impl Iterator<Item = (usize, &'a Quota)> {
        let counts = move |(_, quota): &(usize, &Quota)| {
            let scope = &quota.scope;
            scope.kind == kind && (scope.tag_key.is_none() || scope.tag_key.as_deref() == tag_key)
        };
        self.quotas.iter().enumerate().filter(counts)
    }
}

impl Rule {
    fn matches(&self, kind: UidKind, name: &str, tag_key: Option<&str>) -> bool {
        self.kind.is_none_or(|only| only == kind)
            && (self.tag_key.is_none() || (kind == UidKind::Tagv && self.tag_key.as_deref() == tag_key))
            && self.pattern.as_ref().is_none_or(|pattern| pattern.is_match(name))
            && !self.except.as_ref().is_some_and(|except| except.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_stored(text.as_bytes()).unwrap()
    }

    fn rule_of(policy: &Policy, kind: UidKind, text: &str, tag_key: Option<&str>) -> Option<String> {
        policy
            .check(kind, &name(text), tag_key)
            .err()
            .map(|denied| denied.rule)
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let policy = Policy::parse(
            r#"
            [[rule]]
            action = "allow"
            kind = "metrics"
            pattern = "^sys[.]"
            [[rule]]
            name = "no-uuids"
            action = "deny"
            pattern = "[0-9a-f]{8}-[0-9a-f]{4}"
            [[rule]]
            action = "deny"
            kind = "tagv"
            tag_key = "host"
            except = "^web"
            "#,
        )
        .unwrap();
        use UidKind::{Metric, Tagk, Tagv};
        let check = |kind, text, tag_key| rule_of(&policy, kind, text, tag_key);
        assert_eq!(check(Metric, "sys.01234567-abcd", None), None);
        assert_eq!(
            check(Metric, "app.01234567-abcd", None).as_deref(),
            Some("no-uuids")
        );
        assert_eq!(
            check(Tagk, "db01", Some("host")),
            None,
            "a tag key has no tag key"
        );
        assert_eq!(check(Tagv, "db01", Some("host")).as_deref(), Some("rule 3"));
        assert_eq!(check(Tagv, "web01", Some("host")), None);
        assert_eq!(check(Tagv, "db01", Some("dc")), None);
        assert_eq!(check(Tagv, "db01", None), None, "the tag key is unknown");
    }

    #[test]
    fn patterns_match_characters_of_iso_8859_1() {
        let policy = Policy::parse("[[rule]]\naction='deny'\npattern='^\u{e9}t\u{e9}$'").unwrap();
        let latin1 = Name::from_stored(b"\xe9t\xe9").unwrap();
        assert!(policy.check(UidKind::Tagv, &latin1, None).is_err());
    }

    #[test]
    fn every_whitelist_pattern_must_be_found() {
        let mut policy = Policy::parse("[[rule]]\naction='allow'").unwrap();
        policy
            .add_whitelist(UidKind::Metric, "--uid-whitelist-metrics", "^sys,cpu", ",")
            .unwrap();
        assert_eq!(rule_of(&policy, UidKind::Metric, "sys.cpu.user", None), None);
        assert_eq!(
            rule_of(&policy, UidKind::Metric, "sys.mem", None).as_deref(),
            Some("--uid-whitelist-metrics cpu")
        );
        assert_eq!(rule_of(&policy, UidKind::Tagk, "host", None), None);
        let mut without = Policy::default();
        without
            .add_whitelist(UidKind::Metric, "--uid-whitelist-metrics", "", ",")
            .unwrap();
        assert!(without.is_empty());
    }

    #[test]
    fn a_quota_counts_a_kind_or_the_values_of_a_tag_key() {
        let policy = Policy::parse(
            "[[quota]]\nkind='tagv'\nlimit=10\n[[quota]]\nkind='tagv'\ntag_key='user'\nlimit=2\n\
             [[quota]]\nkind='metrics'\nlimit=5\n[warnings]\npercent=50\n",
        )
        .unwrap();
        let limits = |kind, tag_key| -> Vec<u64> {
            policy
                .quotas_of(kind, tag_key)
                .map(|(_, quota)| quota.limit)
                .collect()
        };
        assert_eq!(limits(UidKind::Tagv, Some("user")), [10, 2]);
        assert_eq!(limits(UidKind::Tagv, Some("host")), [10]);
        assert_eq!(limits(UidKind::Tagv, None), [10]);
        assert_eq!(limits(UidKind::Tagk, None), [0; 0]);
        assert_eq!(policy.quotas()[1].setting, "quota 2");
        assert_eq!((policy.warnings().percent, policy.warnings().days), (50, 30));
    }
}
