//! The JSON documents. Fields are declared in the order in which OpenTSDB serialises them.
//!
//! Readers accept any order, unknown fields, missing fields and `null`, as OpenTSDB's do.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use thiserror::Error;

use super::rows::{ROOT_NAME, TreeId};
use crate::stored_json::to_bytes;

/// A value that is not the JSON of its document.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("is not the JSON of a {document}: {reason}")]
pub struct DocumentError {
    /// The expected document.
    pub document: &'static str,
    /// The parser's reason.
    pub reason: String,
}

/// A tree definition, keyed by its row's tree id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TreeDocument {
    /// Name.
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    /// One line.
    #[serde(deserialize_with = "or_default")]
    pub description: String,
    /// Longer text.
    #[serde(deserialize_with = "or_default")]
    pub notes: String,
    /// Whether a series must match a rule on each level.
    pub strict_match: bool,
    /// Creation time in seconds since the epoch; 0 if unknown.
    pub created: i64,
    /// Whether new series are placed as they appear.
    pub enabled: bool,
    /// Whether collisions and series that did not match are stored.
    pub store_failures: bool,
}

/// The part of a series that a rule extracts a name from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RuleType {
    /// The name of the metric.
    Metric,
    /// A custom field of the metric's metadata.
    MetricCustom,
    /// The value of a tag key.
    Tagk,
    /// A custom field of a tag key's metadata.
    TagkCustom,
    /// A custom field of a tag value's metadata.
    TagvCustom,
}

impl RuleType {
    /// All types, in the order of their declaration.
    pub const ALL: [Self; 5] = [
        Self::Metric,
        Self::MetricCustom,
        Self::Tagk,
        Self::TagkCustom,
        Self::TagvCustom,
    ];

    /// The stored text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metric => "METRIC",
            Self::MetricCustom => "METRIC_CUSTOM",
            Self::Tagk => "TAGK",
            Self::TagkCustom => "TAGK_CUSTOM",
            Self::TagvCustom => "TAGV_CUSTOM",
        }
    }
}

impl fmt::Display for RuleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that is not the type of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{text}` is not the type of a rule, expected METRIC, METRIC_CUSTOM, TAGK, TAGK_CUSTOM or TAGV_CUSTOM"
)]
pub struct UnknownRuleType {
    /// The text.
    pub text: String,
}

impl FromStr for RuleType {
    type Err = UnknownRuleType;

    /// Parses the stored text, in any case.
    fn from_str(text: &str) -> Result<Self, UnknownRuleType> {
        Self::ALL
            .into_iter()
            .find(|known| known.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownRuleType {
                text: text.chars().take(64).collect(),
            })
    }
}

impl<'de> Deserialize<'de> for RuleType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleDocument {
    /// The part of a series that it reads.
    #[serde(rename = "type")]
    pub rule_type: RuleType,
    /// The tag key; of a custom field the name of the metric, tag key or tag value that has it.
    #[serde(default, deserialize_with = "or_default")]
    pub field: String,
    /// A regular expression; empty: the whole value.
    #[serde(default, deserialize_with = "or_default")]
    pub regex: String,
    /// A regular expression that splits the value into levels; empty: one level.
    #[serde(default, deserialize_with = "or_default")]
    pub separator: String,
    /// One line.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// Longer text.
    #[serde(default, deserialize_with = "or_default")]
    pub notes: String,
    /// Level, from 0.
    #[serde(default)]
    pub level: i32,
    /// Order on the level, from 0.
    #[serde(default)]
    pub order: i32,
    /// The tree.
    #[serde(default)]
    pub tree_id: i32,
    /// The custom field.
    #[serde(default, deserialize_with = "or_default")]
    pub custom_field: String,
    /// The group of `regex`, from 0.
    #[serde(default)]
    pub regex_group_idx: i32,
    /// The display name, with tokens; empty: the extracted value.
    #[serde(default, deserialize_with = "or_default")]
    pub display_format: String,
}

/// A branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BranchDocument {
    /// Display names from the root (0) to this branch, by depth.
    pub path: BTreeMap<u32, String>,
    /// The display name.
    pub display_name: String,
}

/// A leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeafDocument {
    /// The display name.
    pub display_name: String,
    /// The series, as hex.
    pub tsuid: String,
}

impl TreeDocument {
    /// The stored value.
    pub fn encode(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Decodes a stored value.
    ///
    /// # Errors
    ///
    /// If it is not this document.
    pub fn decode(value: &[u8]) -> Result<Self, DocumentError> {
        decode(value, "tree")
    }
}

impl RuleDocument {
    /// A rule of a type, with nothing else set.
    pub fn new(tree: TreeId, rule_type: RuleType) -> Self {
        Self {
            rule_type,
            field: String::new(),
            regex: String::new(),
            separator: String::new(),
            description: String::new(),
            notes: String::new(),
            level: 0,
            order: 0,
            tree_id: tree.get().into(),
            custom_field: String::new(),
            regex_group_idx: 0,
            display_format: String::new(),
        }
    }

    /// The stored value.
    pub fn encode(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Decodes a stored value.
    ///
    /// # Errors
    ///
    /// If it is not this document.
    pub fn decode(value: &[u8]) -> Result<Self, DocumentError> {
        decode(value, "rule")
    }
}

impl BranchDocument {
    /// The root of a tree.
    pub fn root() -> Self {
        Self {
            path: BTreeMap::from([(0, ROOT_NAME.to_owned())]),
            display_name: ROOT_NAME.to_owned(),
        }
    }

    /// The child of this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        let depth = self.path.last_key_value().map_or(0, |(depth, _)| depth + 1);
        let mut path = self.path.clone();
        path.insert(depth, name.to_owned());
        Self {
            path,
            display_name: name.to_owned(),
        }
    }

    /// The stored value.
    pub fn encode(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Decodes a stored value.
    ///
    /// # Errors
    ///
    /// If it is not this document.
    pub fn decode(value: &[u8]) -> Result<Self, DocumentError> {
        decode(value, "branch")
    }
}

impl LeafDocument {
    /// The stored value.
    pub fn encode(&self) -> Vec<u8> {
        to_bytes(self)
    }

    /// Decodes a stored value.
    ///
    /// # Errors
    ///
    /// If it is not this document.
    pub fn decode(value: &[u8]) -> Result<Self, DocumentError> {
        decode(value, "leaf")
    }
}

fn decode<T: DeserializeOwned>(value: &[u8], document: &'static str) -> Result<T, DocumentError> {
    serde_json::from_slice(value).map_err(|error| DocumentError {
        document,
        reason: error.to_string().chars().take(200).collect(),
    })
}

/// `null` as the default.
fn or_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.unwrap_or_default())
}
