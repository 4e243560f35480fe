//! File `SNAPSHOT`: the files of a snapshot. A snapshot without it is not complete.
//!
//! ```text
//!   oxtsdb snapshot, format 1
//!   9d1e2c04 1234 data/STORE                                   CRC32 in hex, bytes, path
//!   -        5678 data/points/2026-11-22/0000000017-….part     parts have checksums of their own
//!   crc 01234567                                               of all bytes before
//! ```
//!
//! Text, one line a file, in order of the paths.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path};

use oxtsdb_storage_file::disk::real::RealDisk;
use oxtsdb_storage_file::folder::replace;

/// The name of the file.
pub(super) const NAME: &str = "SNAPSHOT";

const LABEL: &str = "oxtsdb snapshot, format ";
const FORMAT: &str = "1";

/// A longer file is not read.
const MAX_BYTES: u64 = 1 << 30;

/// A file of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its path within the snapshot.
    pub(super) path: String,
    /// Its length.
    pub(super) bytes: u64,
    /// Its CRC32; `None` if it has checksums of its own.
    pub(super) crc: Option<u32>,
}

/// Why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is missing.
    #[error("the file is missing: the folder is not a snapshot, or one that was not completed")]
    Missing,
    /// It has another format.
    #[error("the snapshot has format `{format}`, this version reads format {FORMAT}")]
    Format {
        /// Its format.
        format: String,
    },
    /// It is damaged.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// The operating system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes the manifest of all files in a folder, durably. Returns their number and bytes.
pub(super) fn write(folder: &Path) -> io::Result<(u64, u64)> {
    let mut entries = Vec::new();
    list(folder, "", &mut entries)?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let text = text_of(&entries);
    replace(&RealDisk, &folder.join(NAME), text.as_bytes())?;
    Ok((
        entries.len() as u64,
        entries.iter().map(|entry| entry.bytes).sum(),
    ))
}

/// Adds the files of a folder, which has this path within the snapshot.
fn list(folder: &Path, path: &str, entries: &mut Vec<Entry>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().map_err(|name| {
            let detail = format!("{}: the name is not UTF-8", name.display());
            io::Error::new(io::ErrorKind::InvalidData, detail)
        })?;
        let path = if path.is_empty() {
            name
        } else {
            format!("{path}/{name}")
        };
        if entry.file_type()?.is_dir() {
            list(&entry.path(), &path, entries)?;
            continue;
        }
        entries.push(Entry {
            bytes: entry.metadata()?.len(),
            crc: match has_own_checksums(&path) {
                true => None,
                false => Some(crc_of(&entry.path())?),
            },
            path,
        });
    }
    Ok(())
}

/// Whether a file is a part of points, which are most of a snapshot.
fn has_own_checksums(path: &str) -> bool {
    path.starts_with("data/points/") && path.ends_with(".part")
}

/// The CRC32 of a file.
pub(super) fn crc_of(path: &Path) -> io::Result<u32> {
    let mut file = fs::File::open(path)?;
    let (mut crc, mut buffer) = (crc32fast::Hasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(crc.finalize()),
            read => crc.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}

fn text_of(entries: &[Entry]) -> String {
    let mut text = format!("{LABEL}{FORMAT}\n");
    for Entry { path, bytes, crc } in entries {
        let crc = crc.map_or_else(|| "-".to_owned(), |crc| format!("{crc:08x}"));
        text += &format!("{crc} {bytes} {path}\n");
    }
    let crc = crc32fast::hash(text.as_bytes());
    text + &format!("crc {crc:08x}\n")
}

/// Reads the manifest of a snapshot.
pub(super) fn read(folder: &Path) -> Result<Vec<Entry>, ManifestError> {
    let path = folder.join(NAME);
    let length = match fs::metadata(&path) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Err(ManifestError::Missing);
        }
        metadata => metadata?.len(),
    };
    if length > MAX_BYTES {
        return Err(ManifestError::Damaged(format!("it has {length} bytes")));
    }
    let text = String::from_utf8(fs::read(&path)?);
    let text = text.map_err(|_| ManifestError::Damaged("it is not text".to_owned()))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Entry>, ManifestError> {
    let damaged = |detail: &str| ManifestError::Damaged(detail.to_owned());
    let label = text.lines().next().unwrap_or_default();
    let Some(format) = label.strip_prefix(LABEL) else {
        return Err(damaged("it does not begin as one of a snapshot"));
    };
    if format != FORMAT {
        let format = format.chars().take(20).collect();
        return Err(ManifestError::Format { format });
    }
    let end = text
        .trim_end_matches('\n')
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let (content, last) = text.split_at(end);
    if last != format!("crc {:08x}\n", crc32fast::hash(content.as_bytes())) {
        return Err(damaged("its checksum differs, or it is cut"));
    }
    let lines = content.lines().skip(1);
    let entries = lines.map(|line| entry_of(line).ok_or_else(|| damaged(&format!("`{line}` is not a file"))));
    entries.collect()
}

fn entry_of(line: &str) -> Option<Entry> {
    let (crc, rest) = line.split_once(' ')?;
    let (bytes, path) = rest.split_once(' ')?;
    // It is joined to the folder of the snapshot and of the copy.
    let is_below = Path::new(path)
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    Some(Entry {
        path: (is_below && !path.is_empty()).then(|| path.to_owned())?,
        bytes: bytes.parse().ok()?,
        crc: match crc {
            "-" => has_own_checksums(path).then_some(None)?,
            crc => Some(u32::from_str_radix(crc, 16).ok()?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let entry = |path: &str, bytes, crc| Entry {
            path: path.to_owned(),
            bytes,
            crc,
        };
        vec![
            entry("data/STORE", 7, Some(0x00ab_cdef)),
            entry("data/points/2026-11-22/0000000001-0000000002.part", 1 << 40, None),
        ]
    }

    #[test]
    fn text_round_trips() {
        assert_eq!(parse(&text_of(&entries())).unwrap(), entries());
        assert_eq!(parse(&text_of(&[])).unwrap(), []);
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let text = text_of(&entries());
        for place in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[place] ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                parse(&changed).unwrap_err();
            }
            parse(&text[..place]).unwrap_err();
        }
    }

    #[test]
    fn paths_stay_in_the_folder() {
        for path in ["../x", "/etc/passwd", "a/../../b", ""] {
            let entry = Entry {
                path: path.to_owned(),
                bytes: 1,
                crc: Some(1),
            };
            let error = parse(&text_of(&[entry])).unwrap_err();
            assert!(matches!(error, ManifestError::Damaged(_)), "{path}: {error}");
        }
    }

    #[test]
    fn other_formats_are_named() {
        let error = parse("oxtsdb snapshot, format 2\n").unwrap_err();
        assert!(matches!(error, ManifestError::Format { format } if format == "2"));
    }
}
