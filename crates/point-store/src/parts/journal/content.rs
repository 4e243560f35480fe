//! The content of a frame; drawn in [`super`].

use oxtsdb_storage_file::journal::Rejected;
use oxtsdb_storage_file::varint::{self, Reader};

use super::batch::{self, EncodedBatch};
use crate::{PointBatch, PointStoreError, SeriesNumber};

/// An entry of a frame, in the frame's order.
#[derive(Debug)]
pub enum Replayed<'a> {
    /// A series that later points use, with its key.
    Series(SeriesNumber, &'a [u8]),
    /// Points.
    Points(&'a PointBatch),
}

/// Appends the content of a frame.
pub(super) fn encode(
    buffer: &mut Vec<u8>,
    new_series: &[(SeriesNumber, impl AsRef<[u8]>)],
    batches: &[EncodedBatch],
) {
    varint::put(buffer, new_series.len() as u64);
    let mut previous = 0;
    for (number, key) in new_series {
        let (number, key) = (i64::from(number.0), key.as_ref());
        varint::put(buffer, varint::zigzag(number - previous));
        varint::put(buffer, key.len() as u64);
        buffer.extend_from_slice(key);
        previous = number;
    }
    varint::put(buffer, batches.len() as u64);
    for batch in batches {
        varint::put(buffer, batch.points as u64);
        varint::put(buffer, batch.bytes.len() as u64);
        buffer.extend_from_slice(&batch.bytes);
    }
}

/// Passes the content of a frame to `apply` and returns its number of points. `scratch` is the memory of a batch.
pub(super) fn replay(
    content: &[u8],
    scratch: &mut PointBatch,
    apply: &mut dyn FnMut(Replayed<'_>) -> Result<(), PointStoreError>,
) -> Result<u64, Rejected<PointStoreError>> {
    const CUT: Rejected<PointStoreError> = Rejected::Content("a frame's content ends too early");
    let mut reader = Reader(content);
    let mut previous = 0_i64;
    for _ in 0..reader.number().ok_or(CUT)? {
        let difference = reader.signed().ok_or(CUT)?;
        let key = reader
            .length()
            .and_then(|length| reader.bytes(length))
            .ok_or(CUT)?;
        previous = previous.wrapping_add(difference);
        let number =
            u32::try_from(previous).map_err(|_| Rejected::Content("a series' number is too large"))?;
        apply(Replayed::Series(SeriesNumber(number), key)).map_err(Rejected::Store)?;
    }
    let mut points = 0;
    for _ in 0..reader.number().ok_or(CUT)? {
        let count = reader.length().ok_or(CUT)?;
        let bytes = reader
            .length()
            .and_then(|length| reader.bytes(length))
            .ok_or(CUT)?;
        scratch.clear();
        batch::decode(count, bytes, scratch).ok_or(Rejected::Content("a batch of points is invalid"))?;
        apply(Replayed::Points(scratch)).map_err(Rejected::Store)?;
        points += count as u64;
    }
    if !reader.0.is_empty() {
        return Err(Rejected::Content("bytes follow a frame's content"));
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use oxtsdb_storage_file::disk::simulated::SimulatedDisk;
    use proptest::prelude::*;

    use super::super::Journal;
    use super::*;
    use crate::{Point, PointKind};

    fn batch(value: u64) -> PointBatch {
        let mut batch = PointBatch::default();
        let point = Point {
            time_ms: 2_000,
            kind: PointKind::from_byte(0).unwrap(),
            bits: value,
        };
        batch.push(SeriesNumber(1), point);
        batch
    }

    /// Bytes of version 1, which every later version reads.
    #[test]
    fn content_has_the_documented_bytes() {
        let mut bytes = Vec::new();
        let series = [(SeriesNumber(1), b"ab"), (SeriesNumber(2), b"cd")];
        encode(&mut bytes, &series, &[EncodedBatch::from_batch(&batch(5))]);
        assert_eq!(bytes, b"\x02\x02\x02ab\x02\x02cd\x01\x01\x03\x70\x04\x0a");
    }

    #[test]
    fn frames_have_several_batches_or_none() {
        let disk = SimulatedDisk::new();
        let open = |seen: &mut Vec<String>| {
            let apply = &mut |replayed: Replayed<'_>| {
                seen.push(format!("{replayed:?}"));
                Ok(())
            };
            let folder = std::path::Path::new("/store/journal");
            Journal::open(
                std::sync::Arc::new(disk.clone()),
                folder,
                super::super::OPTIONS,
                apply,
            )
            .unwrap()
        };
        let (mut journal, _) = open(&mut Vec::new());
        let batches = [
            EncodedBatch::from_batch(&batch(0)),
            EncodedBatch::from_batch(&batch(1)),
        ];
        let no_series: [(SeriesNumber, &[u8]); 0] = [];
        journal.append(&no_series, &batches).unwrap();
        journal
            .append(&[(SeriesNumber(9), b"x".as_slice()), (SeriesNumber(3), b"")], &[])
            .unwrap();
        journal.sync().unwrap();
        let mut seen = Vec::new();
        let (_, recovered) = open(&mut seen);
        let expected = [
            format!("{:?}", Replayed::Points(&batch(0))),
            format!("{:?}", Replayed::Points(&batch(1))),
            "Series(SeriesNumber(9), [120])".to_owned(),
            "Series(SeriesNumber(3), [])".to_owned(),
        ];
        assert_eq!(seen, expected);
        assert_eq!((recovered.frames, recovered.points), (2, 2));
    }

    proptest! {
        #[test]
        fn arbitrary_content_does_not_panic(content: Vec<u8>) {
            let _ = replay(&content, &mut PointBatch::default(), &mut |_| Ok(()));
        }
    }
}
