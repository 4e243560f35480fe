//! Points into the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt as _};
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_server::Shutdown;
use oxtsdb_server::settings::SettingError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::form::Form;
use super::lanes::{LANES, Lanes};
use super::resolve::{Resolved, Resolver};
use super::rows::{POINT_BYTES, Rows};
use super::tracking::Tracker;
use super::{NewPoint, PointError, PointRef, WriteError, WriteOutcome};
use crate::series_index::SeriesIndex;
use crate::settings::DataSettings;
use crate::uids::Uids;
use crate::uids::series::{SeriesCache, SeriesRef, set_base_time};

/// A permit of the semaphore stands for so many bytes of a batch.
const PERMIT_BYTES: usize = 1024;

/// Writes points. Cloning is cheap, clones share the caches and the limit.
#[derive(Clone, Debug)]
pub struct Writer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn RowStore>,
    table: TableName,
    /// Cells have the timestamp of their point, in place of the store's.
    use_otsdb_timestamp: bool,
    resolver: Resolver,
    /// The way to the store, unless batches go to it as they are.
    lanes: Option<Lanes>,
    tracker: Tracker,
    /// Room for batches that the store has not confirmed.
    room: Arc<Semaphore>,
    room_permits: u32,
}

impl Writer {
    /// A writer into the table that `settings` name; it must exist. New series are told to `index`.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range.
    pub fn new(
        store: Arc<dyn RowStore>,
        uids: Uids,
        settings: &DataSettings,
        index: Option<SeriesIndex>,
        shutdown: Shutdown,
    ) -> Result<Self, SettingError> {
        let room_permits = u32::try_from((settings.max_writes_mib << 20) / PERMIT_BYTES).unwrap_or(u32::MAX);
        let table = settings.data_table_name()?;
        let form = settings.write_form.on(&*store);
        let linger = Duration::from_millis(settings.linger_ms);
        let as_they_are = form == Form::Single && linger.is_zero() && store.keeps_write_order();
        let layout = *uids.layout();
        let tracker = Tracker::new(Arc::clone(&store), settings, index)?;
        let lanes = (!as_they_are)
            .then(|| Lanes::new(Arc::clone(&store), table.clone(), layout, form, linger, shutdown));
        Ok(Self(Arc::new(Inner {
            store,
            table,
            use_otsdb_timestamp: settings.use_otsdb_timestamp,
            lanes,
            tracker,
            resolver: Resolver {
                uids,
                cache: SeriesCache::new(settings.series_cache_mib << 20, settings.cache_ttl()),
                max_tags: settings.max_tags,
            },
            room: Arc::new(Semaphore::new(room_permits as usize)),
            room_permits,
        })))
    }

    /// Writes points, in their order. `Ok` means that all that are not among the errors are in the
    /// store's log.
    ///
    /// With a deadline, waiting for the UID service, for room and for the store ends there.
    ///
    /// # Errors
    ///
    /// When the UID service or the store fails, or there is no room until the deadline. A part may
    /// have been written; writing all again is safe.
    pub async fn write(
        &self,
        points: &[NewPoint<'_>],
        deadline: Option<Instant>,
    ) -> Result<WriteOutcome, WriteError> {
        self.write_refs(points.len(), |index| PointRef::from(&points[index]), deadline)
            .await
    }

    /// As [`Writer::write`]; `point` gives each of `count` points.
    pub(crate) async fn write_refs<'a>(
        &self,
        count: usize,
        point: impl Fn(usize) -> PointRef<'a> + Send + Sync,
        deadline: Option<Instant>,
    ) -> Result<WriteOutcome, WriteError> {
        let (rows, errors) = self.encode(count, point, deadline).await?;
        let written = rows.points();
        self.store(rows, deadline).await?;
        Ok(WriteOutcome { written, errors })
    }

    /// The first half of [`Writer::write_refs`]: a batch that is not stored yet, and the points that
    /// are refused and not in it. With a deadline, waiting for the UID service ends there.
    pub(crate) async fn encode<'a>(
        &self,
        count: usize,
        point: impl Fn(usize) -> PointRef<'a> + Send + Sync,
        deadline: Option<Instant>,
    ) -> Result<(Rows, Vec<PointError>), WriteError> {
        let resolved = self
            .0
            .resolver
            .resolve((0..count).map(|index| point(index).series), deadline)
            .await?;
        let mut errors = Vec::new();
        let mut rows = self.batch(count);
        let mut key = Vec::with_capacity(POINT_BYTES);
        for (index, series) in resolved.iter().enumerate() {
            match series {
                Ok(series) => {
                    let PointRef { timestamp, value, .. } = point(index);
                    // The address tells series apart: `resolved` keeps all of them alive.
                    let place = Arc::as_ptr(series).addr();
                    rows.untracked().look_at(series);
                    rows.point(place, timestamp, &value, |base| {
                        key.clear();
                        key.extend_from_slice(series.key());
                        set_base_time(&mut key, series.base_time_at(), base);
                        &key
                    });
                }
                Err(reason) => errors.push(PointError {
                    index,
                    reason: reason.as_ref().clone(),
                }),
            }
        }
        Ok((rows, errors))
    }

    /// The series that are named, in their order; see [`Resolver::resolve`].
    pub(crate) async fn resolve<'a>(
        &self,
        wanted: impl ExactSizeIterator<Item = SeriesRef<'a>> + Send,
        deadline: Option<Instant>,
    ) -> Result<Vec<Resolved>, WriteError> {
        Ok(self.0.resolver.resolve(wanted, deadline).await?)
    }

    /// An empty batch with room for so many points.
    pub(crate) fn batch(&self, points: usize) -> Rows {
        let lanes = if self.0.lanes.is_some() { LANES } else { 1 };
        let untracked = self.0.tracker.untracked();
        Rows::new(
            &self.0.table,
            points,
            lanes,
            self.0.use_otsdb_timestamp,
            untracked,
        )
    }

    /// The most tags of a series.
    pub(crate) fn max_tags(&self) -> usize {
        self.0.resolver.max_tags
    }

    /// Stores a batch: durable when this returns `Ok`.
    pub(crate) async fn store(&self, rows: Rows, deadline: Option<Instant>) -> Result<(), WriteError> {
        if rows.points() == 0 {
            return Ok(());
        }
        let began = Instant::now();
        let room = match deadline {
            None => Ok(self.room(rows.byte_len()).await),
            Some(deadline) => tokio::time::timeout_at(deadline.into(), self.room(rows.byte_len())).await,
        };
        let room = room.map_err(|_| WriteError::Overloaded {
            limit_bytes: self.0.room_permits as usize * PERMIT_BYTES,
            waited: began.elapsed(),
        })?;
        let store = self.store_in(room, rows);
        match deadline {
            None => store.await,
            Some(deadline) => {
                let stored = tokio::time::timeout_at(deadline.into(), store).await;
                stored.unwrap_or(Err(WriteError::DeadlineExceeded))
            }
        }
    }

    /// Stores a batch for which there is room. Of two batches the one with which this was called
    /// first is stored first where they have points of one row, if what this returns is polled in
    /// the same order.
    pub(crate) fn store_in(&self, room: Room, mut rows: Rows) -> BoxFuture<'static, Result<(), WriteError>> {
        let untracked = rows.take_untracked();
        let stored = self.store_points(room, rows);
        if untracked.is_empty() {
            return stored;
        }
        let tracker = self.0.tracker.clone();
        async move {
            // Side by side, since the embedded store then has one sync for both; the series first, so that
            // after a crash there are no points of a series that has no row.
            let (tracked, stored) = futures::future::join(tracker.track(untracked), stored).await;
            stored.and(tracked.map_err(WriteError::from))
        }
        .boxed()
    }

    fn store_points(&self, room: Room, rows: Rows) -> BoxFuture<'static, Result<(), WriteError>> {
        if let Some(lanes) = &self.0.lanes {
            let submitted = lanes.submit(rows, room);
            return async { Ok(submitted.await?) }.boxed();
        }
        let writer = self.clone();
        async move {
            for batch in rows.into_lanes() {
                if !batch.is_empty() {
                    writer.0.store.write(batch).await?;
                }
            }
            drop(room);
            Ok(())
        }
        .boxed()
    }

    /// Waits, without end, until there is room for a batch of so many bytes, with what is kept for it
    /// until it is stored. One that is above the limit waits to be alone.
    pub(crate) fn room(&self, bytes: usize) -> impl Future<Output = Room> + Send + use<> {
        let semaphore = Arc::clone(&self.0.room);
        let permits = self.permits(bytes);
        async move {
            Room {
                _permit: semaphore.acquire_many_owned(permits).await.ok(),
            }
        }
    }

    /// Room for so many bytes, if there is some and nobody waits for it.
    pub(crate) fn try_room(&self, bytes: usize) -> Option<Room> {
        let permit = Arc::clone(&self.0.room)
            .try_acquire_many_owned(self.permits(bytes))
            .ok()?;
        Some(Room {
            _permit: Some(permit),
        })
    }

    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(PERMIT_BYTES))
            .unwrap_or(u32::MAX)
            .min(self.0.room_permits)
    }
}

/// A part of the memory for batches that the store has not confirmed; free again when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    /// `None` would mean a closed semaphore; this one never is.
    _permit: Option<OwnedSemaphorePermit>,
}

#[cfg(test)]
mod tests;
