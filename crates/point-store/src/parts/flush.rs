//! The flush thread: writes frozen heads as parts, then removes their journal; deletes points.
//!
//! ```text
//!   keys of series, durable ─► parts of some days, visible ─► parts of the next days …
//!                           ─► parts durable, manifests ─► the head is dropped ─► segments of the journal removed
//! ```
//!
//! Until the end, points are in parts and in the head, and after a crash in parts and in the journal: the head wins,
//! with equal values. A job that fails is repeated, without the days that have visible parts: a disk that is full would
//! get fuller with each attempt.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SendError, SyncSender};
use std::thread;
use std::time::Duration;

use super::core::{Core, FlushJob};
use super::days::name::DayNumber;
use super::days::{NewPart, Saved};
use super::head::{Head, HeadScratch};
use super::part::Columns;
use super::series::{MetricNumber, SeriesKey};
use super::throttle::FlushProgress;
use crate::{PointStoreError, TimeRange};

/// The pause after a failure, doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Days that are written in one pass over a head: each has an open part file.
const DAYS_AT_A_TIME: usize = 16;

/// Points that pass at a time from the thread that reads a head to the thread that writes parts, and the number of such
/// batches that may wait: enough to even out the two, within the processor's cache.
const BATCH_POINTS: usize = 8 << 10;
const BATCHES_AHEAD: usize = 4;

/// Does jobs until the store stops.
pub(super) fn run(core: &Core) {
    let mut pause = PAUSE;
    // Days with visible parts of the first job.
    let mut published = BTreeSet::new();
    loop {
        let job = {
            let mut state = core.flush.state.lock();
            loop {
                if state.stopping {
                    return;
                }
                match state.jobs.front() {
                    Some(FlushJob::Head {
                        head,
                        segment,
                        cut,
                        series,
                    }) => break Some((Arc::clone(head), *segment, *cut, *series)),
                    Some(_) => break None,
                    None => core.flush.changed.wait(&mut state),
                }
            }
        };
        let done = match job {
            Some((head, segment, cut, series)) => write_head(core, &head, cut, series, &mut published)
                .and_then(|()| Ok(core.journal.remove_through(segment)?)),
            None => Ok(()),
        };
        core.errors.lock().flush = done.as_ref().err().cloned();
        match done {
            Ok(()) => {
                pause = PAUSE;
                published.clear();
                let job = {
                    let mut state = core.flush.state.lock();
                    state.progress = None;
                    state.jobs.pop_front()
                };
                core.flush.changed.notify_all();
                if let Some(job) = job {
                    end(core, job);
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot write points from memory to parts; trying again");
                let mut state = core.flush.state.lock();
                state.fail_callers(&error);
                if !state.stopping {
                    core.flush.changed.notify_all();
                    core.flush.changed.wait_for(&mut state, pause);
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Ends a job after all jobs before it.
fn end(core: &Core, job: FlushJob) {
    match job {
        FlushJob::Head { .. } => {}
        FlushJob::Done { snapshot, reply } => {
            let linked = snapshot.map_or(Ok(()), |target| core.days.snapshot(&target));
            drop(reply.send(linked));
        }
        FlushJob::Delete { series, range, reply } => {
            let deleted = core.days.delete(&series, range).map(|deletion| {
                let _no_readers = core.heads.write();
                deletion.publish();
            });
            drop(reply.send(deleted));
        }
    }
}

/// Writes the points of a head as parts, of the days that are not `published`, and drops it. `cut` is the last frame of
/// the journal that has its points.
fn write_head(
    core: &Core,
    head: &Arc<Head>,
    cut: u64,
    series: u32,
    published: &mut BTreeSet<DayNumber>,
) -> Result<(), PointStoreError> {
    let begun = std::time::Instant::now();
    core.flush.state.lock().progress = Some(FlushProgress::begin(head.byte_len()));
    let keys = head.series(|series| core.series.metric_of(series).unwrap_or(MetricNumber(u32::MAX)));
    // First: a part must not have series that are in no file.
    core.series.save(series)?;
    let mut days = days_of(head, &keys);
    days.retain(|day| !published.contains(day));
    let passes = days.chunks(DAYS_AT_A_TIME);
    let total = (passes.len() * keys.len()) as u64;
    advance(core, |progress| progress.plan(total));
    for days in passes {
        for part in write_days(core, head, &keys, days)? {
            let day = part.day();
            core.days.publish(part)?;
            published.insert(day);
        }
    }
    core.days.record(Saved { cut, series })?;
    let mut heads = core.heads.write();
    heads.frozen.retain(|frozen| !Arc::ptr_eq(frozen, head));
    drop(heads);
    core.counters.flushes.add(1);
    core.timings.flush.observe_since(begun);
    Ok(())
}

fn advance(core: &Core, change: impl FnOnce(&mut FlushProgress)) {
    if let Some(progress) = &mut core.flush.state.lock().progress {
        change(progress);
    }
}

/// The days that have points, ascending; if all lie close together, also those between.
fn days_of(head: &Head, keys: &[SeriesKey]) -> Vec<DayNumber> {
    let Some(extent) = head.extent() else {
        return Vec::new();
    };
    let (first, last) = (
        DayNumber::from_time_ms(extent.first_ms),
        DayNumber::from_time_ms(extent.last_ms),
    );
    let between: Vec<DayNumber> = std::iter::successors(Some(first), |day| Some(day.next()))
        .take_while(|day| *day <= last)
        .take(DAYS_AT_A_TIME + 1)
        .collect();
    if between.len() <= DAYS_AT_A_TIME {
        return between;
    }
    let mut days = BTreeSet::new();
    let read = head.read_each(keys, TimeRange::ALL, &mut HeadScratch::default(), |_, points| {
        days.extend(
            points
                .times_ms
                .iter()
                .map(|time_ms| DayNumber::from_time_ms(*time_ms)),
        );
        Ok::<_, Infallible>(())
    });
    let Ok(()) = read;
    days.into_iter().collect()
}

/// Points on their way from the thread that reads the head to the thread that writes parts.
#[derive(Default)]
struct Batch {
    /// Series that were read for it.
    series: u64,
    runs: Vec<Run>,
    columns: Columns,
}

/// Points of one series and day.
struct Run {
    key: SeriesKey,
    day: DayNumber,
    /// Index behind the last point.
    end: usize,
}

impl Batch {
    /// Adds points of a series, ascending.
    fn push(&mut self, key: SeriesKey, points: &Columns) {
        let mut start = 0;
        while let Some(first_ms) = points.times_ms.get(start) {
            let day = DayNumber::from_time_ms(*first_ms);
            let of_day = points.times_ms[start..].partition_point(|time_ms| *time_ms <= day.last_ms());
            self.columns.extend_from(points, start..start + of_day);
            let end = self.columns.len();
            self.runs.push(Run { key, day, end });
            start += of_day;
        }
    }
}

/// Reads the points of all series in a range, until no more are received.
fn read_points(head: &Head, keys: &[SeriesKey], range: TimeRange, batches: &SyncSender<Batch>) {
    let mut batch = Batch::default();
    let read = head.read_each(keys, range, &mut HeadScratch::default(), |key, points| {
        batch.series += 1;
        batch.push(key, points);
        if batch.columns.len() >= BATCH_POINTS {
            batches.send(std::mem::take(&mut batch))?;
        }
        Ok::<_, SendError<Batch>>(())
    });
    // The writer failed, and reports it.
    drop(read.and_then(|()| batches.send(batch)));
}

/// Writes the parts of some days.
fn write_days(
    core: &Core,
    head: &Head,
    keys: &[SeriesKey],
    days: &[DayNumber],
) -> Result<Vec<NewPart>, PointStoreError> {
    let (Some(first), Some(last)) = (days.first(), days.last()) else {
        return Ok(Vec::new());
    };
    let range = TimeRange {
        first_ms: first.first_ms(),
        last_ms: last.last_ms(),
    };
    // Reading the head waits for memory, writing parts computes: two threads need half the time.
    thread::scope(|scope| {
        let (sender, batches) = mpsc::sync_channel(BATCHES_AHEAD);
        let reader = thread::Builder::new().name("points-drain".to_owned());
        let spawned = reader.spawn_scoped(scope, move || read_points(head, keys, range, &sender));
        spawned.map_err(|error| PointStoreError::io("thread points-drain", &error))?;
        write_parts(core, days, batches)
    })
}

fn write_parts(
    core: &Core,
    days: &[DayNumber],
    batches: Receiver<Batch>,
) -> Result<Vec<NewPart>, PointStoreError> {
    let mut parts: BTreeMap<DayNumber, NewPart> = BTreeMap::new();
    for Batch {
        series,
        runs,
        columns,
    } in batches
    {
        let mut start = 0;
        for Run { key, day, end } in runs {
            // Parts of days between them are visible already.
            if days.binary_search(&day).is_err() {
                start = end;
                continue;
            }
            let part = match parts.entry(day) {
                Entry::Occupied(part) => part.into_mut(),
                Entry::Vacant(place) => place.insert(core.days.new_part(day)?),
            };
            part.writer().push_range(key, &columns, start..end)?;
            start = end;
        }
        advance(core, |progress| progress.advance(series));
    }
    Ok(parts.into_values().collect())
}
