//! The counters: the highest number assigned so far, by kind.
//!
//! A counter behind a UID in use assigns that UID a second time, or fails to. It is raised to the largest UID of
//! a name, not to the UID of a leaked reverse mapping: a wrong one could use up the whole number space.

use oxtsdb_row_store::CellAddress;
use oxtsdb_schema::UidKind;
use oxtsdb_schema::uid_table::{COUNTER_ROW, decode_counter, encode_counter};

use super::cells;
use super::finding::{CellChange, Finding, FindingType, Repair, label};
use super::scan::Totals;
use crate::error::UidServiceError;
use crate::layout::KindLayout;
use crate::table::{ID, UidTable};

/// The finding of a kind's counter, read now, after all names were read.
pub(super) async fn check(
    table: &UidTable,
    kind: UidKind,
    totals: Totals,
) -> Result<Option<Finding>, UidServiceError> {
    let layout = table.layout().kinds.get(kind);
    if layout.random {
        return Ok(None);
    }
    let cell = CellAddress::new(COUNTER_ROW, ID, kind.qualifier());
    let stored = cells::values(table, std::slice::from_ref(&cell)).await?;
    let stored = stored.into_iter().next().flatten();
    Ok(finding(kind, *layout, totals, &cell, stored))
}

fn finding(
    kind: UidKind,
    layout: KindLayout,
    Totals { names, largest }: Totals,
    cell: &CellAddress,
    stored: Option<Vec<u8>>,
) -> Option<Finding> {
    let max = layout.width.max_number();
    let set = |label: &str, description: String| Repair {
        label: label.to_owned(),
        description,
        changes: vec![CellChange {
            cell: cell.clone(),
            old: stored.clone(),
            new: Some(encode_counter(largest).to_vec()),
        }],
    };
    let restore = || {
        set(
            label::RESTORE,
            format!("set the counter to {largest}, the largest UID"),
        )
    };
    let number = stored.as_deref().map(decode_counter);
    let (finding, message, repair, alternative) = match number {
        None if names == 0 => return None,
        None => (
            FindingType::CounterMissing,
            format!("{kind} has {names} names but no counter: UIDs would be assigned twice"),
            Some(restore()),
            None,
        ),
        Some(Err(error)) => (
            FindingType::CounterUnreadable,
            format!("no UID can be assigned to {kind}: {error}"),
            Some(restore()),
            None,
        ),
        Some(Ok(number)) => match u64::try_from(number) {
            Err(_) => (
                FindingType::CounterNegative,
                format!("no UID can be assigned to {kind}: its counter is {number}"),
                Some(restore()),
                None,
            ),
            Ok(number) if number < largest => {
                let raise = set(
                    label::RAISE,
                    format!("raise the counter from {number} to {largest}"),
                );
                // One wrong UID must not take the numbers of all names to come.
                let is_far = largest > names.saturating_mul(2) && largest - number > (max - number) / 2;
                let (repair, alternative) = if is_far {
                    (None, Some(raise))
                } else {
                    (Some(raise), None)
                };
                (
                    FindingType::CounterBehind,
                    format!(
                        "the counter of {kind} is {number}, the largest UID is {largest}: UIDs would be assigned twice"
                    ),
                    repair,
                    alternative,
                )
            }
            Ok(number) if number > max => (
                FindingType::CounterBeyondWidth,
                format!(
                    "the counter of {kind} is {number}, the largest number of {} bytes is {max}",
                    layout.width
                ),
                None,
                (largest < max).then(|| {
                    set(
                        label::LOWER,
                        format!("lower the counter to {largest}; UIDs of deleted names are assigned again"),
                    )
                }),
            ),
            Ok(number) if number > names => (
                FindingType::CounterAhead,
                format!(
                    "the counter of {kind} is {number}, there are {names} names: numbers were skipped or deleted"
                ),
                None,
                None,
            ),
            Ok(_) => return None,
        },
    };
    Some(Finding {
        finding,
        kind: Some(kind),
        names: Vec::new(),
        uid: None,
        message,
        repair,
        alternatives: alternative.into_iter().collect(),
        evidence: vec![(cell.clone(), stored)],
    })
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidth;

    use super::*;

    fn found(
        width: usize,
        names: u64,
        largest: u64,
        stored: Option<&[u8]>,
    ) -> Option<(FindingType, Option<u64>, Vec<String>)> {
        let layout = KindLayout {
            width: UidWidth::new(width).unwrap(),
            random: false,
            auto_create: true,
        };
        let cell = CellAddress::new(COUNTER_ROW, ID, b"tagk".as_slice());
        let stored = stored.map(<[u8]>::to_vec);
        let finding = finding(UidKind::Tagk, layout, Totals { names, largest }, &cell, stored)?;
        let set = finding.repair.map(|repair| {
            let new = repair.changes[0].new.clone().unwrap();
            u64::from_be_bytes(new.try_into().unwrap())
        });
        let alternatives = finding
            .alternatives
            .into_iter()
            .map(|repair| repair.label)
            .collect();
        Some((finding.finding, set, alternatives))
    }

    #[test]
    fn counters_are_compared_with_the_names() {
        let counter = |number: i64| number.to_be_bytes();
        let none: Vec<String> = Vec::new();
        assert_eq!(found(3, 0, 0, None), None);
        assert_eq!(found(3, 5, 5, Some(&counter(5))), None);
        let case = |stored: Option<&[u8]>, expected, set| {
            assert_eq!(found(3, 5, 9, stored), Some((expected, set, none.clone())));
        };
        case(None, FindingType::CounterMissing, Some(9));
        case(Some(&[0, 0, 1]), FindingType::CounterUnreadable, Some(9));
        case(Some(&[]), FindingType::CounterUnreadable, Some(9));
        case(Some(&counter(-2)), FindingType::CounterNegative, Some(9));
        case(Some(&counter(8)), FindingType::CounterBehind, Some(9));
        case(Some(&counter(9)), FindingType::CounterAhead, None);
        let beyond = found(1, 5, 9, Some(&counter(256)));
        assert_eq!(
            beyond,
            Some((FindingType::CounterBeyondWidth, None, vec!["lower".to_owned()]))
        );
    }

    #[test]
    fn a_far_uid_does_not_raise_the_counter_by_default() {
        let behind = found(3, 5, 0xff_ffff, Some(&[0; 8]));
        assert_eq!(
            behind,
            Some((FindingType::CounterBehind, None, vec!["raise".to_owned()]))
        );
        assert_eq!(
            found(1, 200, 255, Some(&[0; 8])),
            Some((FindingType::CounterBehind, Some(255), Vec::new()))
        );
    }
}
