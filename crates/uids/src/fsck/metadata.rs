//! Checks of UID metadata: the JSON of cells `metric_meta`, `tagk_meta` and `tagv_meta`.
//!
//! OpenTSDB accepts any order of fields and unknown fields. It fails on a document that is not an object, or
//! that has a field of another type than these.
//!
//! Source: OpenTSDB 2.4, `UIDMeta`.

use std::collections::BTreeMap;

use oxtsdb_schema::UidKind;
use serde::Deserialize;

use super::cells;
use super::finding::{CellChange, Finding, FindingType, Repair, label};
use super::text::shown_uid;

/// The fields that OpenTSDB reads. Numbers and booleans are texts to it as well.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only the types of the fields matter")]
struct Document {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(default)]
    display_name: Option<Text>,
    #[serde(default)]
    description: Option<Text>,
    #[serde(default)]
    notes: Option<Text>,
    #[serde(default)]
    created: Option<i64>,
    #[serde(default)]
    custom: Option<BTreeMap<String, Option<Text>>>,
}

/// A value that Jackson turns into a string.
#[derive(Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the types matter")]
enum Text {
    String(String),
    Number(f64),
    Boolean(bool),
}

/// The `type` of a kind.
const fn type_of(kind: UidKind) -> &'static str {
    match kind {
        UidKind::Metric => "METRIC",
        UidKind::Tagk => "TAGK",
        UidKind::Tagv => "TAGV",
    }
}

/// The finding of a document, if it is not what OpenTSDB reads for this kind.
pub(super) fn check(kind: UidKind, uid: &[u8], stored: &[u8]) -> Option<Finding> {
    let cell = cells::metadata(kind, uid);
    let change = |label: &str, description: &str, new: Option<Vec<u8>>| Repair {
        label: label.to_owned(),
        description: description.to_owned(),
        changes: vec![CellChange {
            cell: cell.clone(),
            old: Some(stored.to_vec()),
            new,
        }],
    };
    let remove = || change(label::REMOVE, "delete the metadata", None);
    let (finding, message, repair, alternatives) = match read(stored) {
        Err(error) => (
            FindingType::UnreadableMetadata,
            format!(
                "{kind} {} has metadata that cannot be read: {error}",
                shown_uid(uid)
            ),
            remove(),
            Vec::new(),
        ),
        Ok(document) => {
            let expected = type_of(kind);
            let stored_type = document.kind?;
            if stored_type.eq_ignore_ascii_case(expected) {
                return None;
            }
            let message = format!(
                "{kind} {} has metadata of the type `{}`, expected `{expected}`",
                shown_uid(uid),
                stored_type.escape_debug()
            );
            match with_type(stored, &stored_type, expected) {
                Some(corrected) => (
                    FindingType::MetadataType,
                    message,
                    change(label::CORRECT_TYPE, "correct the type", Some(corrected)),
                    vec![remove()],
                ),
                None => (FindingType::MetadataType, message, remove(), Vec::new()),
            }
        }
    };
    Some(Finding {
        finding,
        kind: Some(kind),
        names: Vec::new(),
        uid: Some(uid.to_vec()),
        message,
        repair: Some(repair),
        alternatives,
        evidence: vec![(cell.clone(), Some(stored.to_vec()))],
    })
}

fn read(stored: &[u8]) -> Result<Document, String> {
    // The deserializer takes an array of the fields as well.
    if stored.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is not a JSON object".to_owned());
    }
    serde_json::from_slice(stored).map_err(|error| error.to_string())
}

/// The document with another `type` and its other bytes as they are; `None` if it is not written as OpenTSDB does.
fn with_type(stored: &[u8], stored_type: &str, expected: &str) -> Option<Vec<u8>> {
    let start = format!("{{\"type\":\"{stored_type}\"");
    let rest = stored.strip_prefix(start.as_bytes())?;
    Some([format!("{{\"type\":\"{expected}\"").as_bytes(), rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding_of(kind: UidKind, json: &str) -> Option<(FindingType, Option<Vec<u8>>)> {
        let finding = check(kind, &[0, 0, 1], json.as_bytes())?;
        let repair = finding.repair.unwrap();
        Some((finding.finding, repair.changes[0].new.clone()))
    }

    #[test]
    fn accepts_what_opentsdb_reads() {
        for json in [
            r#"{"type":"METRIC","displayName":"CPU","description":"","notes":"","created":1356998400,"custom":{"owner":"Jane"}}"#,
            r#"{"custom":null,"created":1,"type":"metric","unknown":[1,{"a":2}],"notes":7}"#,
            "{}",
        ] {
            assert_eq!(finding_of(UidKind::Metric, json), None, "{json}");
        }
    }

    #[test]
    fn deletes_what_cannot_be_read() {
        for json in [
            "",
            "{",
            "[]",
            "null",
            r#"{"created":"x"}"#,
            r#"{"custom":[1]}"#,
            r#"{"notes":{}}"#,
        ] {
            assert_eq!(
                finding_of(UidKind::Tagk, json),
                Some((FindingType::UnreadableMetadata, None)),
                "{json}"
            );
        }
        assert!(check(UidKind::Tagk, &[0, 0, 1], &[b'{', 0xff, b'}']).is_some());
    }

    #[test]
    fn corrects_the_type_and_nothing_else() {
        let stored = r#"{"type":"TAGV","displayName":"a  b","custom":null}"#;
        let corrected = r#"{"type":"TAGK","displayName":"a  b","custom":null}"#;
        assert_eq!(
            finding_of(UidKind::Tagk, stored),
            Some((FindingType::MetadataType, Some(corrected.as_bytes().to_vec())))
        );
        let reordered = r#"{"notes":"","type":"TAGV"}"#;
        assert_eq!(
            finding_of(UidKind::Tagk, reordered),
            Some((FindingType::MetadataType, None))
        );
    }
}
