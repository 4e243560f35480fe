//! Days on a simulated disk.

mod damage;
mod merges;
mod model;
mod salvage;
mod threads;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::merge::Merged;
use super::name::{DAY_MS, DayNumber};
use super::pace::Unpaced;
use super::policy::MergePolicy;
use super::{DayList, Days};
use crate::parts::folder::Folder;
use crate::parts::part::{Columns, Decoder, PageCache};
use crate::parts::series::{MetricNumber, SeriesKey};
use crate::{PointKind, PointStoreError, SeriesNumber, TimeRange};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

const FOLDER: &str = "/points";
/// An instant in the first of the days that tests use.
const FIRST_DAY_MS: i64 = 20_000 * DAY_MS;

/// The newest value of each series and instant.
type Model = BTreeMap<(u32, i64), u64>;

/// An open store of days. The folder is locked as long.
#[derive(Debug)]
struct Store {
    disk: SimulatedDisk,
    days: Days,
    _folder: Folder,
}

/// A point: series, milliseconds since the first day, value.
type TestPoint = (u32, i64, u64);

fn key(series: u32) -> SeriesKey {
    SeriesKey {
        metric: MetricNumber(series % 3),
        series: SeriesNumber(series),
    }
}

fn kind_of(value: u64) -> PointKind {
    PointKind::from_byte([0, 2, 4][usize::try_from(value % 3).unwrap()]).unwrap()
}

/// Merges at three parts.
fn policy() -> MergePolicy {
    MergePolicy {
        growth: 2,
        floor_bytes: 1,
        max_inputs: 3,
        budget: 4,
        settled_ms: 1000,
    }
}

impl Store {
    fn new() -> Self {
        Self::open(SimulatedDisk::new()).unwrap()
    }

    fn open(disk: SimulatedDisk) -> Result<Self, PointStoreError> {
        let folder = Folder::open(&disk, Path::new(FOLDER))?;
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let days = Days::open(shared, &folder, cache(), policy(), u32::MAX, false)?;
        Ok(Self {
            disk,
            days,
            _folder: folder,
        })
    }

    /// Writes points, in any order, as a part of each day.
    fn add(&self, points: &[TestPoint]) -> Result<(), PointStoreError> {
        let mut days: BTreeMap<DayNumber, BTreeMap<SeriesKey, BTreeMap<i64, u64>>> = BTreeMap::new();
        for (series, offset_ms, value) in points {
            let time_ms = FIRST_DAY_MS + offset_ms;
            let day = days.entry(DayNumber::from_time_ms(time_ms)).or_default();
            day.entry(key(*series)).or_default().insert(time_ms, *value);
        }
        for (day, all) in days {
            let mut new = self.days.new_part(day)?;
            for (key, points) in all {
                let points = Columns {
                    times_ms: points.keys().copied().collect(),
                    kinds: points.values().map(|value| kind_of(*value)).collect(),
                    bits: points.values().copied().collect(),
                };
                new.writer().push(key, &points)?;
            }
            self.days.add(new)?;
        }
        Ok(())
    }

    fn delete(&self, series: &[u32], range: TimeRange) -> Result<(), PointStoreError> {
        let series: Vec<SeriesNumber> = series.iter().copied().map(SeriesNumber).collect();
        self.days.delete(&series, range)?.publish();
        Ok(())
    }

    /// Runs the next merge, of a time at which all days are over; `false` if there is none.
    fn merge(&self) -> Result<bool, PointStoreError> {
        let now_ms = FIRST_DAY_MS + 1000 * DAY_MS;
        // A settled day has been looked at before.
        drop(self.days.next_merge(now_ms - 1000, 0));
        let Some(job) = self.days.next_merge(now_ms, u64::MAX) else {
            return Ok(false);
        };
        assert!(matches!(job.run(&Unpaced)?, Merged::Done { .. }));
        Ok(true)
    }

    fn merge_all(&self) {
        while self.merge().unwrap() {}
    }

    fn read(&self, series: u32, range: TimeRange) -> Result<Columns, PointStoreError> {
        let mut points = Columns::default();
        self.days
            .read(key(series), range, &mut Decoder::default(), &mut points)?;
        assert!(points.times_ms.is_sorted_by(|a, b| a < b));
        for (value, kind) in points.bits.iter().zip(&points.kinds) {
            assert_eq!(*kind, kind_of(*value));
        }
        Ok(points)
    }

    /// All points of the first series.
    fn visible(&self) -> Model {
        let mut model = Model::new();
        for series in 0..8 {
            let points = self.read(series, TimeRange::ALL).unwrap();
            let pairs = points.times_ms.iter().zip(&points.bits);
            model.extend(pairs.map(|(time_ms, value)| ((series, time_ms - FIRST_DAY_MS), *value)));
        }
        model
    }

    /// The only day.
    fn list(&self) -> Arc<DayList> {
        let days = self.days.days_in(TimeRange::ALL);
        assert_eq!(days.len(), 1);
        Arc::clone(&days[0])
    }

    /// Names of all files and folders of files, without manifests.
    fn files(&self) -> Vec<String> {
        let files = self.disk.files().into_keys();
        let names = files.filter_map(|path| Some(path.strip_prefix("/points/")?.to_owned()));
        names
            .filter(|name| !["STORE", "LOCK"].contains(&name.as_str()) && !name.ends_with("MANIFEST"))
            .collect()
    }

    fn part_path(&self, index: usize) -> PathBuf {
        self.list().parts()[index].path().to_owned()
    }
}

fn cache() -> Arc<PageCache> {
    Arc::new(PageCache::new(1 << 20, 0))
}

/// A range of instants, relative to the first day.
const fn span(first_ms: i64, last_ms: i64) -> TimeRange {
    TimeRange {
        first_ms: FIRST_DAY_MS + first_ms,
        last_ms: FIRST_DAY_MS + last_ms,
    }
}
