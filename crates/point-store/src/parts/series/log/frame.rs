//! A frame of keys; see [`super`] for its format.

use std::io;

use crate::SeriesNumber;

/// Length of keys, first number, series, checksum.
pub(super) const HEAD_BYTES: usize = 16;
/// Shared bytes at the front and at the back, length of own bytes.
const KEY_HEAD_BYTES: usize = 4;

/// The head of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHead {
    /// Bytes of the keys.
    pub(super) len: u32,
    /// The number of the first series.
    pub(super) first: u32,
    /// The number of series.
    pub(super) series: u32,
    crc: u32,
}

impl FrameHead {
    pub(super) fn decode(bytes: &[u8; HEAD_BYTES]) -> Self {
        let [len, first, series, crc] = std::array::from_fn(|index| {
            let at = index * 4;
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        });
        Self {
            len,
            first,
            series,
            crc,
        }
    }

    /// Whether these are the keys of the frame, and the head is as it was written.
    pub(super) fn matches(&self, keys: &[u8]) -> bool {
        self.crc == self.checksum(keys)
    }

    fn checksum(&self, keys: &[u8]) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        for field in [self.len, self.first, self.series] {
            crc.update(&field.to_be_bytes());
        }
        crc.update(keys);
        crc.finalize()
    }
}

/// A frame under construction. Buffers are kept from frame to frame.
#[derive(Debug, Default)]
pub(super) struct FrameWriter {
    bytes: Vec<u8>,
    first: u32,
    series: u32,
    previous: Vec<u8>,
    key: Vec<u8>,
}

impl FrameWriter {
    /// Begins a frame with the series of a number.
    pub(super) fn clear(&mut self, first: u32) {
        self.bytes.clear();
        self.bytes.resize(HEAD_BYTES, 0);
        self.previous.clear();
        (self.first, self.series) = (first, 0);
    }

    /// Bytes so far.
    pub(super) const fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the key that `read` puts into a buffer; an error if it returns `false`.
    pub(super) fn push(&mut self, read: impl FnOnce(&mut Vec<u8>) -> bool) -> io::Result<()> {
        if !read(&mut self.key) {
            let series = self.first + self.series;
            return Err(io::Error::other(format!("series {series} has no key")));
        }
        let front = common(self.previous.iter().zip(&self.key));
        // The two do not overlap, in either key.
        let (previous, key) = (
            &self.previous[usize::from(front)..],
            &self.key[usize::from(front)..],
        );
        let back = common(previous.iter().rev().zip(key.iter().rev()));
        let own = &key[..key.len() - usize::from(back)];
        let len = u16::try_from(own.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.bytes.extend([front, back]);
        self.bytes.extend(len.to_be_bytes());
        self.bytes.extend(own);
        self.series += 1;
        std::mem::swap(&mut self.previous, &mut self.key);
        Ok(())
    }

    /// The frame.
    pub(super) fn finish(&mut self) -> io::Result<&[u8]> {
        let keys = &self.bytes[HEAD_BYTES..];
        let mut head = FrameHead {
            len: u32::try_from(keys.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            first: self.first,
            series: self.series,
            crc: 0,
        };
        head.crc = head.checksum(keys);
        let fields = [head.len, head.first, head.series, head.crc];
        self.bytes[..HEAD_BYTES].copy_from_slice(fields.map(u32::to_be_bytes).as_flattened());
        Ok(&self.bytes)
    }
}

/// How many pairs are equal until the first that is not, at most 255.
fn common<'a>(pairs: impl Iterator<Item = (&'a u8, &'a u8)>) -> u8 {
    let equal = pairs.take(255).take_while(|(left, right)| left == right).count();
    u8::try_from(equal).unwrap_or(u8::MAX)
}

/// Calls `take` for each key of a frame.
///
/// # Errors
///
/// Error of invalid keys, or of `take`.
pub(super) fn decode_keys(
    head: &FrameHead,
    mut keys: &[u8],
    take: &mut super::TakeSeries<'_>,
) -> Result<(), String> {
    let (mut previous, mut key) = (Vec::new(), Vec::new());
    for index in 0..head.series {
        let Some(([front, back, l0, l1], rest)) = keys.split_first_chunk::<KEY_HEAD_BYTES>() else {
            return Err(format!("keys end before number {index} of {}", head.series));
        };
        let (front, back) = (usize::from(*front), usize::from(*back));
        let own = rest.split_at_checked(usize::from(u16::from_be_bytes([*l0, *l1])));
        let (Some((own, rest)), true) = (own, front + back <= previous.len()) else {
            return Err(format!("key {index} of {} is longer than its bytes", head.series));
        };
        key.clear();
        key.extend_from_slice(&previous[..front]);
        key.extend_from_slice(own);
        key.extend_from_slice(&previous[previous.len() - back..]);
        let series = head.first.checked_add(index).ok_or("numbers end")?;
        take(SeriesNumber(series), &key)?;
        std::mem::swap(&mut previous, &mut key);
        keys = rest;
    }
    if !keys.is_empty() {
        return Err(format!("{} bytes follow the last key", keys.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn decode(frame: &[u8]) -> Option<Vec<(u32, Vec<u8>)>> {
        let (head, keys) = frame.split_first_chunk()?;
        let head = FrameHead::decode(head);
        let mut decoded = Vec::new();
        let taken = decode_keys(&head, keys, &mut |series, key| {
            decoded.push((series.0, key.to_vec()));
            Ok(())
        });
        taken.ok().filter(|()| head.matches(keys)).map(|()| decoded)
    }

    proptest! {
        #[test]
        fn keys_round_trip(keys in vec(vec(0_u8..3, 0..400), 0..50), first in 0_u32..1_000_000) {
            let mut frame = FrameWriter::default();
            frame.clear(first);
            for key in &keys {
                frame.push(|buffer| {
                    buffer.clone_from(key);
                    true
                }).unwrap();
            }
            let expected: Vec<(u32, Vec<u8>)> = (first..).zip(keys).collect();
            prop_assert_eq!(decode(frame.finish().unwrap()), Some(expected));
        }

        #[test]
        fn any_bytes_are_decoded_or_rejected(bytes in vec(any::<u8>(), 0..200), series in 0_u32..20) {
            let head = FrameHead { len: 0, first: u32::MAX - 10, series, crc: 0 };
            let _ = decode_keys(&head, &bytes, &mut |_, _| Ok(()));
        }
    }

    #[test]
    fn series_of_a_host_take_few_bytes() {
        let mut frame = FrameWriter::default();
        frame.clear(0);
        for metric in 0..100 {
            frame
                .push(|buffer| {
                    *buffer = [&[0, 0, metric][..], &[7; 18]].concat();
                    true
                })
                .unwrap();
        }
        assert_eq!(frame.byte_len(), HEAD_BYTES + 4 + 21 + 99 * 5);
    }
}
