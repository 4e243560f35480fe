//! Rules: checked when they are set, compiled when they are applied.
//!
//! A rule extracts a value from a series, cuts a name out of it (a group of `regex`, the parts between matches of
//! `separator`, or all of it), and formats the name. Expressions have Java's syntax, see
//! [`oxtsdb_query::java_regex`].
//!
//! Source: OpenTSDB 2.4, `TreeRule.validateRule`, `TreeBuilder.processParsedValue`.

use std::fmt;

use oxtsdb_query::java_regex::{JavaRegex, SyntaxError};
use oxtsdb_schema::tree::{RuleDocument, RuleType, TreeId, TreeIdError};

/// The longest text of a rule or a definition, in bytes.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// The most bytes of all rules of a tree, as they are stored, and as they are kept compiled.
pub(crate) const MAX_RULES_BYTES: usize = 4 << 20;

/// Where a rule stands: `[tree:level:order:TYPE]`, as OpenTSDB prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleKey {
    pub(crate) tree: TreeId,
    pub(crate) level: u32,
    pub(crate) order: u32,
    pub(crate) rule_type: RuleType,
}

impl fmt::Display for RuleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "[{}:{}:{}:{}]",
            self.tree, self.level, self.order, self.rule_type
        )
    }
}

/// A rule that cannot be applied: which, which part of it, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rule [{tree}:{level}:{order}] {problem}")]
pub struct RuleError {
    /// The tree id of the rule, valid or not.
    pub tree: i64,
    /// Its level, valid or not.
    pub level: i64,
    /// Its order on the level, valid or not.
    pub order: i64,
    /// The first problem of the rule.
    pub problem: RuleProblem,
}

/// A rule that cannot be compiled, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleProblem {
    /// The tree id is out of range.
    #[error("has no valid tree: {0}")]
    Tree(TreeIdError),
    /// The level is negative.
    #[error("is of level {0}, expected 0 or more")]
    NegativeLevel(i32),
    /// The order is negative.
    #[error("is of order {0}, expected 0 or more")]
    NegativeOrder(i32),
    /// The type needs a tag key, or a name that has the custom field.
    #[error("has the type {0}, which needs a field")]
    MissingField(RuleType),
    /// The type needs the name of a custom field.
    #[error("has the type {0}, which needs a custom field")]
    MissingCustomField(RuleType),
    /// The group index is negative.
    #[error("has the regex group index {0}, expected 0 or more")]
    NegativeGroup(i32),
    /// The group index is too large for the regex.
    #[error("has the regex group index {index}, but its regex has {groups} groups")]
    NoSuchGroup {
        /// The index, from 0: the first group.
        index: i32,
        /// The number of groups of the regex, without the whole match.
        groups: usize,
    },
    /// The regex cannot be compiled.
    #[error("has a regex that {0}")]
    Regex(SyntaxError),
    /// The separator is a regex that cannot be compiled.
    #[error("has a separator that {0}")]
    Separator(SyntaxError),
    /// A text is too long.
    #[error("has a {part} of {length} bytes, at most {MAX_TEXT_BYTES} are allowed")]
    TooLong {
        /// The field of the rule, such as `regex`.
        part: &'static str,
        /// Its length, in bytes.
        length: usize,
    },
}

impl RuleProblem {
    /// The field of the contract's `TreeRule` that is wrong.
    pub fn part(&self) -> &'static str {
        match self {
            Self::Tree(_) => "tree_id",
            Self::NegativeLevel(_) => "level",
            Self::NegativeOrder(_) => "order",
            Self::MissingField(_) => "field",
            Self::MissingCustomField(_) => "custom_field",
            Self::NegativeGroup(_) | Self::NoSuchGroup { .. } => "regex_group_index",
            Self::Regex(_) => "regex",
            Self::Separator(_) => "separator",
            Self::TooLong { part, .. } => part,
        }
    }

    /// The first wrong character of the part, counted from 0.
    pub fn position(&self) -> Option<usize> {
        match self {
            Self::Regex(error) | Self::Separator(error) => error.position,
            _ => None,
        }
    }
}

/// A rule that can be applied.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) key: RuleKey,
    pub(crate) field: String,
    pub(crate) custom_field: String,
    pub(crate) extraction: Extraction,
    pub(crate) display_format: String,
}

/// How a name is cut out of a value.
#[derive(Clone, Debug)]
pub(crate) enum Extraction {
    Whole,
    /// A group of the first match; the whole match is not one.
    Group(JavaRegex, usize),
    Split(JavaRegex),
}

impl Rule {
    /// The memory that the rule takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let program = match &self.extraction {
            Extraction::Whole => 0,
            Extraction::Group(regex, _) | Extraction::Split(regex) => regex.memory_bytes(),
        };
        let texts = self.field.len() + self.custom_field.len() + self.display_format.len();
        size_of::<Self>() + texts + program
    }

    /// Checks and compiles a rule.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be compiled.
    pub(crate) fn compile(document: &RuleDocument) -> Result<Self, RuleError> {
        compile(document).map_err(|problem| RuleError {
            tree: document.tree_id.into(),
            level: document.level.into(),
            order: document.order.into(),
            problem,
        })
    }

    /// As `Rule::compile`; also rejects rules that can never match, which OpenTSDB accepts.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be compiled.
    pub fn compile_strictly(document: &RuleDocument) -> Result<Self, RuleError> {
        let rule = Self::compile(document)?;
        if let Extraction::Group(regex, index) = &rule.extraction
            && *index >= regex.group_count()
        {
            return Err(RuleError {
                tree: document.tree_id.into(),
                level: document.level.into(),
                order: document.order.into(),
                problem: RuleProblem::NoSuchGroup {
                    index: document.regex_group_idx,
                    groups: regex.group_count(),
                },
            });
        }
        Ok(rule)
    }
}

fn compile(document: &RuleDocument) -> Result<Rule, RuleProblem> {
    let rule_type = document.rule_type;
    let tree = TreeId::new(document.tree_id).map_err(RuleProblem::Tree)?;
    let level = u32::try_from(document.level).map_err(|_| RuleProblem::NegativeLevel(document.level))?;
    let order = u32::try_from(document.order).map_err(|_| RuleProblem::NegativeOrder(document.order))?;
    for (part, text) in [
        ("field", &document.field),
        ("regex", &document.regex),
        ("separator", &document.separator),
        ("description", &document.description),
        ("notes", &document.notes),
        ("custom_field", &document.custom_field),
        ("display_format", &document.display_format),
    ] {
        let length = text.len();
        if length > MAX_TEXT_BYTES {
            return Err(RuleProblem::TooLong { part, length });
        }
    }
    if rule_type != RuleType::Metric && document.field.is_empty() {
        return Err(RuleProblem::MissingField(rule_type));
    }
    if !matches!(rule_type, RuleType::Metric | RuleType::Tagk) && document.custom_field.is_empty() {
        return Err(RuleProblem::MissingCustomField(rule_type));
    }
    let group = usize::try_from(document.regex_group_idx)
        .map_err(|_| RuleProblem::NegativeGroup(document.regex_group_idx))?;
    let separator = match document.separator.as_str() {
        "" => None,
        text => Some(JavaRegex::compile(text).map_err(RuleProblem::Separator)?),
    };
    let extraction = match (document.regex.as_str(), separator) {
        ("", None) => Extraction::Whole,
        ("", Some(separator)) => Extraction::Split(separator),
        (text, _) => Extraction::Group(JavaRegex::compile(text).map_err(RuleProblem::Regex)?, group),
    };
    Ok(Rule {
        key: RuleKey {
            tree,
            level,
            order,
            rule_type,
        },
        field: document.field.clone(),
        custom_field: document.custom_field.clone(),
        extraction,
        display_format: document.display_format.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(change: impl Fn(&mut RuleDocument)) -> RuleError {
        let mut document = RuleDocument::new(TreeId::FIRST, RuleType::Metric);
        (document.level, document.order) = (2, 1);
        change(&mut document);
        Rule::compile_strictly(&document).unwrap_err()
    }

    #[test]
    fn errors_name_the_rule_the_part_and_the_position() {
        let error = error_of(|rule| rule.regex = "web(".into());
        assert_eq!(
            (error.problem.part(), error.problem.position()),
            ("regex", Some(3))
        );
        assert!(
            error
                .to_string()
                .starts_with("rule [1:2:1] has a regex that has a syntax error: unclosed group"),
            "{error}"
        );
        let error = error_of(|rule| rule.separator = r"\.(?=x)".into());
        assert_eq!(
            (error.problem.part(), error.problem.position()),
            ("separator", Some(2))
        );
        assert_eq!(
            error.to_string(),
            "rule [1:2:1] has a separator that has a look-ahead, which is not supported (at index 2)"
        );
        for (change, part) in [
            ((|rule| rule.tree_id = 0) as fn(&mut RuleDocument), "tree_id"),
            (|rule| rule.level = -1, "level"),
            (|rule| rule.order = -1, "order"),
            (|rule| rule.rule_type = RuleType::Tagk, "field"),
            (|rule| rule.rule_type = RuleType::MetricCustom, "field"),
            (
                |rule| (rule.rule_type, rule.field) = (RuleType::TagvCustom, "web01".into()),
                "custom_field",
            ),
            (|rule| rule.regex_group_idx = -1, "regex_group_index"),
            (
                |rule| (rule.regex, rule.regex_group_idx) = ("(a)".into(), 1),
                "regex_group_index",
            ),
            (|rule| rule.notes = "n".repeat(MAX_TEXT_BYTES + 1), "notes"),
        ] {
            let error = error_of(change);
            assert_eq!(error.problem.part(), part, "{error}");
            assert!(!error.to_string().contains("[1:2:1] [") && error.problem.position().is_none());
        }
    }

    #[test]
    fn a_group_beyond_the_last_is_accepted_from_opentsdb() {
        let mut document = RuleDocument::new(TreeId::FIRST, RuleType::Metric);
        (document.regex, document.regex_group_idx) = ("a".into(), 0);
        let rule = Rule::compile(&document).unwrap();
        assert!(matches!(rule.extraction, Extraction::Group(_, 0)));
        assert_eq!(rule.key.to_string(), "[1:0:0:METRIC]");
    }

    #[test]
    fn a_regex_precedes_a_separator() {
        let mut document = RuleDocument::new(TreeId::FIRST, RuleType::Metric);
        document.separator = r"\.".into();
        assert!(matches!(
            Rule::compile(&document).unwrap().extraction,
            Extraction::Split(_)
        ));
        document.regex = "(a)".into();
        assert!(matches!(
            Rule::compile(&document).unwrap().extraction,
            Extraction::Group(..)
        ));
    }
}
