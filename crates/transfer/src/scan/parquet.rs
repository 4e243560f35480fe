//! Points as a Parquet file.
//!
//! ```text
//!   column      type                       of a point
//!   metric      string                     the metric
//!   timestamp   timestamp, milliseconds    UTC
//!   value       double                     the value; of an integer the nearest double
//!   integer     int64, nullable            the value, if it is an integer
//!   tags        map of string to string    the tags
//! ```
//!
//! Row groups are written as they fill, so that memory does not depend on the number of points. The file has another name until
//! it is complete: a Parquet file is readable only with its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use oxtsdb_client::proto::data::v1::{StoredRow, stored_point};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::names::SeriesName;

const SCHEMA: &str = "
    message points {
        required binary metric (STRING);
        required int64 timestamp (TIMESTAMP(MILLIS,true));
        required double value;
        optional int64 integer;
        required group tags (MAP) {
            repeated group key_value {
                required binary key (STRING);
                required binary value (STRING);
            }
        }
    }";

/// Points of a row group, about 10 MiB before compression.
const GROUP_POINTS: usize = 128 << 10;
/// Tags of a row group: more of them than points have usually.
const GROUP_TAGS: usize = 8 * GROUP_POINTS;

/// The columns of a row group.
#[derive(Debug, Default)]
struct Columns {
    metrics: Vec<ByteArray>,
    timestamps_ms: Vec<i64>,
    values: Vec<f64>,
    integers: Vec<i64>,
    /// 1: the point is an integer.
    is_integer: Vec<i16>,
    keys: Vec<ByteArray>,
    tag_values: Vec<ByteArray>,
    /// 1: a tag; 0: the point has none.
    is_tag: Vec<i16>,
    /// 0: the first tag of a point.
    is_next: Vec<i16>,
}

/// A Parquet file that is being written.
pub(super) struct ParquetFile {
    writer: SerializedFileWriter<File>,
    columns: Columns,
    path: PathBuf,
    partial: PathBuf,
    points: u64,
}

impl ParquetFile {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// There is such a file, or it cannot be created.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        let shown = || path.display().to_string();
        ensure!(!path.exists(), "--parquet: `{}` exists", path.display());
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file =
            File::create(&partial).with_context(|| format!("--parquet: create `{}`", partial.display()))?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()));
        Ok(Self {
            writer: writer.with_context(shown)?,
            columns: Columns::default(),
            path: path.to_owned(),
            partial,
            points: 0,
        })
    }

    /// Adds the points of a row. Returns the number of its cells without points.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub(super) fn add(&mut self, row: &StoredRow, name: &SeriesName) -> anyhow::Result<u64> {
        let metric = ByteArray::from(name.metric.as_str());
        let tags: Vec<(ByteArray, ByteArray)> = name
            .tags
            .iter()
            .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
            .collect();
        let mut left_out = 0;
        for cell in &row.cells {
            left_out += u64::from(cell.points.is_empty());
            for point in &cell.points {
                let Some(value) = &point.value else { continue };
                self.columns.add(&metric, &tags, point.timestamp_ms, value);
                self.points += 1;
                if self.columns.is_full() {
                    self.write_group()?;
                }
            }
        }
        Ok(left_out)
    }

    /// Writes the rest and the end. Returns the number of points.
    ///
    /// # Errors
    ///
    /// Those of the file.
    pub(super) fn close(mut self) -> anyhow::Result<u64> {
        if !self.columns.timestamps_ms.is_empty() {
            self.write_group()?;
        }
        let Self {
            writer,
            path,
            partial,
            points,
            ..
        } = self;
        let shown = partial.display().to_string();
        let file = writer.into_inner().with_context(|| format!("write `{shown}`"))?;
        file.sync_all().with_context(|| format!("write `{shown}`"))?;
        fs::rename(&partial, &path).with_context(|| format!("rename `{shown}` to `{}`", path.display()))?;
        Ok(points)
    }

    fn write_group(&mut self) -> anyhow::Result<()> {
        let columns = std::mem::take(&mut self.columns);
        let mut group = self.writer.next_row_group()?;
        columns
            .write(&mut group)
            .with_context(|| format!("write `{}`", self.partial.display()))?;
        group.close()?;
        Ok(())
    }
}

impl Columns {
    fn add(
        &mut self,
        metric: &ByteArray,
        tags: &[(ByteArray, ByteArray)],
        timestamp_ms: i64,
        value: &stored_point::Value,
    ) {
        self.metrics.push(metric.clone());
        self.timestamps_ms.push(timestamp_ms);
        match value {
            stored_point::Value::IntValue(integer) => {
                #[expect(clippy::cast_precision_loss, reason = "column `integer` has it exactly")]
                self.values.push(*integer as f64);
                self.integers.push(*integer);
                self.is_integer.push(1);
            }
            stored_point::Value::DoubleValue(double) => {
                self.values.push(*double);
                self.is_integer.push(0);
            }
        }
        for (place, (key, value)) in tags.iter().enumerate() {
            self.keys.push(key.clone());
            self.tag_values.push(value.clone());
            self.is_tag.push(1);
            self.is_next.push(i16::from(place > 0));
        }
        if tags.is_empty() {
            self.is_tag.push(0);
            self.is_next.push(0);
        }
    }

    fn is_full(&self) -> bool {
        self.timestamps_ms.len() >= GROUP_POINTS || self.is_tag.len() >= GROUP_TAGS
    }

    fn write(&self, group: &mut SerializedRowGroupWriter<'_, File>) -> anyhow::Result<()> {
        let tags = (Some(&self.is_tag[..]), Some(&self.is_next[..]));
        column::<ByteArrayType>(group, &self.metrics, (None, None))?;
        column::<Int64Type>(group, &self.timestamps_ms, (None, None))?;
        column::<DoubleType>(group, &self.values, (None, None))?;
        column::<Int64Type>(group, &self.integers, (Some(&self.is_integer), None))?;
        column::<ByteArrayType>(group, &self.keys, tags)?;
        column::<ByteArrayType>(group, &self.tag_values, tags)
    }
}

/// Writes the next column, with its definition and repetition levels.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    (definitions, repetitions): (Option<&[i16]>, Option<&[i16]>),
) -> anyhow::Result<()> {
    let mut column = group.next_column()?.context("the schema has no more columns")?;
    column
        .typed::<T>()
        .write_batch(values, definitions, repetitions)?;
    column.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::proto::data::v1::{StoredCell, StoredPoint};
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::{Field, Row};
    use stored_point::Value::{DoubleValue, IntValue};

    use super::*;

    fn row(points: impl IntoIterator<Item = (i64, stored_point::Value)>) -> StoredRow {
        let point = |(timestamp_ms, value)| StoredPoint {
            timestamp_ms,
            value: Some(value),
        };
        StoredRow {
            cells: vec![
                StoredCell {
                    points: points.into_iter().map(point).collect(),
                    ..StoredCell::default()
                },
                StoredCell::default(),
            ],
            ..StoredRow::default()
        }
    }

    fn name(metric: &str, tags: &[(&str, &str)]) -> SeriesName {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        SeriesName {
            metric: metric.to_owned(),
            tags: tags.iter().map(owned).collect(),
            complete: true,
        }
    }

    /// The columns of each row of a file.
    fn read(path: &Path) -> Vec<Vec<Field>> {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let rows = reader.get_row_iter(None).unwrap();
        let fields = |row: Row| row.into_columns().into_iter().map(|(_, field)| field).collect();
        rows.map(|row| fields(row.unwrap())).collect()
    }

    fn entries(field: &Field) -> Vec<(Field, Field)> {
        match field {
            Field::MapInternal(map) => map.entries().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_has_the_points_that_were_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("points.parquet");
        let mut file = ParquetFile::create(&path).unwrap();
        let first = row([
            (1_356_998_400_000, IntValue(i64::MAX)),
            (1_356_998_400_500, DoubleValue(-0.5)),
        ]);
        let tags = [("host", "web01"), ("dc", "lga")];
        assert_eq!(file.add(&first, &name("sys.cpu", &tags)).unwrap(), 1);
        let second = row([(-1, IntValue(7))]);
        file.add(&second, &name("é", &[])).unwrap();
        assert!(!path.exists(), "not before its end");
        assert_eq!(file.close().unwrap(), 3);

        let rows = read(&path);
        let column = |row: usize, column: usize| rows[row][column].clone();
        assert_eq!(column(0, 0), Field::Str("sys.cpu".to_owned()));
        assert_eq!(column(0, 1), Field::TimestampMillis(1_356_998_400_000));
        assert_eq!(column(0, 3), Field::Long(i64::MAX));
        assert_eq!(column(1, 2), Field::Double(-0.5));
        assert_eq!(column(1, 3), Field::Null);
        let text = |text: &str| Field::Str(text.to_owned());
        let expected = [(text("host"), text("web01")), (text("dc"), text("lga"))];
        assert_eq!(entries(&rows[1][4]), expected);
        assert_eq!(column(2, 0), Field::Str("é".to_owned()));
        assert_eq!(column(2, 1), Field::TimestampMillis(-1));
        assert_eq!(entries(&rows[2][4]), []);
        let error = ParquetFile::create(&path).err().unwrap().to_string();
        assert!(error.ends_with("points.parquet` exists"), "{error}");
    }

    #[test]
    fn row_groups_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("points.parquet");
        let mut file = ParquetFile::create(&path).unwrap();
        let count = GROUP_POINTS * 2 + 3;
        let points = (0..count).map(|n| (i64::try_from(n).unwrap(), IntValue(1)));
        file.add(&row(points), &name("m", &[("host", "a")])).unwrap();
        assert!(file.columns.timestamps_ms.len() == 3);
        assert_eq!(file.close().unwrap(), count as u64);
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let groups = reader.metadata().row_groups().iter();
        let sizes: Vec<_> = groups.map(|group| group.num_rows()).collect();
        let full = i64::try_from(GROUP_POINTS).unwrap();
        assert_eq!(sizes, [full, full, 3]);
    }

    #[test]
    fn a_file_without_points_is_readable() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("points.parquet");
        assert_eq!(ParquetFile::create(&path).unwrap().close().unwrap(), 0);
        assert!(read(&path).is_empty());
    }
}
