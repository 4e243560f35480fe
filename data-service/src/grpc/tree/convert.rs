//! Between the contract's messages and documents of trees.

use oxtsdb_metadata::tree::Tree;
use oxtsdb_metadata::tree::branch::Leaf;
use oxtsdb_metadata::tree::edit::TreeEdit;
use oxtsdb_metadata::tree::rule::Rule;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::{Tree as TreeMessage, TreeBranch, TreeLeaf, TreeRule, TreeRuleType};
use oxtsdb_proto::error::{invalid_field, invalid_field_because};
use oxtsdb_proto::update_mask;
use oxtsdb_schema::tree::{BranchDocument, BranchId, RuleDocument, RuleType, TreeDocument, TreeId};
use prost_types::{FieldMask, Timestamp};
use tonic::Status;

use super::status::rule_status;

/// The fields of a definition that can be changed.
const FIELDS: [&str; 6] = [
    "name",
    "description",
    "notes",
    "strict_match",
    "enabled",
    "store_failures",
];

/// The id of a request.
pub(super) fn tree_id(field: &str, number: u32) -> Result<TreeId, Status> {
    TreeId::new(number).map_err(|error| invalid_field(field, error.to_string()))
}

/// A tree as its message.
pub(super) fn tree_message(tree: Tree) -> TreeMessage {
    let definition = tree.definition;
    TreeMessage {
        tree_id: tree.id.get().into(),
        name: definition.name,
        description: definition.description,
        notes: definition.notes,
        strict_match: definition.strict_match,
        enabled: definition.enabled,
        store_failures: definition.store_failures,
        create_time: (definition.created != 0).then_some(Timestamp {
            seconds: definition.created,
            nanos: 0,
        }),
        rules: tree.rules.into_values().map(rule_message).collect(),
        etag: tree.etag,
    }
}

fn rule_message(rule: RuleDocument) -> TreeRule {
    let mut message = TreeRule {
        level: u32::try_from(rule.level).unwrap_or_default(),
        order: u32::try_from(rule.order).unwrap_or_default(),
        field: rule.field,
        custom_field: rule.custom_field,
        regex: rule.regex,
        regex_group_index: u32::try_from(rule.regex_group_idx).unwrap_or_default(),
        separator: rule.separator,
        display_format: rule.display_format,
        description: rule.description,
        notes: rule.notes,
        ..TreeRule::default()
    };
    message.set_type(match rule.rule_type {
        RuleType::Metric => TreeRuleType::Metric,
        RuleType::MetricCustom => TreeRuleType::MetricCustom,
        RuleType::Tagk => TreeRuleType::TagKey,
        RuleType::TagkCustom => TreeRuleType::TagKeyCustom,
        RuleType::TagvCustom => TreeRuleType::TagValueCustom,
    });
    message
}

/// A new definition and its rules.
pub(super) fn new_tree(
    message: TreeMessage,
    created: i64,
) -> Result<(TreeDocument, Vec<RuleDocument>), Status> {
    let rules = rules("tree.rules", TreeId::FIRST, message.rules)?;
    let definition = TreeDocument {
        name: message.name,
        description: message.description,
        notes: message.notes,
        strict_match: message.strict_match,
        created,
        enabled: message.enabled,
        store_failures: message.store_failures,
    };
    Ok((definition, rules))
}

/// Rules of a request, checked.
pub(super) fn rules(field: &str, tree: TreeId, messages: Vec<TreeRule>) -> Result<Vec<RuleDocument>, Status> {
    let convert = |(index, message)| rule(&format!("{field}[{index}]"), tree, message);
    messages.into_iter().enumerate().map(convert).collect()
}

fn rule(field: &str, tree: TreeId, message: TreeRule) -> Result<RuleDocument, Status> {
    let number = |name: &str, number: u32| {
        let rule = || format!("is {number}, expected at most {}", i32::MAX);
        i32::try_from(number).map_err(|_| invalid_field(&format!("{field}.{name}"), rule()))
    };
    let rule_type = match message.r#type() {
        TreeRuleType::Unspecified => {
            let rule = format!("is {}, expected one of the named values", message.r#type);
            let field = format!("{field}.type");
            return Err(invalid_field_because(&field, ErrorReason::InvalidRule, rule));
        }
        TreeRuleType::Metric => RuleType::Metric,
        TreeRuleType::MetricCustom => RuleType::MetricCustom,
        TreeRuleType::TagKey => RuleType::Tagk,
        TreeRuleType::TagKeyCustom => RuleType::TagkCustom,
        TreeRuleType::TagValueCustom => RuleType::TagvCustom,
    };
    let document = RuleDocument {
        level: number("level", message.level)?,
        order: number("order", message.order)?,
        regex_group_idx: number("regex_group_index", message.regex_group_index)?,
        field: message.field,
        regex: message.regex,
        separator: message.separator,
        description: message.description,
        notes: message.notes,
        custom_field: message.custom_field,
        display_format: message.display_format,
        ..RuleDocument::new(tree, rule_type)
    };
    Rule::compile_strictly(&document).map_err(|error| rule_status(field, &error))?;
    Ok(document)
}

/// The edit of an update.
pub(super) fn tree_edit(tree: TreeMessage, mask: Option<&FieldMask>) -> Result<TreeEdit, Status> {
    let fields = update_mask::fields(mask, &FIELDS, |field| match field {
        "name" => !tree.name.is_empty(),
        "description" => !tree.description.is_empty(),
        "notes" => !tree.notes.is_empty(),
        "strict_match" => tree.strict_match,
        "enabled" => tree.enabled,
        _ => tree.store_failures,
    })?;
    let has = |field| fields.contains(&field);
    if has("name") && tree.name.is_empty() {
        return Err(invalid_field("tree.name", "is empty"));
    }
    Ok(TreeEdit {
        name: has("name").then_some(tree.name),
        description: has("description").then_some(tree.description),
        notes: has("notes").then_some(tree.notes),
        strict_match: has("strict_match").then_some(tree.strict_match),
        enabled: has("enabled").then_some(tree.enabled),
        store_failures: has("store_failures").then_some(tree.store_failures),
    })
}

/// A branch as its message.
pub(super) fn branch_message(id: &BranchId, document: BranchDocument) -> TreeBranch {
    TreeBranch {
        branch_id: id.as_bytes().to_vec().into(),
        display_name: document.display_name,
        path: document.path.into_values().collect(),
    }
}

/// A leaf as its message.
pub(super) fn leaf_message(leaf: Leaf) -> TreeLeaf {
    TreeLeaf {
        display_name: leaf.display_name,
        tsuid: leaf.tsuid.as_bytes().to_vec().into(),
        name: leaf.names.map(|names| {
            let mut tags: Vec<Tag> = names
                .tags
                .iter()
                .map(|(key, value)| Tag {
                    key: key.to_string(),
                    value: value.to_string(),
                })
                .collect();
            tags.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            SeriesName {
                metric: names.metric.to_string(),
                tags,
            }
        }),
    }
}
