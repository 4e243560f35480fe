//! Segments: rows of one table in a file.
//!
//! ```text
//!   segment   gzip of: "OXTSDB-SEGMENT-1\n" | record | record | ...        rows, ascending by key
//!   record    length (4) | CRC-32 (4) | body                               both of the body
//!   body      key length (2) | key | cell | cell | ...                     to the end of the body
//!   cell      family (1) | timestamp (8) | qualifier length (4) | value length (4) | qualifier | value
//! ```
//!
//! Numbers are big endian. A family is an index of the table's families in the manifest, a timestamp milliseconds
//! since the epoch. `docs/export.md` has a reader in Python.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use oxtsdb_row_store::{Row, RowBuilder};

/// The first bytes of a segment, uncompressed.
pub(super) const MAGIC: &[u8] = b"OXTSDB-SEGMENT-1\n";

/// The first bytes of every gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Bytes of a cell before its qualifier.
const CELL_HEAD: usize = 1 + 8 + 4 + 4;

/// The longest row key, qualifier and value that a store takes.
const MAX_KEY: usize = 32_767;
const MAX_QUALIFIER: usize = (16 << 20) - 1;
const MAX_VALUE: usize = 16 << 20;

/// A segment that cannot be read. Offsets count uncompressed bytes.
#[derive(Debug, thiserror::Error)]
pub(super) enum SegmentError {
    /// Not a gzip file.
    #[error("offset 0: begins with {prefix}, expected gzip (1f8b): not a segment of an export")]
    Foreign {
        /// Its first bytes, as hex.
        prefix: String,
    },
    /// A gzip file of something else.
    #[error("offset 0: contains {prefix:?}, expected \"OXTSDB-SEGMENT-1\": not a segment of an export")]
    OtherContent {
        /// Its first bytes.
        prefix: String,
    },
    /// The compressed bytes are damaged or end early.
    #[error("offset {offset}: {error}")]
    Gzip {
        /// The bytes before.
        offset: usize,
        /// gzip's message.
        error: std::io::Error,
    },
    /// The segment has another length than its manifest says.
    #[error("offset {offset}: ends here, the manifest has {expected} bytes")]
    Length {
        /// Its length.
        offset: usize,
        /// The manifest's.
        expected: usize,
    },
    /// A record that is damaged.
    #[error("offset {offset}: {detail}")]
    Record {
        /// Where it begins.
        offset: usize,
        /// The reason.
        detail: String,
    },
}

/// Collects the rows of a segment.
#[derive(Debug)]
pub(super) struct SegmentWriter {
    bytes: Vec<u8>,
    /// The first and the last key.
    pub(super) keys: Option<(Vec<u8>, Vec<u8>)>,
    pub(super) rows: u64,
    pub(super) cells: u64,
}

impl SegmentWriter {
    pub(super) fn new() -> Self {
        Self {
            bytes: MAGIC.to_vec(),
            keys: None,
            rows: 0,
            cells: 0,
        }
    }

    /// Uncompressed bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a row of a table with these families.
    ///
    /// # Errors
    ///
    /// If a key or a cell is longer than the format allows, or of another family.
    pub(super) fn push(&mut self, row: &Row, families: &[String]) -> anyhow::Result<()> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 8]);
        put_u16(&mut self.bytes, row.key().len())?;
        self.bytes.extend_from_slice(row.key());
        for cell in row.cells() {
            let family = families.iter().position(|family| family == cell.family);
            let family = family.and_then(|index| u8::try_from(index).ok());
            let Some(family) = family else {
                anyhow::bail!(
                    "row {}: family `{}` is not one of the table's",
                    hex::encode(row.key()),
                    cell.family
                );
            };
            self.bytes.push(family);
            self.bytes.extend_from_slice(&cell.timestamp_ms.to_be_bytes());
            put_u32(&mut self.bytes, cell.qualifier.len())?;
            put_u32(&mut self.bytes, cell.value.len())?;
            self.bytes.extend_from_slice(cell.qualifier);
            self.bytes.extend_from_slice(cell.value);
            self.cells += 1;
        }
        let body = &self.bytes[start + 8..];
        let length = u32::try_from(body.len())?.to_be_bytes();
        let checksum = crc32fast::hash(body).to_be_bytes();
        self.bytes[start..start + 4].copy_from_slice(&length);
        self.bytes[start + 4..start + 8].copy_from_slice(&checksum);
        self.rows += 1;
        match &mut self.keys {
            Some((_, last)) => *last = row.key().to_vec(),
            None => self.keys = Some((row.key().to_vec(), row.key().to_vec())),
        }
        Ok(())
    }

    /// The file's bytes.
    ///
    /// # Errors
    ///
    /// Errors of gzip.
    pub(super) fn compress(&self) -> std::io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::with_capacity(self.bytes.len() / 4), Compression::fast());
        encoder.write_all(&self.bytes)?;
        encoder.finish()
    }
}

fn put_u16(bytes: &mut Vec<u8>, number: usize) -> anyhow::Result<()> {
    bytes.extend_from_slice(&u16::try_from(number)?.to_be_bytes());
    Ok(())
}

fn put_u32(bytes: &mut Vec<u8>, number: usize) -> anyhow::Result<()> {
    bytes.extend_from_slice(&u32::try_from(number)?.to_be_bytes());
    Ok(())
}

/// Decompresses and decodes a segment that has `expected` bytes uncompressed.
///
/// # Errors
///
/// At the first byte that is wrong. No more than `expected` bytes are decompressed.
pub(super) fn decode(
    file: &[u8],
    expected: usize,
    families: &Arc<[String]>,
) -> Result<Vec<Row>, SegmentError> {
    if !file.starts_with(&GZIP) {
        let prefix = hex::encode(&file[..file.len().min(8)]);
        return Err(SegmentError::Foreign { prefix });
    }
    let mut bytes = Vec::new();
    let limit = u64::try_from(expected).unwrap_or(u64::MAX).saturating_add(1);
    let read = GzDecoder::new(file).take(limit).read_to_end(&mut bytes);
    if !bytes.starts_with(MAGIC) && bytes.len() >= MAGIC.len() {
        let prefix = String::from_utf8_lossy(&bytes[..MAGIC.len()]).into_owned();
        return Err(SegmentError::OtherContent { prefix });
    }
    // The record that is damaged says more than gzip's checksum of all.
    let rows = records(&bytes, families);
    if let Err(error) = read {
        let offset = match &rows {
            Err(SegmentError::Record { offset, .. }) => *offset,
            _ => bytes.len(),
        };
        return Err(SegmentError::Gzip { offset, error });
    }
    if bytes.len() != expected {
        let offset = bytes.len();
        return Err(SegmentError::Length { offset, expected });
    }
    rows
}

fn records(bytes: &[u8], families: &Arc<[String]>) -> Result<Vec<Row>, SegmentError> {
    let mut rows: Vec<Row> = Vec::new();
    let mut offset = MAGIC.len();
    while offset < bytes.len() {
        let wrong = |detail: String| SegmentError::Record { offset, detail };
        let mut rest = &bytes[offset..];
        let head = take_u32(&mut rest).zip(take_u32(&mut rest));
        let (length, checksum) = head.ok_or_else(|| wrong("a record of less than 8 bytes".to_owned()))?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let body = take(&mut rest, length)
            .ok_or_else(|| wrong(format!("a record of {length} bytes, {} remain", rest.len())))?;
        let actual = crc32fast::hash(body);
        if actual != checksum {
            return Err(wrong(format!(
                "the record has the checksum {actual:08x}, expected {checksum:08x}"
            )));
        }
        let row = record(body, families).map_err(&wrong)?;
        if rows.last().is_some_and(|last| last.key() >= row.key()) {
            return Err(wrong(format!(
                "row {} does not ascend from the row before",
                hex::encode(row.key())
            )));
        }
        rows.push(row);
        offset += 8 + length;
    }
    Ok(rows)
}

/// The row of a record's body.
fn record(mut body: &[u8], families: &Arc<[String]>) -> Result<Row, String> {
    let length = take(&mut body, 2).ok_or("a body of less than 2 bytes")?;
    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
    if length == 0 || length > MAX_KEY {
        return Err(format!("a key of {length} bytes, expected 1 to {MAX_KEY}"));
    }
    let key = take(&mut body, length).ok_or("the key is cut off")?;
    let mut row = RowBuilder::new(key, Arc::clone(families));
    let name = || hex::encode(key);
    while !body.is_empty() {
        let head = take(&mut body, CELL_HEAD).ok_or_else(|| format!("row {}: a cell is cut off", name()))?;
        let (family, mut head) = (usize::from(head[0]), &head[1..]);
        let timestamp_ms = take(&mut head, 8).map_or(0, |bytes| {
            i64::from_be_bytes(bytes.try_into().unwrap_or_default())
        });
        let lengths = take_u32(&mut head).zip(take_u32(&mut head));
        let (qualifier, value) = lengths.unwrap_or_default();
        let [qualifier, value] =
            [qualifier, value].map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        if family >= families.len() {
            return Err(format!("row {}: family {family} of {}", name(), families.len()));
        }
        if qualifier > MAX_QUALIFIER || value > MAX_VALUE {
            return Err(format!(
                "row {}: a cell with a qualifier of {qualifier} bytes and a value of {value}, at most \
                 {MAX_QUALIFIER} and {MAX_VALUE} are allowed",
                name()
            ));
        }
        let qualifier = take(&mut body, qualifier);
        let cell = qualifier.and_then(|qualifier| Some((qualifier, take(&mut body, value)?)));
        let (qualifier, value) = cell.ok_or_else(|| format!("row {}: a cell is cut off", name()))?;
        row.push(family, qualifier, timestamp_ms, value);
    }
    row.finish().ok_or_else(|| format!("row {} has no cells", name()))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take(rest, 4).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap_or_default()))
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn families() -> Arc<[String]> {
        Arc::from(["id".to_owned(), "name".to_owned()])
    }

    fn row(key: &[u8], cells: &[(usize, Vec<u8>, i64, Vec<u8>)]) -> Row {
        let mut row = RowBuilder::new(key, families());
        for (family, qualifier, timestamp_ms, value) in cells {
            row.push(*family, qualifier, *timestamp_ms, value);
        }
        row.finish().unwrap()
    }

    fn segment(rows: &[Row]) -> (Vec<u8>, usize) {
        let mut segment = SegmentWriter::new();
        for row in rows {
            segment.push(row, &families()).unwrap();
        }
        (segment.compress().unwrap(), segment.len())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn sample() -> Vec<Row> {
        let cell = |n: u8| (usize::from(n % 2), vec![n], -i64::from(n), vec![n; 3]);
        vec![row(b"a", &[cell(0)]), row(b"b", &[cell(2), cell(3)])]
    }

    #[test]
    fn has_the_documented_bytes() {
        let mut segment = SegmentWriter::new();
        segment.push(&sample()[0], &families()).unwrap();
        let body = "0001610000000000000000000000000100000003".to_owned() + "00" + "000000";
        let body = hex::decode(body).unwrap();
        let mut expected = MAGIC.to_vec();
        expected.extend_from_slice(&[0, 0, 0, 24]);
        expected.extend_from_slice(&crc32fast::hash(&body).to_be_bytes());
        expected.extend_from_slice(&body);
        assert_eq!(segment.bytes, expected);
    }

    #[test]
    fn errors_have_the_offset_and_the_reason() {
        let (file, length) = segment(&sample());
        let error = |file: &[u8], length| decode(file, length, &families()).unwrap_err().to_string();
        assert!(error(b"PK34", 9).starts_with("offset 0: begins with 504b3334, expected gzip"));
        assert!(error(&gzip(&[b'x'; 40]), 40).contains("not a segment of an export"));
        assert_eq!(
            error(&file, length + 5),
            format!(
                "offset {length}: ends here, the manifest has {} bytes",
                length + 5
            )
        );
        let cut = error(&file[..file.len() - 12], length);
        assert!(cut.starts_with("offset 49: "), "{cut}");
        let mut plain = Vec::new();
        GzDecoder::new(&file[..]).read_to_end(&mut plain).unwrap();
        // A byte of the second row.
        let at = plain.len() - 1;
        plain[at] ^= 1;
        let damaged = error(&gzip(&plain), length);
        assert!(
            damaged.starts_with("offset 49: the record has the checksum"),
            "{damaged}"
        );
    }

    #[test]
    fn rejects_rows_that_do_not_ascend() {
        let mut rows = sample();
        rows.reverse();
        let (file, length) = segment(&rows);
        let error = decode(&file, length, &families()).unwrap_err().to_string();
        assert!(error.contains("row 61 does not ascend"), "{error}");
    }

    proptest! {
        #[test]
        fn decode_reverses_encode(
            rows in prop::collection::btree_map(
                prop::collection::vec(any::<u8>(), 1..20),
                prop::collection::btree_map(
                    (0_usize..2, prop::collection::vec(any::<u8>(), 0..5)),
                    (any::<i64>(), prop::collection::vec(any::<u8>(), 0..30)),
                    1..5,
                ),
                0..20,
            )
        ) {
            let rows: Vec<Row> = rows.into_iter().map(|(key, cells)| {
                let cells: Vec<_> = cells.into_iter().map(|((f, q), (t, v))| (f, q, t, v)).collect();
                row(&key, &cells)
            }).collect();
            let (file, length) = segment(&rows);
            prop_assert_eq!(decode(&file, length, &families()).unwrap(), rows);
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = records(&[MAGIC, &bytes].concat(), &families());
            let _ = record(&bytes, &families());
            let _ = decode(&bytes, 100, &families());
        }
    }
}
