//! Definitions of trees in files: JSON or TOML, with our names or OpenTSDB's.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use oxtsdb_client::proto::data::v1::{Tree, TreeRule, TreeRuleType};
use oxtsdb_schema::tree::RuleType;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The largest file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A definition.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TreeFile {
    name: String,
    description: String,
    notes: String,
    #[serde(alias = "strictMatch")]
    strict_match: bool,
    enabled: bool,
    #[serde(alias = "storeFailures")]
    store_failures: bool,
    #[serde(deserialize_with = "rules")]
    rules: Vec<RuleFile>,
    /// Not used; the tree gets an id of its own.
    #[serde(rename = "treeId")]
    _tree_id: i64,
    /// Not used; as the id.
    #[serde(rename = "created")]
    _created: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(rename = "type", deserialize_with = "rule_type")]
    rule_type: RuleType,
    #[serde(default)]
    level: u32,
    #[serde(default)]
    order: u32,
    #[serde(default)]
    field: String,
    #[serde(default, alias = "customField")]
    custom_field: String,
    #[serde(default)]
    regex: String,
    #[serde(default, alias = "regexGroupIdx", alias = "regex_group_index")]
    regex_group_idx: u32,
    #[serde(default)]
    separator: String,
    #[serde(default, alias = "displayFormat")]
    display_format: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    notes: String,
    /// Not used; the tree gets an id of its own.
    #[serde(default, rename = "treeId")]
    _tree_id: i64,
}

fn rule_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RuleType, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

/// Rules: a list, or by level and order as OpenTSDB's /api/tree returns them.
fn rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RuleFile>, D::Error> {
    struct Rules;

    // Unlike an untagged enum, a visitor reports which field of a rule is wrong.
    impl<'de> Visitor<'de> for Rules {
        type Value = Vec<RuleFile>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of rules, or rules by level and order")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }

        fn visit_map<A: MapAccess<'de>>(self, levels: A) -> Result<Self::Value, A::Error> {
            let levels: BTreeMap<String, BTreeMap<String, RuleFile>> =
                Deserialize::deserialize(MapAccessDeserializer::new(levels))?;
            Ok(levels.into_values().flat_map(BTreeMap::into_values).collect())
        }
    }

    deserializer.deserialize_any(Rules)
}

/// Reads a file; `-` is standard input.
///
/// # Errors
///
/// If it cannot be read, or is not a definition.
pub(super) fn read(path: &Path) -> anyhow::Result<Tree> {
    let is_stdin = path.as_os_str() == "-";
    let shown = if is_stdin {
        Path::new("standard input")
    } else {
        path
    }
    .display();
    let mut text = String::new();
    if is_stdin {
        std::io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
    }
    .with_context(|| format!("read {shown}"))?;
    ensure!(
        text.len() as u64 <= MAX_BYTES,
        "{shown} has more than {MAX_BYTES} bytes"
    );
    let is_toml = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    parse(&text, is_toml).with_context(|| format!("{shown} is not the definition of a tree"))
}

fn parse(text: &str, is_toml: bool) -> anyhow::Result<Tree> {
    let file: TreeFile = if is_toml {
        toml::from_str(text)?
    } else if text.trim_start().starts_with('[') {
        TreeFile {
            rules: serde_json::from_str(text)?,
            ..TreeFile::default()
        }
    } else {
        serde_json::from_str(text)?
    };
    Ok(Tree {
        name: file.name,
        description: file.description,
        notes: file.notes,
        strict_match: file.strict_match,
        enabled: file.enabled,
        store_failures: file.store_failures,
        rules: file.rules.into_iter().map(rule).collect(),
        ..Tree::default()
    })
}

fn rule(file: RuleFile) -> TreeRule {
    let mut rule = TreeRule {
        level: file.level,
        order: file.order,
        field: file.field,
        custom_field: file.custom_field,
        regex: file.regex,
        regex_group_index: file.regex_group_idx,
        separator: file.separator,
        display_format: file.display_format,
        description: file.description,
        notes: file.notes,
        ..TreeRule::default()
    };
    rule.set_type(match file.rule_type {
        RuleType::Metric => TreeRuleType::Metric,
        RuleType::MetricCustom => TreeRuleType::MetricCustom,
        RuleType::Tagk => TreeRuleType::TagKey,
        RuleType::TagkCustom => TreeRuleType::TagKeyCustom,
        RuleType::TagvCustom => TreeRuleType::TagValueCustom,
    });
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_toml_define_the_same_tree() {
        let toml = r#"
            name = "By DC"
            strict_match = true

            [[rules]]
            type = "tagk"
            field = "dc"

            [[rules]]
            level = 1
            type = "METRIC"
            separator = '\.'
        "#;
        let json = r#"{"name":"By DC","strictMatch":true,"rules":[
            {"type":"TAGK","field":"dc"}, {"type":"METRIC","level":1,"separator":"\\."}]}"#;
        let opentsdb = r#"{"name":"By DC","description":"","notes":"","enabled":false,"rules":{
            "0":{"0":{"type":"TAGK","field":"dc","regex":"","separator":"","description":"","notes":"","level":0,
                "order":0,"treeId":1,"customField":"","regexGroupIdx":0,"displayFormat":""}},
            "1":{"0":{"type":"METRIC","separator":"\\.","level":1,"order":0,"treeId":1}}},
            "created":1,"treeId":1,"strictMatch":true,"storeFailures":false}"#;
        let expected = parse(toml, true).unwrap();
        assert_eq!(
            (&*expected.name, expected.strict_match, expected.rules.len()),
            ("By DC", true, 2)
        );
        assert_eq!(expected.rules[1].separator, r"\.");
        assert_eq!(parse(json, false).unwrap(), expected);
        assert_eq!(parse(opentsdb, false).unwrap(), expected);
        assert_eq!(
            parse(r#"[{"type":"TAGK","field":"dc"}]"#, false).unwrap().rules,
            expected.rules[..1]
        );
    }

    #[test]
    fn wrong_rules_are_rejected() {
        for text in [
            r#"[{"type":"TAGV"}]"#,
            r#"[{"field":"x"}]"#,
            r#"[{"type":"METRIC","seperator":"x"}]"#,
            r#"{"name":"x","strict":true}"#,
        ] {
            parse(text, false).unwrap_err();
        }
    }
}
