//! The manifest of an export: `manifest.jsonl`, a JSON object a line.
//!
//! ```text
//!   {"export":{...}}      first: format, layout of row keys, tables with their families
//!   {"segment":{...}}     each segment, after its file is durable: table, range of keys, counts, checksum
//!   {"end":{...}}         last: the export is complete
//! ```
//!
//! Lines are only appended. A line that a crash has cut off is removed when the export is resumed, and its segment is
//! written again.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use oxtsdb_schema::{RowKeyLayout, UidKind};
use serde::{Deserialize, Serialize};

use super::rollups::RollupHeader;

/// The manifest's file.
pub(super) const FILE: &str = "manifest.jsonl";

/// The format and its version.
const FORMAT: &str = "oxtsdb-export";
const VERSION: u32 = 1;

/// The largest segment, uncompressed, that a reader takes: the target size and a row.
const MAX_SEGMENT: usize = 1 << 30;

/// The most families of a table.
const MAX_FAMILIES: usize = 16;

/// A line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Export(Header),
    Segment(Segment),
    End(End),
}

/// The content of an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    format: String,
    version: u32,
    /// A random number, in hex: which export it is.
    pub(super) id: String,
    /// The source, for people.
    pub(super) source: String,
    /// Bytes of the UIDs of metrics, tag keys and tag values.
    uid_widths: [usize; 3],
    salt_width: usize,
    salt_buckets: u32,
    /// Absent: rollups were not exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rollups: Option<RollupHeader>,
    /// In the order of their segments.
    pub(super) tables: Vec<TableHeader>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableHeader {
    /// `uid`, `uid-state`, `meta`, `tree`, `data`, `rollup-state`, or of an interval `rollup-1h` and `rollup-1h-pre`.
    pub(super) role: String,
    /// Its name at the source.
    pub(super) name: String,
    /// Its families; a cell has an index.
    pub(super) families: Vec<String>,
}

/// A segment that is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Segment {
    /// The role of the table.
    pub(super) table: String,
    /// The file, in the folder of the manifest.
    pub(super) file: String,
    /// The first and the last row key, in hex.
    #[serde(with = "hex_text")]
    pub(super) first: Vec<u8>,
    #[serde(with = "hex_text")]
    pub(super) last: Vec<u8>,
    pub(super) rows: u64,
    pub(super) cells: u64,
    /// Bytes uncompressed.
    pub(super) bytes: usize,
    /// Bytes of the file, and their CRC-32.
    pub(super) file_bytes: u64,
    pub(super) crc32: u32,
}

/// The sums of a complete export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) rows: u64,
    pub(super) cells: u64,
}

/// Bytes as hex.
mod hex_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(&text).map_err(|error| D::Error::custom(format!("`{text}`: {error}")))
    }
}

impl Header {
    /// A new export.
    pub(super) fn new(
        source: String,
        layout: &RowKeyLayout,
        rollups: Option<RollupHeader>,
        tables: Vec<TableHeader>,
    ) -> anyhow::Result<Self> {
        let mut id = [0; 8];
        File::open("/dev/urandom")
            .and_then(|mut random| std::io::Read::read_exact(&mut random, &mut id))
            .context("read random bytes")?;
        Ok(Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            id: hex::encode(id),
            source,
            uid_widths: widths(layout),
            salt_width: layout.salt.width(),
            salt_buckets: layout.salt.bucket_count(),
            rollups,
            tables,
        })
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.format == FORMAT && self.version == VERSION,
            "format `{}` version {}, expected `{FORMAT}` version {VERSION}",
            self.format,
            self.version
        );
        for table in &self.tables {
            let count = table.families.len();
            ensure!(
                (1..=MAX_FAMILIES).contains(&count),
                "table `{}` has {count} families, expected 1 to {MAX_FAMILIES}",
                table.role
            );
        }
        Ok(())
    }

    /// Checks that row keys have the layout of a store.
    ///
    /// # Errors
    ///
    /// The setting that differs.
    pub(super) fn check_layout(&self, layout: &RowKeyLayout) -> anyhow::Result<()> {
        let expected = widths(layout);
        ensure!(
            self.uid_widths == expected,
            "the export has UIDs of {:?} bytes (metric, tagk, tagv), the store of {expected:?}: set --uid-width-metric, \
             --uid-width-tagk and --uid-width-tagv",
            self.uid_widths
        );
        let (width, buckets) = (layout.salt.width(), layout.salt.bucket_count());
        let is_same = self.salt_width == width && (width == 0 || self.salt_buckets == buckets);
        ensure!(
            is_same,
            "the export has {} bytes of salt and {} buckets, the store {width} and {buckets}: set --salt-width and \
             --salt-buckets",
            self.salt_width,
            self.salt_buckets
        );
        Ok(())
    }

    /// Checks that a store has the rollups of the export.
    ///
    /// # Errors
    ///
    /// The aggregator or interval that differs.
    pub(super) fn check_rollups(&self, store: Option<&RollupHeader>) -> anyhow::Result<()> {
        self.rollups
            .as_ref()
            .map_or(Ok(()), |rollups| rollups.check(store))
    }
}

fn widths(layout: &RowKeyLayout) -> [usize; 3] {
    [UidKind::Metric, UidKind::Tagk, UidKind::Tagv].map(|kind| layout.widths.get(kind).bytes())
}

/// A manifest that was read.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// The folder.
    pub(super) folder: PathBuf,
    pub(super) header: Header,
    pub(super) segments: Vec<Segment>,
    pub(super) end: Option<End>,
    /// Bytes of its complete lines.
    complete_bytes: usize,
}

impl Manifest {
    /// Reads the manifest of a folder; `None` if it has none.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is damaged; the error names the file, the line and the reason.
    pub(super) fn read(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        Self::parse(folder, &text).with_context(|| path.display().to_string())
    }

    /// `None` if there is no complete line.
    fn parse(folder: &Path, text: &str) -> anyhow::Result<Option<Self>> {
        let mut manifest: Option<Self> = None;
        let mut complete_bytes = 0;
        for (number, line) in text.split_inclusive('\n').enumerate() {
            if !line.ends_with('\n') {
                break;
            }
            complete_bytes += line.len();
            let at = || format!("line {}", number + 1);
            let parsed = serde_json::from_str(line).with_context(at)?;
            match (&mut manifest, parsed) {
                (None, Line::Export(header)) => {
                    header.check().with_context(at)?;
                    manifest = Some(Self {
                        folder: folder.to_owned(),
                        header,
                        segments: Vec::new(),
                        end: None,
                        complete_bytes,
                    });
                }
                (Some(manifest), Line::Segment(segment)) if manifest.end.is_none() => {
                    manifest.check(&segment).with_context(at)?;
                    manifest.segments.push(segment);
                }
                (Some(manifest), Line::End(end)) if manifest.end.is_none() => {
                    let (rows, cells) = manifest.sums();
                    ensure!(
                        (rows, cells) == (end.rows, end.cells),
                        "line {}: {} rows and {} cells, the segments have {rows} and {cells}",
                        number + 1,
                        end.rows,
                        end.cells
                    );
                    manifest.end = Some(end);
                }
                (None, _) => bail!("line {}: does not begin with `export`", number + 1),
                (Some(_), _) => bail!("line {}: out of order", number + 1),
            }
        }
        if let Some(manifest) = &mut manifest {
            manifest.complete_bytes = complete_bytes;
        }
        Ok(manifest)
    }

    fn check(&self, segment: &Segment) -> anyhow::Result<()> {
        let position = |role: &str| self.header.tables.iter().position(|table| table.role == role);
        let table = position(&segment.table).with_context(|| format!("no table `{}`", segment.table))?;
        let is_name = segment
            .file
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
        ensure!(
            is_name && !segment.file.starts_with('.') && !segment.file.is_empty(),
            "`{}` is not the name of a segment",
            segment.file
        );
        ensure!(
            segment.bytes <= MAX_SEGMENT,
            "a segment of {} bytes, at most {MAX_SEGMENT} are allowed",
            segment.bytes
        );
        ensure!(segment.first <= segment.last, "the last key is before the first");
        if let Some(before) = self.segments.last() {
            let before_table = position(&before.table).unwrap_or_default();
            let ascends = before_table < table || before_table == table && before.last < segment.first;
            ensure!(
                ascends,
                "segment {} does not ascend from the one before",
                segment.file
            );
        }
        Ok(())
    }

    /// Rows and cells of all segments.
    pub(super) fn sums(&self) -> (u64, u64) {
        let sum = |of: fn(&Segment) -> u64| self.segments.iter().map(of).fold(0, u64::saturating_add);
        (sum(|segment| segment.rows), sum(|segment| segment.cells))
    }

    /// The manifest of a complete export.
    ///
    /// # Errors
    ///
    /// If the folder has none, or the export was not completed.
    pub(super) fn complete(folder: &Path) -> anyhow::Result<Self> {
        let manifest = Self::read(folder)?
            .with_context(|| format!("{}: not an export, it has no {FILE}", folder.display()))?;
        ensure!(
            manifest.end.is_some(),
            "{}: the export is not complete, run `tsdb export` again to resume it",
            folder.display()
        );
        Ok(manifest)
    }
}

/// Appends lines to a manifest; each is durable when the call returns.
#[derive(Debug)]
pub(super) struct ManifestWriter {
    file: File,
    folder: PathBuf,
}

impl ManifestWriter {
    /// Begins a manifest in a folder.
    pub(super) fn create(folder: &Path, header: &Header) -> anyhow::Result<Self> {
        let path = folder.join(FILE);
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        let mut writer = Self {
            file,
            folder: folder.to_owned(),
        };
        writer.append(&Line::Export(header.clone()))?;
        sync_folder(folder)?;
        Ok(writer)
    }

    /// Continues a manifest after its last complete line.
    pub(super) fn resume(manifest: &Manifest) -> anyhow::Result<Self> {
        let path = manifest.folder.join(FILE);
        let opened = OpenOptions::new().append(true).open(&path);
        let file = opened.with_context(|| path.display().to_string())?;
        file.set_len(u64::try_from(manifest.complete_bytes)?)?;
        Ok(Self {
            file,
            folder: manifest.folder.clone(),
        })
    }

    /// Writes a segment's file, then its line.
    pub(super) fn segment(&mut self, segment: &Segment, file: &[u8]) -> anyhow::Result<()> {
        let path = self.folder.join(&segment.file);
        let at = || path.display().to_string();
        let mut opened = File::create(&path).with_context(at)?;
        opened.write_all(file).with_context(at)?;
        opened.sync_all().with_context(at)?;
        sync_folder(&self.folder)?;
        self.append(&Line::Segment(segment.clone()))
    }

    /// The export is complete.
    pub(super) fn end(&mut self, end: End) -> anyhow::Result<()> {
        self.append(&Line::End(end))
    }

    fn append(&mut self, line: &Line) -> anyhow::Result<()> {
        let line = serde_json::to_string(line)? + "\n";
        let written = self.file.write_all(line.as_bytes());
        written
            .and_then(|()| self.file.sync_data())
            .with_context(|| self.folder.join(FILE).display().to_string())
    }
}

fn sync_folder(folder: &Path) -> anyhow::Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| folder.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let table = |role: &str| TableHeader {
            role: role.to_owned(),
            name: format!("tsdb-{role}"),
            families: vec!["t".to_owned()],
        };
        Header::new(
            "a test".to_owned(),
            &RowKeyLayout::default(),
            None,
            vec![table("uid"), table("data")],
        )
        .unwrap()
    }

    fn segment(table: &str, first: u8, last: u8) -> Segment {
        Segment {
            table: table.to_owned(),
            file: format!("{table}-{first}.gz"),
            first: vec![first],
            last: vec![last],
            rows: 2,
            cells: 3,
            bytes: 100,
            file_bytes: 4,
            crc32: 0,
        }
    }

    #[test]
    fn a_line_that_was_cut_off_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = ManifestWriter::create(folder.path(), &header()).unwrap();
        writer.segment(&segment("uid", 1, 2), b"abcd").unwrap();
        drop(writer);
        let path = folder.path().join(FILE);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"segment\":{\"tab").unwrap();
        let read = Manifest::read(folder.path()).unwrap().unwrap();
        assert_eq!(read.segments, [segment("uid", 1, 2)]);
        let mut writer = ManifestWriter::resume(&read).unwrap();
        writer.segment(&segment("data", 1, 1), b"abcd").unwrap();
        writer.end(End { rows: 4, cells: 6 }).unwrap();
        let read = Manifest::complete(folder.path()).unwrap();
        assert_eq!(read.segments.len(), 2);
    }

    #[test]
    fn rejects_manifests_that_are_wrong() {
        let header = serde_json::to_string(&Line::Export(header())).unwrap();
        let line = |segment| serde_json::to_string(&Line::Segment(segment)).unwrap();
        let error = |lines: &[&str]| {
            let text = lines.join("\n") + "\n";
            format!("{:#}", Manifest::parse(Path::new("x"), &text).unwrap_err())
        };
        let outside = Segment {
            file: "../x".to_owned(),
            ..segment("uid", 1, 2)
        };
        for (lines, expected) in [
            (vec!["{}"], "line 1"),
            (
                vec![r#"{"end":{"rows":0,"cells":0}}"#],
                "line 1: does not begin with `export`",
            ),
            (
                vec![&header, r#"{"end":{"rows":9,"cells":0}}"#],
                "line 2: 9 rows and 0 cells, the segments have 0 and 0",
            ),
            (
                vec![&header, &line(segment("other", 1, 2))],
                "line 2: no table `other`",
            ),
            (
                vec![&header, &line(segment("uid", 3, 2))],
                "the last key is before the first",
            ),
            (
                vec![&header, &line(outside)],
                "`../x` is not the name of a segment",
            ),
            (
                vec![&header, &line(segment("data", 1, 2)), &line(segment("uid", 3, 4))],
                "line 3: segment uid-3.gz does not ascend",
            ),
            (
                vec![&header.replace("oxtsdb-export", "another")],
                "format `another` version 1, expected `oxtsdb-export` version 1",
            ),
        ] {
            let error = error(&lines);
            assert!(error.contains(expected), "{error}\n{expected}");
        }
    }
}
