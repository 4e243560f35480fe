//! Reads a copy of the log.

use std::io::ErrorKind;
use std::path::Path;

use oxtsdb_schema::uid::UidWidths;

use super::frame::{FrameHead, HEAD_BYTES, decode_keys};
use super::{HEADER_BYTES, MAGIC, TakeSeries, VERSION, header, width_bytes};
use crate::PointStoreError;
use oxtsdb_storage_file::disk::{Disk, ReadFile};

/// The content of a copy.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// Bytes up to the end of the last valid frame; 0 without a valid header.
    pub(super) len: u64,
    /// Series up to there.
    pub(super) series: u32,
    /// The reason why the bytes behind are invalid, if there are any.
    pub(super) invalid: Option<String>,
}

/// Reads a copy, which is empty if there is no file. Frames with all series before number `from` are only checked.
///
/// # Errors
///
/// [`PointStoreError::Format`], [`PointStoreError::Invalid`] for other widths, [`PointStoreError::Io`].
pub(super) fn read(
    disk: &dyn Disk,
    path: &Path,
    widths: &UidWidths,
    from: u32,
    take: &mut TakeSeries<'_>,
) -> Result<Content, PointStoreError> {
    let failed = |error| PointStoreError::io(path.display(), &error);
    let mut content = Content::default();
    let file = match disk.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(content),
        file => file.map_err(failed)?,
    };
    let end = file.len().map_err(failed)?;
    let mut buffer = vec![0; HEADER_BYTES];
    match read_exact(&*file, &mut buffer, 0, end) {
        Ok(()) => check_header(path, &buffer, widths)?,
        Err(detail) => {
            content.invalid = Some(detail);
            return Ok(content);
        }
    }
    if buffer != header(widths) {
        content.invalid = Some("the header is damaged".to_owned());
        return Ok(content);
    }
    content.len = HEADER_BYTES as u64;
    while content.len < end && content.invalid.is_none() {
        content.invalid = read_frame(&*file, end, &mut buffer, from, take, &mut content).err();
    }
    Ok(content)
}

/// Rejects the valid header of another version or of other widths.
fn check_header(path: &Path, bytes: &[u8], widths: &UidWidths) -> Result<(), PointStoreError> {
    let Some((fields, crc)) = bytes.split_last_chunk::<4>() else {
        return Ok(());
    };
    let (Some(rest), true) = (
        fields.strip_prefix(MAGIC),
        crc32fast::hash(fields).to_be_bytes() == *crc,
    ) else {
        return Ok(());
    };
    match rest.split_first_chunk::<4>() {
        Some((version, _)) if *version != VERSION.to_be_bytes() => Err(PointStoreError::Format {
            path: path.to_owned(),
            format: u32::from_be_bytes(*version).to_string(),
            supported: VERSION,
        }),
        Some((_, [metric, tagk, tagv, 0])) if [*metric, *tagk, *tagv] != width_bytes(widths) => {
            let ours = width_bytes(widths);
            Err(PointStoreError::Invalid(format!(
                "{} has UIDs of {metric}, {tagk} and {tagv} bytes (metric, tagk, tagv), configured are {}, {} and {}",
                path.display(),
                ours[0],
                ours[1],
                ours[2]
            )))
        }
        _ => Ok(()),
    }
}

fn read_frame(
    file: &dyn ReadFile,
    end: u64,
    buffer: &mut Vec<u8>,
    from: u32,
    take: &mut TakeSeries<'_>,
    content: &mut Content,
) -> Result<(), String> {
    let mut head = [0; HEAD_BYTES];
    read_exact(file, &mut head, content.len, end)?;
    let head = FrameHead::decode(&head);
    let keys_at = content.len + HEAD_BYTES as u64;
    let next = keys_at + u64::from(head.len);
    if next > end {
        return Err(format!("a frame ends at byte {next}, the file at byte {end}"));
    }
    buffer.resize(head.len as usize, 0);
    read_exact(file, buffer, keys_at, end)?;
    if !head.matches(buffer) {
        return Err("the checksum of a frame does not match".to_owned());
    }
    let last = head.first.checked_add(head.series).filter(|_| head.series > 0);
    let (Some(last), true) = (last, head.first == content.series) else {
        let FrameHead { first, series, .. } = head;
        return Err(format!(
            "a frame has {series} series from number {first}, expected {}",
            content.series
        ));
    };
    if last > from {
        decode_keys(&head, buffer, take)?;
    }
    (content.len, content.series) = (next, last);
    Ok(())
}

fn read_exact(file: &dyn ReadFile, buffer: &mut [u8], offset: u64, end: u64) -> Result<(), String> {
    if end - offset < buffer.len() as u64 {
        return Err(format!("the file ends at byte {end}, within a header"));
    }
    file.read_at(buffer, offset).map_err(|error| error.to_string())
}
