//! The table files of a closed tree.
//!
//! The file `current` of a tree contains the number of its version list, `v` and that number, and the list's
//! checksum. The list is an archive; its section `tables` has the ids of all table files:
//!
//! ```text
//!   tables   number of levels (1) | level ...
//!   level    number of runs (1) | run ...
//!   run      number of files (4) | file ..., in key order
//!   file     id (8) | checksum type (1) | checksum (16) | sequence number (8)
//! ```
//!
//! Only the list determines which files belong to the tree. An unlisted file is left over from a failed flush
//! or compaction, and the engine removes it regardless of its content. A listed file was synced before it was
//! listed: if it is truncated, zeroed or missing, it is damaged.

use std::fs;
use std::io::{self, Cursor, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::checksum::ChecksummedWriter;

use super::folder::{io_error, missing};
use super::salvage;
pub(super) use super::table_file::TableFile;
use super::varint::Reader;
use crate::StoreError;

/// The keyspace of the engine's own settings.
const SETTINGS: &str = "0";

/// Checks that opening the trees cannot lose or destroy data.
pub(super) fn check_trees(path: &Path) -> Result<(), StoreError> {
    for tree in trees(path)? {
        let has_tables = fs::read_dir(tree.join("tables")).is_ok_and(|mut tables| tables.next().is_some());
        let current = tree.join("current");
        // The engine treats a tree without this file as new.
        if has_tables && !current.exists() {
            return Err(missing(&current));
        }
        read_list(&tree)?;
    }
    Ok(())
}

fn trees(path: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let Ok(trees) = fs::read_dir(path.join("keyspaces")) else {
        return Ok(Vec::new());
    };
    trees
        .map(|tree| Ok(tree.map_err(|error| io_error(path, &error))?.path()))
        .collect()
}

fn corrupt(path: &Path, detail: impl Into<String>) -> StoreError {
    StoreError::Corrupt {
        place: path.display().to_string(),
        detail: detail.into(),
    }
}

/// The ids of a tree's current table files, by run; none if the tree has no list yet. Verifies the checksum of
/// the list, which the engine does not.
fn read_list(tree: &Path) -> Result<Vec<Vec<u64>>, StoreError> {
    let current = tree.join("current");
    let bytes = match fs::read(&current) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(&current, &error)),
    };
    let checksum = bytes.get(8..24).and_then(|bytes| bytes.try_into().ok());
    let (Some(number), Some(expected)) = (bytes.first_chunk().copied(), checksum) else {
        return Err(corrupt(&current, "the file is cut off"));
    };
    #[expect(clippy::little_endian_bytes, reason = "the engine's format")]
    let (number, expected) = (u64::from_le_bytes(number), u128::from_le_bytes(expected));
    let list = tree.join(format!("v{number}"));
    let content = match fs::read(&list) {
        Ok(content) => content,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing(&list)),
        Err(error) => return Err(io_error(&list, &error)),
    };
    let mut writer = ChecksummedWriter::new(io::sink());
    writer
        .write_all(&content)
        .map_err(|error| io_error(&list, &error))?;
    if writer.checksum().into_u128() != expected {
        return Err(corrupt(&list, "the checksum does not match"));
    }
    let archive = sfa::Reader::from_reader(&mut Cursor::new(&content))
        .map_err(|error| corrupt(&list, error.to_string()))?;
    archive
        .toc()
        .section(b"tables")
        .and_then(|section| {
            let start = usize::try_from(section.pos()).ok()?;
            let length = usize::try_from(section.len()).ok()?;
            decode_runs(content.get(start..start.checked_add(length)?)?)
        })
        .ok_or_else(|| corrupt(&list, "the section of table files cannot be decoded"))
}

#[expect(clippy::little_endian_bytes, reason = "the engine's format")]
fn decode_runs(bytes: &[u8]) -> Option<Vec<Vec<u64>>> {
    const CHECKSUM_AND_SEQUENCE: usize = 25;
    let mut reader = Reader(bytes);
    let mut runs = Vec::new();
    for _level in 0..reader.byte()? {
        for _run in 0..reader.byte()? {
            let mut ids = Vec::new();
            for _file in 0..u32::from_le_bytes(reader.array()?) {
                ids.push(u64::from_le_bytes(reader.array()?));
                reader.array::<CHECKSUM_AND_SEQUENCE>()?;
            }
            runs.push(ids);
        }
    }
    Some(runs)
}

/// All listed table files of a closed tree, existing or not; those of the engine's settings are returned
/// separately.
pub(super) fn closed_files(path: &Path) -> Result<(Vec<TableFile>, Vec<TableFile>), StoreError> {
    let (mut rows, mut settings) = (Vec::new(), Vec::new());
    for tree in trees(path)? {
        let files = if tree.ends_with(SETTINGS) {
            &mut settings
        } else {
            &mut rows
        };
        for ids in read_list(&tree)? {
            let paths = ids.iter().map(|id| tree.join("tables").join(id.to_string()));
            let run: Arc<[PathBuf]> = paths.collect();
            files.extend(ids.iter().zip(run.iter()).map(|(id, path)| TableFile {
                id: *id,
                path: path.clone(),
                keys: None,
                run: run.clone(),
            }));
        }
    }
    Ok((rows, settings))
}

/// The table files of rows whose ends are damaged, in a closed tree.
///
/// # Errors
///
/// [`StoreError::Corrupt`] if a file of the engine's settings is damaged.
pub(super) fn damaged_ends(path: &Path) -> Result<Vec<TableFile>, StoreError> {
    let (mut rows, settings) = closed_files(path)?;
    for file in settings {
        salvage::check_end(&file.path).map_err(|detail| corrupt(&file.path, detail))?;
    }
    rows.retain(|file| salvage::check_end(&file.path).is_err());
    Ok(rows)
}
