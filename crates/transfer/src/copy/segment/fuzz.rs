//! Fuzz targets: the records of a segment, and its file.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use oxtsdb_fuzz::{Outcome, run, run_with};
use oxtsdb_row_store::Row;

use super::{MAGIC, SegmentError, SegmentWriter, decode, records};

/// Windows and buffers of gzip.
const GZIP_STATE: usize = 160 << 10;

fn families() -> Arc<[String]> {
    Arc::from(["t".to_owned(), "u".to_owned()])
}

fn outcome(decoded: Result<Vec<Row>, SegmentError>) -> Outcome {
    let rows = decoded.map_err(|error| error.to_string())?;
    Ok(rows.iter().map(Row::len).sum())
}

/// Sets the checksums of records, which random changes never match.
fn with_checksums(bytes: &mut [u8]) {
    let mut rest = bytes.get_mut(MAGIC.len()..).unwrap_or_default();
    while let Some((head, behind)) = rest.split_first_chunk_mut::<8>() {
        let (length, checksum) = head.split_at_mut(4);
        let length = u32::from_be_bytes(length.try_into().unwrap());
        let length = usize::try_from(length).unwrap().min(behind.len());
        let (body, behind) = behind.split_at_mut(length);
        checksum.copy_from_slice(&crc32fast::hash(body).to_be_bytes());
        rest = behind;
    }
}

#[test]
fn export_segments() {
    let families = families();
    run("export-segments", |input| {
        let mut bytes = input.to_vec();
        with_checksums(&mut bytes);
        let rows = records(&bytes, &families);
        if let Ok(rows) = &rows {
            // Decoded rows encode to the same bytes.
            let mut writer = SegmentWriter::new();
            for row in rows {
                writer.push(row, &families).unwrap();
            }
            if bytes.len() >= MAGIC.len() {
                assert_eq!(writer.bytes[MAGIC.len()..], bytes[MAGIC.len()..]);
            }
        }
        outcome(rows)
    });
}

/// A file with four times as many bytes when it is decompressed, as its manifest says.
#[test]
fn export_files() {
    let families = families();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(MAGIC).unwrap();
    let empty = encoder.finish().unwrap();
    assert_eq!(outcome(decode(&empty, MAGIC.len(), &families)), Ok(0));
    run_with(
        "export-files",
        |_| GZIP_STATE,
        |input| outcome(decode(input, 4 * input.len(), &families)),
    );
}
