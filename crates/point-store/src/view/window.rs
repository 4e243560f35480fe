//! A window of the walk over rows: the points of some series in some hours, transposed to rows.

use futures::TryStreamExt as _;
use oxtsdb_row_store::StoreError;

use super::form::CellForm;
use crate::{Point, PointStore, ReadRequest, SeriesColumns, SeriesNumber, TimeRange};

/// How much is read at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowSize {
    /// The series of the first window after a start or a seek.
    pub(super) first_series: usize,
    /// Bytes of points; one series in one hour may have more.
    pub(super) bytes: usize,
}

impl Default for WindowSize {
    fn default() -> Self {
        Self {
            first_series: 32,
            bytes: 1 << 20,
        }
    }
}

/// Points that were read, with the places of their series in the request.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) columns: Vec<(usize, SeriesColumns)>,
    /// The first series that was not read; the length of the request if all were.
    pub(super) end: usize,
    pub(super) bytes: usize,
}

/// Reads the points of whole series in all ranges, until there are `most_bytes` of them. `None` if there are more and
/// `needs_all`.
pub(super) async fn read(
    points: &dyn PointStore,
    series: &[SeriesNumber],
    ranges: &[TimeRange],
    most_bytes: usize,
    needs_all: bool,
) -> Result<Option<Read>, StoreError> {
    let mut all = Read {
        end: series.len(),
        ..Read::default()
    };
    for range in ranges {
        let most_bytes = most_bytes / ranges.len();
        let read = read_range(points, &series[..all.end], *range, most_bytes, needs_all).await?;
        let Some(read) = read else { return Ok(None) };
        all.end = read.end;
        all.bytes += read.bytes;
        all.columns.extend(read.columns);
    }
    // Stable: the ranges of a series stay in order.
    all.columns.retain(|(place, _)| *place < all.end);
    all.columns.sort_by_key(|(place, _)| *place);
    Ok(Some(all))
}

async fn read_range(
    points: &dyn PointStore,
    series: &[SeriesNumber],
    range: TimeRange,
    most_bytes: usize,
    needs_all: bool,
) -> Result<Option<Read>, StoreError> {
    let request = ReadRequest {
        series: series.to_vec(),
        range,
    };
    let mut items = points.read(request);
    let mut read = Read::default();
    let mut at = 0;
    while let Some(item) = items.try_next().await.map_err(StoreError::from)? {
        for columns in item {
            let steps = series[at..].iter().position(|series| *series == columns.series);
            let steps = steps.ok_or_else(|| StoreError::Io {
                place: "point store".to_owned(),
                detail: format!("series {} was not requested, or not there", columns.series.0),
            })?;
            at += steps;
            if read.bytes >= most_bytes {
                if needs_all {
                    return Ok(None);
                }
                // The rest of the last series is read in any case: its row is not split.
                if read.columns.last().is_some_and(|(last, _)| *last != at) {
                    read.end = at;
                    return Ok(Some(read));
                }
            }
            read.bytes += columns.byte_len() + size_of::<(usize, SeriesColumns)>() + size_of::<Slice>();
            read.columns.push((at, columns));
        }
    }
    read.end = series.len();
    Ok(Some(read))
}

/// The points of one hour within columns.
#[derive(Clone, Copy, Debug)]
struct Slice {
    hour: i64,
    /// Index of its columns among the columns of the window.
    columns: usize,
    from: usize,
    to: usize,
}

/// The rows of a window that are still to be emitted.
#[derive(Debug)]
pub(super) struct Window {
    columns: Vec<(usize, SeriesColumns)>,
    /// In the order of the walk; slices of one row are neighbours.
    slices: Vec<Slice>,
    next: usize,
}

/// A row of a window: its hour, the place of its series in the request, its points.
#[derive(Debug)]
pub(super) struct WindowRow<'a> {
    pub(super) hour: i64,
    pub(super) place: usize,
    columns: &'a [(usize, SeriesColumns)],
    slices: &'a [Slice],
}

impl Window {
    /// The rows of columns, by hour (descending if `reverse`), then by the order of the request.
    pub(super) fn new(read: Read, reverse: bool, form: &CellForm) -> Self {
        let mut slices = Vec::new();
        for (number, (_, columns)) in read.columns.iter().enumerate() {
            let mut from = 0;
            while let Some(first_ms) = columns.times_ms.get(from) {
                let hour = form.hour_of(*first_ms);
                let rest = &columns.times_ms[from..];
                let to = from + rest.partition_point(|time_ms| form.hour_of(*time_ms) <= hour);
                slices.push(Slice {
                    hour,
                    columns: number,
                    from,
                    to,
                });
                from = to;
            }
        }
        // Columns are in the order of the request, and columns of one series in order of time.
        slices.sort_unstable_by_key(|slice| {
            let hour = if reverse { -slice.hour } else { slice.hour };
            (hour, slice.columns)
        });
        Self {
            columns: read.columns,
            slices,
            next: 0,
        }
    }

    /// The next row.
    pub(super) fn next_row(&mut self) -> Option<WindowRow<'_>> {
        let rest = self.slices.get(self.next..)?;
        let first = *rest.first()?;
        let place = self.columns[first.columns].0;
        let is_same = |slice: &&Slice| slice.hour == first.hour && self.columns[slice.columns].0 == place;
        let count = rest.iter().take_while(is_same).count();
        let slices = &self.slices[self.next..self.next + count];
        self.next += count;
        Some(WindowRow {
            hour: first.hour,
            place,
            columns: &self.columns,
            slices,
        })
    }
}

impl WindowRow<'_> {
    /// The number of points.
    pub(super) fn len(&self) -> usize {
        self.slices.iter().map(|slice| slice.to - slice.from).sum()
    }

    /// The points, ascending.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> + Clone {
        self.slices.iter().flat_map(|slice| {
            let columns = &self.columns[slice.columns].1;
            (slice.from..slice.to).map(|index| Point {
                time_ms: columns.times_ms[index],
                kind: columns.kinds.get(index),
                bits: columns.bits[index],
            })
        })
    }
}
