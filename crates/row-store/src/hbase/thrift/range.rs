//! The remaining range of a scan, and the assembly of rows from their parts.

use super::raw::ScanRange;
use super::rows::RowPart;
use crate::{Row, RowFilter, Scan};

/// The keys from `start` (inclusive) to `stop` (exclusive), empty for unbounded, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyRange {
    start: Vec<u8>,
    stop: Vec<u8>,
    reverse: bool,
}

impl KeyRange {
    pub(super) fn from_scan(scan: &Scan) -> Self {
        Self {
            start: scan.start.clone(),
            stop: scan.stop.clone(),
            reverse: scan.reverse,
        }
    }

    /// Whether the range contains no key.
    pub(super) fn is_empty(&self) -> bool {
        !self.stop.is_empty() && self.start >= self.stop
    }

    /// Excludes everything up to and including this key.
    pub(super) fn resume_after(&mut self, key: &[u8]) {
        if self.reverse {
            self.stop = key.to_vec();
        } else {
            self.start = [key, &[0]].concat();
        }
    }

    /// Excludes everything before this key, in an ascending range only; false if that changes nothing.
    pub(super) fn seek(&mut self, key: Vec<u8>) -> bool {
        let is_ahead = !self.reverse && key > self.start;
        if is_ahead {
            self.start = key;
        }
        is_ahead
    }

    /// The last key, exclusive; `None`: unbounded.
    pub(super) fn stop(&self) -> Option<&[u8]> {
        (!self.stop.is_empty()).then_some(self.stop.as_slice())
    }

    /// The same keys in descending order.
    pub(super) fn reversed(&self) -> Self {
        Self {
            reverse: true,
            ..self.clone()
        }
    }

    /// The first key, inclusive.
    pub(super) fn start(&self) -> &[u8] {
        &self.start
    }

    /// An ascending range as up to `parts` ranges, in order, split in equal distances between two keys.
    pub(super) fn split(&self, first: &[u8], last: &[u8], parts: usize) -> Vec<Self> {
        let common = common_length(first, last);
        let (first, width) = (number(first, common), distance(first, last, last));
        let mut bounds: Vec<Vec<u8>> = (1..parts)
            .map(|part| {
                let offset = u128::from(width) * part as u128 / parts as u128;
                let at = first.saturating_add(u64::try_from(offset).unwrap_or(u64::MAX));
                [&last[..common], &at.to_be_bytes()].concat()
            })
            .filter(|bound| *bound > self.start && bound.as_slice() <= last && self.contains(bound))
            .collect();
        bounds.dedup();
        let starts = std::iter::once(self.start.clone()).chain(bounds.iter().cloned());
        let stops = bounds.iter().cloned().chain([self.stop.clone()]);
        starts
            .zip(stops)
            .map(|(start, stop)| Self {
                start,
                stop,
                reverse: false,
            })
            .collect()
    }

    /// The range to request from HBase.
    ///
    /// HBase's scanners start inclusively and stop exclusively in both directions, whereas ours start exclusively
    /// and stop inclusively when they descend. A descending scan therefore requests slightly more than its range.
    pub(super) fn scan_range(&self) -> ScanRange {
        if self.reverse {
            ScanRange {
                start: self.stop.clone(),
                stop: key_before(&self.start),
                reverse: true,
            }
        } else {
            ScanRange {
                start: self.start.clone(),
                stop: self.stop.clone(),
                reverse: false,
            }
        }
    }

    fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && (self.stop.is_empty() || key < self.stop.as_slice())
    }
}

/// How many bytes two keys have in common at their start.
fn common_length(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Eight bytes of a key as a number; a shorter key continues with zeros.
fn number(key: &[u8], at: usize) -> u64 {
    let mut bytes = [0; size_of::<u64>()];
    let rest = key.get(at..).unwrap_or_default();
    for (byte, key_byte) in bytes.iter_mut().zip(rest) {
        *byte = *key_byte;
    }
    u64::from_be_bytes(bytes)
}

/// How far `key` is from `first`, in units of the bytes in which `first` and `last` differ.
pub(super) fn distance(first: &[u8], key: &[u8], last: &[u8]) -> u64 {
    let common = common_length(first, last);
    number(key, common).saturating_sub(number(first, common))
}

/// Keys of this length, in bytes, are not extended further.
const LONG_KEY: usize = 1_024;

/// A key smaller than `key` with hardly any keys in between; empty if there is none.
fn key_before(key: &[u8]) -> Vec<u8> {
    let mut before = key.to_vec();
    match before.pop() {
        // Without its last 0 byte it is the direct predecessor.
        None | Some(0) => {}
        Some(last) => {
            before.push(last - 1);
            // Long keys are already at the limit.
            if before.len() < LONG_KEY {
                before.extend_from_slice(&[0xff; 8]);
            }
        }
    }
    before
}

/// Assembles rows from the parts in which they arrive.
#[derive(Debug)]
pub(super) struct Assembler {
    range: KeyRange,
    filter: Option<RowFilter>,
    /// The incomplete row.
    pending: Option<RowPart>,
    last_key: Option<Vec<u8>>,
    /// Rows since the last match.
    trailing_mismatches: usize,
}

impl Assembler {
    pub(super) fn new(range: KeyRange, filter: Option<RowFilter>) -> Self {
        Self {
            range,
            filter,
            pending: None,
            last_key: None,
            trailing_mismatches: 0,
        }
    }

    /// The key of the last complete row, matching or not.
    pub(super) fn last_key(&self) -> Option<&[u8]> {
        self.last_key.as_deref()
    }

    /// Number of rows since the last match.
    pub(super) fn trailing_mismatches(&self) -> usize {
        self.trailing_mismatches
    }

    /// The filter's hint after the last row received, complete or not, if that row does not match.
    pub(super) fn seek(&self) -> Option<Vec<u8>> {
        let pending = self.pending.as_ref().map(|row| row.key.as_slice());
        let key = pending.or(self.last_key.as_deref())?;
        let filter = self.filter.as_ref().filter(|_| !self.range.reverse)?;
        if filter.keeps(key) {
            None
        } else {
            filter.seek_after(key)
        }
    }

    /// The rows that these parts complete; at the end also the incomplete one.
    ///
    /// # Errors
    ///
    /// If a row has too many families.
    pub(super) fn add(&mut self, parts: Vec<RowPart>, is_at_end: bool) -> thrift::Result<Vec<Row>> {
        let mut rows = Vec::with_capacity(parts.len());
        for part in parts {
            match &mut self.pending {
                Some(pending) if pending.key == part.key => pending.append(&part)?,
                pending => {
                    if let Some(whole) = pending.replace(part) {
                        rows.extend(self.complete(whole));
                    }
                }
            }
        }
        if is_at_end && let Some(whole) = self.pending.take() {
            rows.extend(self.complete(whole));
        }
        Ok(rows)
    }

    fn complete(&mut self, row: RowPart) -> Option<Row> {
        self.last_key = Some(row.key.clone());
        let keeps = |key: &[u8]| self.filter.as_ref().is_none_or(|filter| filter.keeps(key));
        if !self.range.contains(&row.key) || !keeps(&row.key) {
            self.trailing_mismatches += 1;
            return None;
        }
        self.trailing_mismatches = 0;
        row.into_row()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(key: &str, qualifier: &str) -> RowPart {
        RowPart::from_cell(key.as_bytes(), "t", qualifier.as_bytes(), b"v")
    }

    fn shapes(rows: &[Row]) -> Vec<(&[u8], usize)> {
        rows.iter().map(|row| (row.key(), row.len())).collect()
    }

    #[test]
    fn row_completes_at_the_next_row_or_the_end() {
        let mut assembler = Assembler::new(KeyRange::from_scan(&Scan::prefix(b"")), None);
        let rows = assembler
            .add(vec![part("a", "1"), part("a", "2")], false)
            .unwrap();
        assert!(rows.is_empty() && assembler.last_key().is_none());
        let rows = assembler
            .add(vec![part("a", "3"), part("b", "1")], false)
            .unwrap();
        assert_eq!(shapes(&rows), [(b"a".as_slice(), 3)]);
        assert_eq!(assembler.last_key(), Some(b"a".as_slice()));
        let rows = assembler.add(vec![part("b", "2")], true).unwrap();
        assert_eq!(shapes(&rows), [(b"b".as_slice(), 2)]);
    }

    #[test]
    fn rejected_rows_advance_the_position() {
        let filter = RowFilter::new(|key| key != b"b");
        let mut assembler = Assembler::new(KeyRange::from_scan(&Scan::range("b", "d")), Some(filter));
        let parts = ["a", "b", "c", "d"].map(|key| part(key, "1"));
        let rows = assembler.add(parts.into(), true).unwrap();
        assert_eq!(shapes(&rows), [(b"c".as_slice(), 1)]);
        assert_eq!(assembler.last_key(), Some(b"d".as_slice()));
    }

    #[test]
    fn splits_dense_keys_evenly() {
        let key = |row: u16| [&[7, 7, 0][..], &row.to_be_bytes(), &[1, 2, 3]].concat();
        let range = KeyRange::from_scan(&Scan::range(key(100), [7, 8]));
        let split = range.split(&key(100), &key(1_100), 4);
        let rows = |range: &KeyRange| (100..=1_100).filter(|row| range.contains(&key(*row))).count();
        assert_eq!(split.iter().map(rows).collect::<Vec<_>>(), [251, 250, 250, 250]);
        assert_eq!(
            split[3].stop,
            [7, 8],
            "rows that are added meanwhile belong to the last part"
        );
        assert_eq!(range.split(&key(100), &key(101), 4).len(), 4);
        assert_eq!(
            range.split(&key(100), &key(100), 4),
            std::slice::from_ref(&range),
            "no row follows"
        );
    }

    #[test]
    fn detects_empty_ranges() {
        let is_empty = |start: &str, stop: &str| KeyRange::from_scan(&Scan::range(start, stop)).is_empty();
        assert!(is_empty("b", "b") && is_empty("b", "a") && is_empty("b\0", "b"));
        assert!(!is_empty("b", "b\0") && !is_empty("b", "") && !is_empty("", ""));
    }

    proptest! {
        /// The requested range covers every key of the scan. HBase's ranges include `start` and exclude `stop` in
        /// either direction.
        #[test]
        fn requested_range_covers_every_key(
            start in prop::collection::vec(any::<u8>(), 0..4),
            stop in prop::collection::vec(any::<u8>(), 0..4),
            key in prop::collection::vec(any::<u8>(), 1..5),
            reverse: bool,
        ) {
            let mut scan = Scan::range(start, stop);
            scan.reverse = reverse;
            let range = KeyRange::from_scan(&scan);
            let requested = range.scan_range();
            let is_given = if reverse {
                (requested.start.is_empty() || key <= requested.start) && key > requested.stop
            } else {
                key >= requested.start && (requested.stop.is_empty() || key < requested.stop)
            };
            prop_assert!(is_given || !range.contains(&key));
        }

        #[test]
        fn split_covers_the_range_in_order(
            start in prop::collection::vec(any::<u8>(), 0..12),
            stop in prop::collection::vec(any::<u8>(), 0..12),
            first in prop::collection::vec(any::<u8>(), 0..12),
            last in prop::collection::vec(any::<u8>(), 0..12),
            parts in 1_usize..9,
        ) {
            let range = KeyRange::from_scan(&Scan::range(start.clone(), stop.clone()));
            prop_assume!(!range.is_empty());
            let split = range.split(&first, &last, parts);
            prop_assert!(!split.is_empty() && split.len() <= parts);
            prop_assert_eq!(&split[0].start, &start);
            prop_assert_eq!(&split[split.len() - 1].stop, &stop);
            for two in split.windows(2) {
                prop_assert!(two[0].stop == two[1].start && two[0].start < two[0].stop);
            }
        }

        #[test]
        fn key_before_is_smaller_and_adjacent(key in prop::collection::vec(any::<u8>(), 1..6)) {
            let before = key_before(&key);
            prop_assert!(before < key);
            // Only keys that continue after eight bytes of 255 lie in between.
            let between = [before.as_slice(), &[0xff]].concat();
            prop_assert!(between > before && (between < key || key == [before.as_slice(), &[0]].concat()));
        }

        #[test]
        fn resume_excludes_received_rows(
            keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..4), 1..20),
            reverse: bool,
        ) {
            let mut scan = Scan::prefix(b"");
            scan.reverse = reverse;
            let mut keys: Vec<Vec<u8>> = keys.into_iter().collect();
            if reverse {
                keys.reverse();
            }
            for (index, last) in keys.iter().enumerate() {
                let mut range = KeyRange::from_scan(&scan);
                range.resume_after(last);
                prop_assert!(keys[..=index].iter().all(|key| !range.contains(key)));
                prop_assert!(keys[index + 1..].iter().all(|key| range.contains(key)));
            }
        }
    }
}
