//! Several names of one UID.
//!
//! Points of all of them are stored under that UID, and nothing distinguishes them. One name keeps it; the others
//! lose their forward mapping and get a UID of their own with their next point.
//!
//! Source: what OpenTSDB 2.4's `uid fsck fix` makes of it (a new name `fsck.a.b` for the UID) is the alternative
//! [`label::LIKE_OPENTSDB`].

use super::cells::forward;
use super::facts::UidFacts;
use super::finding::{CellChange, Finding, FindingType, Repair, label};
use super::text::{shown_name, shown_uid};

/// Names that one finding removes; more are findings of their own.
const NAMES: usize = 64;

/// Names that are offered to be kept.
const OFFERED: usize = 8;

/// Longest name that OpenTSDB's way makes.
const MAX_JOINED: usize = 32_000;

/// The findings of a UID with two names or more.
pub(super) fn findings(facts: &UidFacts) -> Vec<Finding> {
    let confirmed = facts
        .reverse_name()
        .filter(|name| facts.names.iter().any(|(other, _)| other == name));
    let (kept, label) = match confirmed {
        Some(name) => (name.to_vec(), label::KEEP_CONFIRMED.to_owned()),
        None => {
            let oldest = facts.names.iter().min_by_key(|(_, timestamp_ms)| *timestamp_ms);
            let oldest = oldest.map(|(name, _)| name.clone()).unwrap_or_default();
            (oldest, label::KEEP_OLDEST.to_owned())
        }
    };
    let others: Vec<&[u8]> = others(facts, &kept);
    let is_whole = others.len() <= NAMES;
    let mut findings = Vec::new();
    // After the first part, the reverse mapping is the name that is kept.
    let mut reverse = facts.clone();
    for part in others.chunks(NAMES) {
        let mut finding = finding(facts, &kept, part);
        finding.repair = Some(keep(&reverse, &kept, part, label.clone()));
        if is_whole {
            finding.alternatives = alternatives(facts, &kept);
        }
        findings.push(finding);
        reverse.reverse = Some(kept.clone());
    }
    findings
}

fn finding(facts: &UidFacts, kept: &[u8], others: &[&[u8]]) -> Finding {
    let mut shown: Vec<String> = others
        .iter()
        .take(OFFERED)
        .map(|name| format!("`{}`", shown_name(name)))
        .collect();
    if others.len() > OFFERED {
        shown.push("…".to_owned());
    }
    let message = format!(
        "{} {} is the UID of {} names: `{}` and {}",
        facts.kind,
        shown_uid(&facts.uid),
        facts.names.len(),
        shown_name(kept),
        shown.join(", ")
    );
    let part = UidFacts {
        names: facts
            .names
            .iter()
            .filter(|(name, _)| name == kept || others.contains(&name.as_slice()))
            .cloned()
            .collect(),
        ..facts.clone()
    };
    part.finding(FindingType::DuplicateUid, message)
}

fn others<'a>(facts: &'a UidFacts, kept: &[u8]) -> Vec<&'a [u8]> {
    let names = facts.names.iter().map(|(name, _)| name.as_slice());
    names.filter(|name| *name != kept).collect()
}

/// Keeps one name, and deletes the forward mappings of `others`.
fn keep(facts: &UidFacts, kept: &[u8], others: &[&[u8]], label: String) -> Repair {
    let mut changes = vec![CellChange::guard(
        facts.forward_cell(kept),
        Some(facts.uid.clone()),
    )];
    changes.push(facts.set_reverse(kept));
    changes.extend(others.iter().map(|name| removal(facts, name)));
    Repair {
        label,
        description: format!(
            "keep `{}` for {}, delete the forward mappings of the other names",
            shown_name(kept),
            shown_uid(&facts.uid)
        ),
        changes,
    }
}

fn removal(facts: &UidFacts, name: &[u8]) -> CellChange {
    CellChange {
        cell: facts.forward_cell(name),
        old: Some(facts.uid.clone()),
        new: None,
    }
}

fn alternatives(facts: &UidFacts, kept: &[u8]) -> Vec<Repair> {
    let mut alternatives: Vec<Repair> = others(facts, kept)
        .into_iter()
        .take(OFFERED)
        .map(|name| {
            let label = format!("{}{}", label::KEEP, shown_name(name));
            keep(facts, name, &others(facts, name), label)
        })
        .collect();
    alternatives.extend(like_opentsdb(facts));
    alternatives
}

/// One new name for all, so that no name of the data is wrong.
fn like_opentsdb(facts: &UidFacts) -> Option<Repair> {
    let mut joined = b"fsck".to_vec();
    for (name, _) in &facts.names {
        joined.push(b'.');
        joined.extend_from_slice(name);
    }
    if joined.len() > MAX_JOINED {
        return None;
    }
    let mut changes = vec![
        facts.set_reverse(&joined),
        CellChange {
            cell: forward(facts.kind, &joined)?,
            old: None,
            new: Some(facts.uid.clone()),
        },
    ];
    changes.extend(facts.names.iter().map(|(name, _)| removal(facts, name)));
    Some(Repair {
        label: label::LIKE_OPENTSDB.to_owned(),
        description: format!(
            "rename {} to `{}`, delete all of its names",
            shown_uid(&facts.uid),
            shown_name(&joined)
        ),
        changes,
    })
}
