//! Files of JSON lines; the first line names the format.
//!
//! ```text
//!   {"format":"oxtsdb-uid-plan","version":1}
//! ```

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

/// The version of all formats.
const VERSION: u32 = 1;

/// The first line of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
}

/// Bytes as hex, of upper case or lower case; both are read.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Hex<const UPPER: bool>(pub(crate) bytes::Bytes);

impl<const UPPER: bool> TryFrom<String> for Hex<UPPER> {
    type Error = hex::FromHexError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        hex::decode(text).map(|bytes| Self(bytes.into()))
    }
}

impl<const UPPER: bool> From<Hex<UPPER>> for String {
    fn from(bytes: Hex<UPPER>) -> Self {
        if UPPER {
            hex::encode_upper(bytes.0)
        } else {
            hex::encode(bytes.0)
        }
    }
}

/// Creates a file of a format, which must not exist.
///
/// # Errors
///
/// The file exists, or cannot be written.
pub(super) fn create(path: &Path, format: &str) -> anyhow::Result<BufWriter<File>> {
    let file = File::create_new(path).with_context(|| format!("create {}", path.display()))?;
    let mut file = BufWriter::new(file);
    let header = Header {
        format: format.to_owned(),
        version: VERSION,
    };
    write_line(&mut file, &header)?;
    Ok(file)
}

/// Writes a line of JSON.
///
/// # Errors
///
/// The file cannot be written.
pub(super) fn write_line(file: &mut BufWriter<File>, line: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *file, line).context("write a line")?;
    file.write_all(b"\n").context("write a line")
}

/// Opens a file for reading.
///
/// # Errors
///
/// The file cannot be opened.
pub(super) fn open(path: &Path) -> anyhow::Result<BufReader<File>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    Ok(BufReader::new(file))
}

/// Reads the format of a file.
///
/// # Errors
///
/// The file cannot be read, or is neither a plan nor a record.
pub(super) fn format_of(path: &Path) -> anyhow::Result<String> {
    let file = open(path)?;
    let first = file.lines().next().transpose()?.unwrap_or_default();
    let header: Header = serde_json::from_str(&first)
        .with_context(|| format!("{}: the first line is not that of a plan", path.display()))?;
    ensure!(
        header.version == VERSION,
        "{}: version {} is not known, only {VERSION}",
        path.display(),
        header.version
    );
    Ok(header.format)
}
