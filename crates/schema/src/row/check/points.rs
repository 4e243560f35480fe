//! The points of a row: findings of their cells, duplicates, and the cells as they should be.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::{CheckRules, Findings, HOUR_MS, KeepDuplicate, RowChange, RowFindingType};
use crate::hex_text::excerpt;
use crate::qualifier::Qualifier;
use crate::row::cell::{AppendedPoints, CellKind, CellRef, CompactedPoints, RawPoint, append_point};
use crate::row::compacted::{CompactError, CompactedCell};
use crate::value::Value;

/// A point of a cell.
#[derive(Debug, Clone)]
struct Part<'a> {
    /// As it should be stored.
    qualifier: Qualifier,
    /// As it should be stored.
    value: Cow<'a, [u8]>,
    /// Whether it stays.
    is_kept: bool,
}

/// The points of a row, by cell.
#[derive(Debug, Default)]
pub(super) struct RowPoints<'a> {
    /// Of the cells that have points, and of those to be removed.
    cells: BTreeMap<usize, CellPoints<'a>>,
    /// The cells with points that are kept in place of others.
    winners: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct CellPoints<'a> {
    parts: Vec<Part<'a>>,
    /// Whether the cell is replaced by one of its kept points.
    is_changed: bool,
}

/// The qualifier and the value of a cell.
type Encoded = (Vec<u8>, Vec<u8>);

/// A point that competes with others of its instant.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    offset_ms: u32,
    timestamp_ms: i64,
    /// The cell, and the position in it.
    place: (usize, usize),
    kind: CellKind,
}

impl<'a> RowPoints<'a> {
    /// Removes a cell.
    pub(super) fn remove(&mut self, index: usize) {
        self.cells.insert(
            index,
            CellPoints {
                parts: Vec::new(),
                is_changed: true,
            },
        );
    }

    /// A cell of one point.
    pub(super) fn single(
        &mut self,
        index: usize,
        cell: CellRef<'a>,
        rules: &CheckRules,
        findings: &mut Findings,
    ) {
        let qualifier = match Qualifier::read(cell.qualifier) {
            Ok((qualifier, _)) => qualifier,
            Err(error) => {
                findings.add(RowFindingType::UnknownCell, cell.qualifier, || error.to_string());
                if rules.repairs(RowFindingType::UnknownCell) {
                    self.remove(index);
                }
                return;
            }
        };
        if is_beyond_hour(qualifier) {
            findings.add(RowFindingType::BeyondHour, cell.qualifier, || {
                format!("point `{qualifier}` is not of the row's hour")
            });
            if rules.repairs(RowFindingType::BeyondHour) {
                self.remove(index);
            }
            return;
        }
        let (finding, corrected) = match single_value(qualifier, cell.value) {
            SingleValue::Intact => {
                self.intact(index, (qualifier, cell.value), rules, findings);
                return;
            }
            SingleValue::LongFloat(float) => (RowFindingType::FloatLength, Some((qualifier, float))),
            SingleValue::OtherFlags(flags) => (RowFindingType::WrongFlags, Some((flags, cell.value))),
            SingleValue::Bad => (RowFindingType::ValueLength, None),
        };
        findings.add(finding, cell.qualifier, || {
            let error = Value::bad_length(qualifier.flags(), cell.value);
            format!("point `{qualifier}`: {error}")
        });
        let is_repaired = rules.repairs(finding);
        match corrected {
            Some(point) => {
                self.cells.entry(index).or_default().is_changed = is_repaired;
                if is_repaired && rules.repairs(RowFindingType::LongInteger) {
                    // With its flags corrected, the integer may be longer than needed.
                    self.intact(index, point, rules, findings);
                } else {
                    self.cells
                        .entry(index)
                        .or_default()
                        .parts
                        .push(Part::from_raw(point));
                }
            }
            None if is_repaired => self.remove(index),
            None => {}
        }
    }

    /// A readable point of a cell.
    fn intact(&mut self, index: usize, point: RawPoint<'a>, rules: &CheckRules, findings: &mut Findings) {
        let cell = self.cells.entry(index).or_default();
        let mut part = Part::from_raw(point);
        if let (true, Some(Value::Int(int))) = (point.1.len() == 8, Value::read(point.0.flags(), point.1)) {
            let encoded = Value::Int(int).encoded();
            let short = encoded.as_bytes();
            if short.len() < 8 {
                findings.add(RowFindingType::LongInteger, point.0.as_bytes(), || {
                    format!(
                        "point `{}` is the integer {int} in 8 bytes, {} suffice",
                        point.0,
                        short.len()
                    )
                });
                if rules.repairs(RowFindingType::LongInteger)
                    && let Ok(len) = u8::try_from(short.len())
                {
                    part.qualifier = point.0.with_value_len(len);
                    part.value = Cow::Owned(short.to_vec());
                    cell.is_changed = true;
                }
            }
        }
        cell.parts.push(part);
    }

    /// A compacted cell.
    pub(super) fn compacted(
        &mut self,
        index: usize,
        cell: CellRef<'a>,
        rules: &CheckRules,
        findings: &mut Findings,
    ) {
        let mut walk = CompactedPoints::new(cell);
        let points: Vec<RawPoint<'a>> = walk.by_ref().collect();
        if let Err(error) = walk.end() {
            findings.add(RowFindingType::CompactedLength, cell.qualifier, || {
                error.to_string()
            });
            if rules.repairs(RowFindingType::CompactedLength) {
                self.remove(index);
            }
            return;
        }
        let values: usize = points.iter().map(|(_, value)| value.len()).sum();
        let is_mixed = points.iter().any(|(qualifier, _)| qualifier.is_ms())
            && points.iter().any(|(qualifier, _)| !qualifier.is_ms());
        let mut is_changed = false;
        let mut add = |finding, message: String| {
            findings.add(finding, cell.qualifier, || message);
            is_changed |= rules.repairs(finding);
        };
        let meta = cell.value.get(values).copied();
        let name = || excerpt(cell.qualifier);
        match meta {
            Some(meta) if meta > 1 => add(
                RowFindingType::MetaByte,
                format!(
                    "compacted cell `{}` ends with the byte {meta:#04x}, expected 0 or 1",
                    name()
                ),
            ),
            Some(meta) if meta == u8::from(is_mixed) => {}
            Some(_) | None => add(
                RowFindingType::MetaByteMismatch,
                format!(
                    "compacted cell `{}` does not end with the byte {}",
                    name(),
                    u8::from(is_mixed)
                ),
            ),
        }
        let offsets = || points.iter().map(|(qualifier, _)| qualifier.offset_ms());
        if !offsets().is_sorted() {
            let message = format!("points of the compacted cell `{}` do not ascend", name());
            add(RowFindingType::CompactedOrder, message);
        }
        for point in points {
            match bad_point(point) {
                None => self.intact(index, point, rules, findings),
                Some(finding) => {
                    let is_removed = bad_part(finding, point, cell, rules, findings);
                    let cell = self.cells.entry(index).or_default();
                    cell.is_changed |= is_removed;
                    if !is_removed {
                        cell.parts.push(Part::from_raw(point));
                    }
                }
            }
        }
        self.cells.entry(index).or_default().is_changed |= is_changed;
    }

    /// A cell of appended points. They are in order of arrival, and the last one of an instant counts: neither
    /// disorder nor repetition is a fault.
    pub(super) fn appended(
        &mut self,
        index: usize,
        cell: CellRef<'a>,
        rules: &CheckRules,
        findings: &mut Findings,
    ) {
        let mut walk = AppendedPoints::new(cell);
        let mut points: Vec<RawPoint<'a>> = walk.by_ref().collect();
        if let Err(error) = walk.end() {
            findings.add(RowFindingType::AppendedCutOff, cell.qualifier, || {
                error.to_string()
            });
            if !rules.repairs(RowFindingType::AppendedCutOff) {
                return;
            }
            // From the first point that no writer produces, the bytes are no points.
            let intact = points.iter().take_while(|point| bad_point(**point).is_none());
            points.truncate(intact.count());
            self.cells.entry(index).or_default().is_changed = true;
        }
        for point in points {
            match bad_point(point) {
                None => self.intact(index, point, rules, findings),
                Some(finding) => {
                    let is_removed = bad_part(finding, point, cell, rules, findings);
                    let cell = self.cells.entry(index).or_default();
                    cell.is_changed |= is_removed;
                    if !is_removed {
                        cell.parts.push(Part::from_raw(point));
                    }
                }
            }
        }
    }

    /// Finds instants with several points, and drops all but one.
    pub(super) fn check_duplicates(
        &mut self,
        cells: &[CellRef<'_>],
        rules: &CheckRules,
        findings: &mut Findings,
    ) {
        let mut candidates = self.candidates(cells);
        candidates.sort_unstable_by_key(|candidate| (candidate.offset_ms, candidate.place));
        for group in candidates.chunk_by(|one, other| one.offset_ms == other.offset_ms) {
            let [first, others @ ..] = group else { continue };
            if others.is_empty() {
                continue;
            }
            let part = |candidate: &Candidate| self.part(candidate.place);
            let is_redundant = others.iter().all(|other| match (part(first), part(other)) {
                (Some(one), Some(other)) => one.has_value_of(other),
                _ => false,
            });
            let (finding, kept) = if is_redundant {
                // Removing a single point is the smallest change.
                let kept = group
                    .iter()
                    .min_by_key(|one| (one.kind == CellKind::Point, one.place));
                (RowFindingType::Redundant, kept)
            } else {
                let kept = match rules.keep {
                    KeepDuplicate::Oldest => group.iter().min_by_key(|one| (one.timestamp_ms, one.place)),
                    KeepDuplicate::Newest => group
                        .iter()
                        .min_by_key(|one| (Reverse(one.timestamp_ms), one.place)),
                };
                (RowFindingType::Duplicate, kept)
            };
            let Some(kept) = kept.copied() else { continue };
            let cell = cells.get(kept.place.0);
            let qualifier = cell.map_or(&[][..], |cell| cell.qualifier);
            for _ in others {
                findings.add(finding, qualifier, || {
                    format!(
                        "the instant {} ms after the base time has {} points, that of cell `{}` is kept",
                        kept.offset_ms,
                        group.len(),
                        excerpt(qualifier)
                    )
                });
            }
            if rules.repairs(finding) {
                self.winners.insert(kept.place.0);
                for lost in group.iter().filter(|one| one.place != kept.place) {
                    self.drop_point(lost);
                }
            }
        }
    }

    /// The points that count: of an appended cell, the last one of each instant.
    fn candidates(&self, cells: &[CellRef<'_>]) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (index, points) in &self.cells {
            let Some(cell) = cells.get(*index) else { continue };
            let kind = CellKind::from_qualifier(cell.qualifier);
            let of_cell = points.parts.iter().enumerate().map(|(position, part)| Candidate {
                offset_ms: part.qualifier.offset_ms(),
                timestamp_ms: cell.timestamp_ms,
                place: (*index, position),
                kind,
            });
            if kind == CellKind::Appended {
                let last: BTreeMap<u32, Candidate> = of_cell.map(|one| (one.offset_ms, one)).collect();
                candidates.extend(last.into_values());
            } else {
                candidates.extend(of_cell);
            }
        }
        candidates
    }

    fn part(&self, (cell, position): (usize, usize)) -> Option<&Part<'a>> {
        self.cells.get(&cell)?.parts.get(position)
    }

    /// Drops a point; of an appended cell also those that it replaced.
    fn drop_point(&mut self, lost: &Candidate) {
        let Some(cell) = self.cells.get_mut(&lost.place.0) else {
            return;
        };
        cell.is_changed = true;
        for (position, part) in cell.parts.iter_mut().enumerate() {
            let is_replaced = lost.kind == CellKind::Appended && part.qualifier.offset_ms() == lost.offset_ms;
            if position == lost.place.1 || is_replaced {
                part.is_kept = false;
            }
        }
    }

    /// The changes of the row: conditions, puts, removals. None if duplicates that are left alone would get one qualifier, or be in
    /// one cell.
    pub(super) fn changes(&self, cells: &[CellRef<'_>]) -> Vec<RowChange> {
        let mut targets: BTreeMap<Vec<u8>, (Vec<u8>, i64)> = BTreeMap::new();
        for (index, cell) in cells.iter().enumerate() {
            let target = match self.cells.get(&index) {
                Some(points) if points.is_changed => points.encode(cell),
                Some(_) | None => Ok(Some((cell.qualifier.to_vec(), cell.value.to_vec()))),
            };
            let Ok(target) = target else {
                return Vec::new();
            };
            if let Some((qualifier, value)) = target
                && targets.insert(qualifier, (value, cell.timestamp_ms)).is_some()
            {
                return Vec::new();
            }
        }
        let (mut guards, mut changes, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for (index, cell) in cells.iter().enumerate() {
            let old = Some((cell.value.to_vec(), cell.timestamp_ms));
            match targets.remove(cell.qualifier) {
                Some(new) if new.0 == cell.value => {
                    // A duplicate must not be removed when the point that is kept in its place is gone.
                    if self.winners.contains(&index) {
                        guards.push(RowChange {
                            qualifier: cell.qualifier.to_vec(),
                            new: old.clone(),
                            old,
                        });
                    }
                }
                new => {
                    let change = RowChange {
                        qualifier: cell.qualifier.to_vec(),
                        old,
                        new,
                    };
                    if change.new.is_some() {
                        changes.push(change);
                    } else {
                        removed.push(change);
                    }
                }
            }
        }
        changes.extend(targets.into_iter().map(|(qualifier, new)| RowChange {
            qualifier,
            old: None,
            new: Some(new),
        }));
        changes.extend(removed);
        if changes.is_empty() {
            return changes;
        }
        guards.extend(changes);
        guards
    }
}

impl CellPoints<'_> {
    /// The cell of the kept points; `None` if there are none.
    ///
    /// # Errors
    ///
    /// Duplicates in a compacted cell that are left alone.
    fn encode(&self, cell: &CellRef<'_>) -> Result<Option<Encoded>, CompactError> {
        let kept = self.parts.iter().filter(|part| part.is_kept);
        if CellKind::from_qualifier(cell.qualifier) == CellKind::Appended {
            let mut value = Vec::new();
            kept.for_each(|part| append_point(part.qualifier, &part.value, &mut value));
            return Ok((!value.is_empty()).then(|| (cell.qualifier.to_vec(), value)));
        }
        let mut kept: Vec<_> = kept.collect();
        kept.sort_by_key(|part| part.qualifier.offset_ms());
        let mut compacted = CompactedCell::new();
        for part in &kept {
            compacted.push_encoded(part.qualifier, &part.value)?;
        }
        if compacted.is_empty() {
            return Ok(None);
        }
        let (qualifier, value) = compacted.finish()?;
        Ok(Some((qualifier.to_vec(), value.to_vec())))
    }
}

impl<'a> Part<'a> {
    fn from_raw((qualifier, value): RawPoint<'a>) -> Part<'a> {
        Part {
            qualifier,
            value: Cow::Borrowed(value),
            is_kept: true,
        }
    }

    fn has_value_of(&self, other: &Part<'_>) -> bool {
        self.qualifier.is_float() == other.qualifier.is_float() && self.value == other.value
    }
}

fn is_beyond_hour(qualifier: Qualifier) -> bool {
    i64::from(qualifier.offset_ms()) >= HOUR_MS
}

/// The fault of a point in a cell of several.
fn bad_point((qualifier, value): RawPoint<'_>) -> Option<RowFindingType> {
    if is_beyond_hour(qualifier) {
        Some(RowFindingType::BeyondHour)
    } else if Value::read(qualifier.flags(), value).is_none() {
        Some(RowFindingType::ValueLength)
    } else {
        None
    }
}

/// Reports a point of a cell of several. Returns whether it is removed.
fn bad_part(
    finding: RowFindingType,
    (qualifier, value): RawPoint<'_>,
    cell: CellRef<'_>,
    rules: &CheckRules,
    findings: &mut Findings,
) -> bool {
    findings.add(finding, cell.qualifier, || {
        let name = excerpt(cell.qualifier);
        if finding == RowFindingType::BeyondHour {
            format!("point `{qualifier}` of cell `{name}` is not of the row's hour")
        } else {
            let error = Value::bad_length(qualifier.flags(), value);
            format!("point `{qualifier}` of cell `{name}`: {error}")
        }
    });
    rules.repairs(finding)
}

/// The value of a cell of one point.
enum SingleValue<'a> {
    Intact,
    /// A float of 4 bytes, in the last 4 of 8.
    LongFloat(&'a [u8]),
    /// A readable value, and the qualifier that has its length.
    OtherFlags(Qualifier),
    Bad,
}

fn single_value(qualifier: Qualifier, stored: &[u8]) -> SingleValue<'_> {
    if Value::read(qualifier.flags(), stored).is_some() {
        return SingleValue::Intact;
    }
    // Millisecond qualifiers are newer than the mistakes that can be corrected.
    if qualifier.is_ms() {
        return SingleValue::Bad;
    }
    if qualifier.flags() == 0xb {
        match stored {
            [0, 0, 0, 0, float @ ..] | [0xff, 0xff, 0xff, 0xff, float @ ..] if float.len() == 4 => {
                return SingleValue::LongFloat(float);
            }
            _ if stored.len() == 8 => return SingleValue::Bad,
            _ => {}
        }
    }
    let flags = u8::try_from(stored.len())
        .ok()
        .filter(|len| (1..=8).contains(len));
    let flags = flags.map(|len| qualifier.with_value_len(len));
    match flags.filter(|flags| Value::read(flags.flags(), stored).is_some()) {
        Some(flags) => SingleValue::OtherFlags(flags),
        None => SingleValue::Bad,
    }
}
