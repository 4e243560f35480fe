//! From the cells around a suspect to its findings, without I/O.
//!
//! | state of UID U | finding | repair |
//! |---|---|---|
//! | name N → U; U has no name | missing reverse | U → N |
//! | N → U; U → M; M has no UID | mismatched reverse | U → N, or finish the rename from N to M |
//! | N → U; U → M; M has another UID | mismatched reverse | U → N |
//! | several names → U | duplicate UID | keep the name that U has, else the one with the oldest cell |
//! | no name → U; U → M; M has no UID | missing forward | delete U's cells, or M → U |
//! | no name → U; U → M; M has another UID | duplicate reverse | delete U's cells |
//! | no name → U; U has no name, but metadata | orphaned metadata | delete it |
//! | U has another width, and U → M but not M → U | wrong width | delete U's cells |
//!
//! | state of name N, without a UID of the width in its forward cell | repair |
//! |---|---|
//! | a UID of the width has the name N, and no other name has it | N → that UID; delete other such UIDs |
//! | the UID of another width has the name N | none: the table may have been written with other settings |
//! | neither | delete the forward cell |
//!
//! A reverse cell without a value counts as none, and is reported as an empty value.

use super::cells::{StoredCell, forward, metadata, reverse};
use super::duplicates;
use super::facts::{NameFacts, UidFacts};
use super::finding::{CellChange, Finding, FindingType, Repair, label};
use super::metadata as documents;
use super::text::{mapping, shown_name, shown_uid};

/// The findings of a UID; none if it is healthy.
pub(super) fn uid_findings(facts: &UidFacts) -> Vec<Finding> {
    let mut findings = match facts.names.as_slice() {
        [] => unnamed(facts).into_iter().collect(),
        [(name, _)] => named(facts, name).into_iter().collect(),
        _ => duplicates::findings(facts),
    };
    // The scan has checked the metadata of UIDs that are mapped in both directions.
    let confirmed = facts
        .reverse_name()
        .is_some_and(|name| facts.names.iter().any(|(other, _)| other == name));
    if !facts.names.is_empty()
        && !confirmed
        && let Some(document) = &facts.metadata
    {
        findings.extend(documents::check(facts.kind, &facts.uid, document));
    }
    findings
}

/// No name has this UID.
fn unnamed(facts: &UidFacts) -> Option<Finding> {
    let (kind, uid) = (facts.kind, shown_uid(&facts.uid));
    let Some(stored) = &facts.reverse else {
        facts.metadata.as_ref()?;
        let message = format!("{kind} {uid} has metadata, but no name");
        let mut finding = facts.finding(FindingType::OrphanedMetadata, message);
        finding.repair = Some(facts.removal("delete the metadata".to_owned()));
        return Some(finding);
    };
    let remove = || facts.removal(format!("delete the reverse mapping of {uid} and its metadata"));
    if stored.is_empty() {
        let message = format!("{kind} {uid} has a reverse mapping without a name");
        let mut finding = facts.finding(FindingType::EmptyValue, message);
        finding.repair = Some(remove());
        return Some(finding);
    }
    let name = shown_name(stored);
    if !facts.has_width {
        // Mapped in both directions: a finding of its name.
        if facts.back.as_ref() == Some(&facts.uid) {
            return None;
        }
        let message = format!(
            "{} has {} bytes, not the configured width",
            mapping(kind, &facts.uid, stored),
            facts.uid.len()
        );
        let mut finding = facts.finding(FindingType::WrongWidth, message);
        finding.repair = Some(remove());
        return Some(finding);
    }
    match &facts.back {
        None => {
            let message = format!(
                "{}, but that name has no UID: an assignment was interrupted",
                mapping(kind, &facts.uid, stored)
            );
            let mut finding = facts.finding(FindingType::MissingForward, message);
            finding.repair = Some(remove());
            if let Some(cell) = forward(kind, stored) {
                finding.alternatives.push(Repair {
                    label: label::RESTORE_FORWARD.to_owned(),
                    description: format!("give `{name}` the UID {uid}"),
                    changes: vec![
                        CellChange::guard(facts.reverse_cell(), facts.reverse.clone()),
                        CellChange {
                            cell,
                            old: None,
                            new: Some(facts.uid.clone()),
                        },
                    ],
                });
            }
            Some(finding)
        }
        Some(other) if facts.back_has_width => {
            let message = format!(
                "{}, but that name has the UID {}",
                mapping(kind, &facts.uid, stored),
                shown_uid(other)
            );
            let mut finding = facts.finding(FindingType::DuplicateReverse, message);
            finding.repair = Some(remove());
            Some(finding)
        }
        // The name has a finding, and this UID may be its repair.
        Some(_) => None,
    }
}

/// One name has this UID.
fn named(facts: &UidFacts, name: &[u8]) -> Option<Finding> {
    let (kind, uid, shown) = (facts.kind, shown_uid(&facts.uid), shown_name(name));
    let forward_guard = || CellChange::guard(facts.forward_cell(name), Some(facts.uid.clone()));
    let restore = || Repair {
        label: label::RESTORE.to_owned(),
        description: format!("write the reverse mapping of {uid} to `{shown}`"),
        changes: vec![forward_guard(), facts.set_reverse(name)],
    };
    let (finding, message) = match &facts.reverse {
        None => (
            FindingType::MissingReverse,
            format!("{kind} `{shown}` has the UID {uid}, which has no name"),
        ),
        Some(stored) if stored.is_empty() => (
            FindingType::EmptyValue,
            format!("{kind} `{shown}` has the UID {uid}, whose reverse mapping has no name"),
        ),
        Some(stored) if stored == name => return None,
        Some(stored) => {
            let rest = match &facts.back {
                None => "which has no UID".to_owned(),
                Some(other) => format!("which has the UID {}", shown_uid(other)),
            };
            (
                FindingType::MismatchedReverse,
                format!(
                    "{kind} `{shown}` has the UID {uid}, which has the name `{}`, {rest}",
                    shown_name(stored)
                ),
            )
        }
    };
    let mut result = facts.finding(finding, message);
    result.repair = Some(restore());
    if finding == FindingType::MismatchedReverse
        && facts.back.is_none()
        && let Some(other) = facts.reverse_name()
        && let Some(cell) = forward(kind, other)
    {
        result.alternatives.push(Repair {
            label: label::FINISH_RENAME.to_owned(),
            description: format!("rename `{shown}` to `{}`", shown_name(other)),
            changes: vec![
                CellChange::guard(facts.reverse_cell(), facts.reverse.clone()),
                CellChange {
                    cell,
                    old: None,
                    new: Some(facts.uid.clone()),
                },
                CellChange {
                    cell: facts.forward_cell(name),
                    old: Some(facts.uid.clone()),
                    new: None,
                },
            ],
        });
    }
    Some(result)
}

/// The findings of a name without a UID of the layout's width in its forward cell.
pub(super) fn name_findings(facts: &NameFacts, width: usize) -> Vec<Finding> {
    let mut findings: Vec<Finding> = without_uid(facts, width).into_iter().collect();
    // The UID that the name will have is not mapped in both directions yet.
    if let Some((uid, Some(document))) = facts.claims.first() {
        findings.extend(documents::check(facts.kind, uid, document));
    }
    findings
}

fn without_uid(facts: &NameFacts, width: usize) -> Option<Finding> {
    let cell = forward(facts.kind, &facts.name)?;
    let (kind, name) = (facts.kind, shown_name(&facts.name));
    let (finding, message) = if facts.value.is_empty() {
        (
            FindingType::EmptyValue,
            format!("{kind} `{name}` has a forward mapping without a UID"),
        )
    } else {
        (
            FindingType::WrongWidth,
            format!(
                "{kind} `{name}` has a UID of {} bytes, {}; the configured width is {width}",
                facts.value.len(),
                shown_uid(&facts.value)
            ),
        )
    };
    let mut evidence = vec![(cell.clone(), Some(facts.value.clone()))];
    if !facts.value.is_empty() {
        evidence.push((reverse(kind, &facts.value), facts.reverse.clone()));
    }
    for (uid, _) in &facts.claims {
        evidence.push((reverse(kind, uid), Some(facts.name.clone())));
    }
    let set = |new: Option<Vec<u8>>| CellChange {
        cell: cell.clone(),
        old: Some(facts.value.clone()),
        new,
    };
    let of_other_width = facts.reverse.as_ref() == Some(&facts.name);
    let mut repair = None;
    let mut alternatives = Vec::new();
    if let [(first, _), rest @ ..] = facts.claims.as_slice() {
        let mut changes = vec![
            CellChange::guard(reverse(kind, first), Some(facts.name.clone())),
            set(Some(first.clone())),
        ];
        for (uid, document) in rest {
            changes.push(CellChange {
                cell: reverse(kind, uid),
                old: Some(facts.name.clone()),
                new: None,
            });
            if document.is_some() {
                changes.push(CellChange {
                    cell: metadata(kind, uid),
                    old: document.clone(),
                    new: None,
                });
            }
        }
        repair = Some(Repair {
            label: label::RESTORE.to_owned(),
            description: format!("give `{name}` the UID {}, which has this name", shown_uid(first)),
            changes,
        });
    } else if of_other_width {
        alternatives.push(Repair {
            label: label::REMOVE_OTHER_WIDTH.to_owned(),
            description: "delete the mapping in both directions".to_owned(),
            changes: vec![
                set(None),
                CellChange {
                    cell: reverse(kind, &facts.value),
                    old: facts.reverse.clone(),
                    new: None,
                },
            ],
        });
    } else {
        repair = Some(Repair {
            label: label::REMOVE.to_owned(),
            description: format!("delete the forward mapping of `{name}`"),
            changes: vec![set(None)],
        });
    }
    Some(Finding {
        finding,
        kind: Some(kind),
        names: vec![facts.name.clone()],
        uid: (!facts.value.is_empty()).then(|| facts.value.clone()),
        message,
        repair,
        alternatives,
        evidence,
    })
}

/// Whether two reads of a cell differ in their value.
pub(super) fn differs(stored: Option<&StoredCell>, expected: Option<&[u8]>) -> bool {
    stored.map(|cell| cell.value.as_slice()) != expected
}
