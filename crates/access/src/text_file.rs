//! Small text files that are read again when they change.

use std::io::Read as _;
use std::path::Path;
use std::time::SystemTime;

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    modified: Option<SystemTime>,
    bytes: u64,
    /// A file that is replaced by another one of the same size within a tick of the clock has another number.
    file: u64,
}

/// The version of a file; `None`: it cannot be read.
pub(crate) fn version(path: &Path) -> Option<Version> {
    use std::os::unix::fs::MetadataExt as _;

    let metadata = std::fs::metadata(path).ok()?;
    Some(Version {
        modified: metadata.modified().ok(),
        bytes: metadata.len(),
        file: metadata.ino(),
    })
}

/// The text of a file of at most `max_bytes`, with its version. Of a file that changes while it is read the version is
/// unknown, so that the next look at it reads it again.
pub(crate) fn read(path: &Path, max_bytes: usize) -> Result<(String, Option<Version>), String> {
    let before = version(path);
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(max_bytes as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    if text.len() > max_bytes {
        return Err(format!("is larger than {max_bytes} bytes"));
    }
    let bytes = text.len() as u64;
    Ok((text, before.filter(|version| version.bytes == bytes)))
}
