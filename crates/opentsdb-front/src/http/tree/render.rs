//! Responses as JSON, in the order of OpenTSDB's fields.

use std::collections::BTreeMap;

use oxtsdb_metadata::tree::Tree;
use oxtsdb_metadata::tree::branch::Leaf;
use oxtsdb_schema::stored_json;
use oxtsdb_schema::tree::{BranchDocument, BranchId, RuleDocument};
use serde::Serialize;

use crate::http::json;
use crate::http::reply::Reply;

/// A small response.
pub(super) fn reply(write: impl FnOnce(&mut Vec<u8>)) -> Reply {
    let mut out = Vec::new();
    write(&mut out);
    Reply::json(out)
}

/// A tree with its rules by level and order.
pub(super) fn tree(out: &mut Vec<u8>, tree: &Tree) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'a> {
        name: &'a str,
        description: &'a str,
        notes: &'a str,
        enabled: bool,
        rules: Option<BTreeMap<u32, BTreeMap<u32, &'a RuleDocument>>>,
        created: i64,
        tree_id: u16,
        strict_match: bool,
        store_failures: bool,
    }

    let mut rules: BTreeMap<u32, BTreeMap<u32, &RuleDocument>> = BTreeMap::new();
    for ((level, order), rule) in &tree.rules {
        rules.entry(*level).or_default().insert(*order, rule);
    }
    let definition = &tree.definition;
    let body = Body {
        name: &definition.name,
        description: &definition.description,
        notes: &definition.notes,
        enabled: definition.enabled,
        rules: Some(rules).filter(|rules| !rules.is_empty()),
        created: definition.created,
        tree_id: tree.id.get(),
        strict_match: definition.strict_match,
        store_failures: definition.store_failures,
    };
    out.extend_from_slice(&stored_json::to_bytes(&body));
}

/// A rule.
pub(super) fn rule(out: &mut Vec<u8>, rule: &RuleDocument) {
    out.extend_from_slice(&rule.encode());
}

/// A leaf with its names.
pub(super) fn leaf(out: &mut Vec<u8>, leaf: &Leaf) {
    out.extend_from_slice(b"{\"metric\":");
    let names = leaf.names.as_ref();
    json::write_string(out, names.map_or("", |names| &names.metric));
    out.extend_from_slice(b",\"tags\":");
    let tags = names.map_or(&[][..], |names| &names.tags);
    let mut tags: Vec<(&str, &str)> = tags.iter().map(|(key, value)| (&**key, &**value)).collect();
    tags.sort_unstable();
    json::write_map(out, tags);
    out.extend_from_slice(b",\"tsuid\":");
    json::write_string(out, &leaf.tsuid.to_string());
    out.extend_from_slice(b",\"displayName\":");
    json::write_string(out, &leaf.display_name);
    out.push(b'}');
}

/// Writes the fields of a branch that follow `leaves` and `branches`.
pub(super) fn branch_end(out: &mut Vec<u8>, id: &BranchId, document: &BranchDocument) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct End<'a> {
        path: &'a BTreeMap<u32, String>,
        display_name: &'a str,
        tree_id: u16,
        branch_id: String,
        depth: u32,
    }

    let end = stored_json::to_bytes(&End {
        path: &document.path,
        display_name: &document.display_name,
        tree_id: id.tree().get(),
        branch_id: id.to_string(),
        depth: document.path.last_key_value().map_or(0, |(depth, _)| *depth),
    });
    out.push(b',');
    // Without the brace at its begin.
    out.extend_from_slice(end.get(1..).unwrap_or_default());
}

/// A branch without leaves and branches.
pub(super) fn child(out: &mut Vec<u8>, id: &BranchId, document: &BranchDocument) {
    out.extend_from_slice(b"{\"leaves\":null,\"branches\":null");
    branch_end(out, id, document);
}
