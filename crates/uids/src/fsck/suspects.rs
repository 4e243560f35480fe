//! The UIDs and names that the first two scans could not confirm: bitmaps, so that a table of any size and any
//! damage takes constant memory.
//!
//! A UID of the layout's width, if that is 3 bytes at most, has a bit of its own; all others share bits by their
//! hash. A UID that shares a bit with a suspect is classified as well, and found to be healthy.

use oxtsdb_schema::{PerKind, UidKind, UidWidth};

use crate::layout::UidLayout;

/// Bits for UIDs of up to 3 bytes, and for names: 2 MiB.
const SMALL: usize = 1 << 24;

/// Bits for wider UIDs: 16 MiB.
const LARGE: usize = 1 << 27;

/// The suspects of all kinds.
#[derive(Debug)]
pub(super) struct Suspects {
    uids: PerKind<Bitmap>,
    widths: PerKind<UidWidth>,
    names: Bitmap,
    any: bool,
}

impl Suspects {
    pub(super) fn new(layout: &UidLayout) -> Self {
        let mut widths = PerKind::<UidWidth>::default();
        let mut uids = PerKind::<Bitmap>::default();
        for kind in UidKind::ALL {
            let width = layout.width(kind);
            *widths.get_mut(kind) = width;
            uids.get_mut(kind).bits = if width.bytes() <= 3 { SMALL } else { LARGE };
        }
        Self {
            uids,
            widths,
            names: Bitmap {
                bits: SMALL,
                ..Bitmap::default()
            },
            any: false,
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        !self.any
    }

    pub(super) fn add_uid(&mut self, kind: UidKind, uid: &[u8]) {
        self.any = true;
        let place = self.place(kind, uid);
        self.uids.get_mut(kind).set(place);
    }

    /// False only if the UID was not added.
    pub(super) fn may_have_uid(&self, kind: UidKind, uid: &[u8]) -> bool {
        self.uids.get(kind).get(self.place(kind, uid))
    }

    pub(super) fn add_name(&mut self, kind: UidKind, name: &[u8]) {
        self.any = true;
        self.names.set(hash(kind, name));
    }

    /// False only if the name was not added.
    pub(super) fn may_have_name(&self, kind: UidKind, name: &[u8]) -> bool {
        self.names.get(hash(kind, name))
    }

    fn place(&self, kind: UidKind, uid: &[u8]) -> u64 {
        if uid.len() <= 3 && uid.len() == self.widths.get(kind).bytes() {
            return uid.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        }
        hash(kind, uid)
    }
}

/// Bits, allocated when the first one is set.
#[derive(Debug, Default)]
struct Bitmap {
    /// A power of 2.
    bits: usize,
    words: Vec<u64>,
}

impl Bitmap {
    #[expect(clippy::cast_possible_truncation, reason = "reduced below the number of bits")]
    fn position(&self, place: u64) -> (usize, u64) {
        let place = (place % self.bits as u64) as usize;
        (place / 64, 1 << (place % 64))
    }

    fn set(&mut self, place: u64) {
        if self.words.is_empty() {
            self.words = vec![0; self.bits / 64];
        }
        let (word, bit) = self.position(place);
        self.words[word] |= bit;
    }

    fn get(&self, place: u64) -> bool {
        let (word, bit) = self.position(place);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }
}

/// FNV-1a with a final mix, so that names with equal ends differ in the low bits.
fn hash(kind: UidKind, bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in kind.qualifier().iter().chain(bytes) {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_added_and_little_else() {
        for width in [1, 3, 8] {
            let mut layout = UidLayout::default();
            layout.kinds.tagv.width = UidWidth::new(width).unwrap();
            let mut suspects = Suspects::new(&layout);
            assert!(suspects.is_empty());
            let uid = |number: u64| number.to_be_bytes()[8 - width..].to_vec();
            let odd: Vec<u64> = (0..255).filter(|number| number % 2 == 1).collect();
            odd.iter()
                .for_each(|number| suspects.add_uid(UidKind::Tagv, &uid(*number)));
            suspects.add_name(UidKind::Tagv, b"name");
            assert!(
                odd.iter()
                    .all(|number| suspects.may_have_uid(UidKind::Tagv, &uid(*number)))
            );
            let even = (0..255).filter(|number| number % 2 == 0);
            let false_positives = even.filter(|number| suspects.may_have_uid(UidKind::Tagv, &uid(*number)));
            assert!(false_positives.count() <= usize::from(width > 3), "width {width}");
            assert!(!suspects.may_have_uid(UidKind::Tagk, &uid(1)));
            assert!(suspects.may_have_name(UidKind::Tagv, b"name"));
            assert!(!suspects.may_have_name(UidKind::Metric, b"name"));
            assert!(!suspects.is_empty());
        }
    }
}
