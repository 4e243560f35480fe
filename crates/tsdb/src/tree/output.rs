//! How rules and trees print.

use std::fmt::Write as _;

use oxtsdb_access::shown::is_printable;
use oxtsdb_client::proto::data::v1::{TreeLeaf, TreeRule, TreeRuleType};

/// A line for each rule.
pub(super) fn rule_lines(rules: &[TreeRule]) -> String {
    let mut out = String::new();
    for rule in rules {
        let rule_type = match rule.r#type() {
            TreeRuleType::Unspecified => "?",
            TreeRuleType::Metric => "METRIC",
            TreeRuleType::MetricCustom => "METRIC_CUSTOM",
            TreeRuleType::TagKey => "TAGK",
            TreeRuleType::TagKeyCustom => "TAGK_CUSTOM",
            TreeRuleType::TagValueCustom => "TAGV_CUSTOM",
        };
        let _ = write!(out, "{}:{} {rule_type}", rule.level, rule.order);
        for (name, text) in [
            ("field", &rule.field),
            ("custom_field", &rule.custom_field),
            ("regex", &rule.regex),
            ("separator", &rule.separator),
            ("display_format", &rule.display_format),
            ("description", &rule.description),
            ("notes", &rule.notes),
        ] {
            if !text.is_empty() {
                let _ = write!(out, " {name}={text}");
            }
        }
        if rule.regex_group_index > 0 {
            let _ = write!(out, " regex_group_idx={}", rule.regex_group_index);
        }
        out.push('\n');
    }
    out
}

/// A leaf as `name  metric{tagk=tagv,…}`; without names its TSUID.
pub(super) fn leaf_text(leaf: &TreeLeaf) -> String {
    let name = printable(&leaf.display_name);
    match &leaf.name {
        None => format!("{name}  {}", hex::encode_upper(&leaf.tsuid)),
        Some(series) => {
            let tags: Vec<String> = series
                .tags
                .iter()
                .map(|tag| format!("{}={}", tag.key, tag.value))
                .collect();
            format!("{name}  {}{{{}}}", series.metric, tags.join(","))
        }
    }
}

/// A name on one line.
pub(super) fn printable(name: &str) -> String {
    name.chars()
        .map(|c| if is_printable(c) { c } else { '\u{fffd}' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_one_line_each() {
        let mut rule = TreeRule {
            level: 1,
            order: 2,
            field: "host".into(),
            regex: "(a)(b)".into(),
            regex_group_index: 1,
            ..TreeRule::default()
        };
        rule.set_type(TreeRuleType::TagKey);
        assert_eq!(
            rule_lines(&[rule]),
            "1:2 TAGK field=host regex=(a)(b) regex_group_idx=1\n"
        );
    }
}
