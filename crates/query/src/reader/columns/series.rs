//! All series with points.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_point_store::{PointStore, SeriesNumber, TimeRange};
use oxtsdb_row_store::StoreError;

use crate::reader::{KnownSeries, SeriesStep};

/// Series of a step.
const SERIES_AT_A_TIME: usize = 4096;

/// See [`PointReader::series_with_columns`].
///
/// [`PointReader::series_with_columns`]: crate::reader::PointReader::series_with_columns
pub(super) fn with_points<'a>(
    points: &'a Arc<dyn PointStore>,
    is_known: &'a KnownSeries<'_>,
) -> BoxStream<'a, Result<SeriesStep, StoreError>> {
    let of_metric = move |metric: Vec<u8>| async move {
        let store = Arc::clone(points);
        let listed = tokio::task::spawn_blocking(move || store.metric_series(&metric));
        let listed = listed.await.map_err(|error| StoreError::Io {
            place: "catalogue".to_owned(),
            detail: error.to_string(),
        })?;
        let listed: Arc<[SeriesNumber]> = listed.into();
        let steps = stream::iter((0..listed.len()).step_by(SERIES_AT_A_TIME));
        Ok::<_, StoreError>(steps.then(move |start| step(&**points, Arc::clone(&listed), start, is_known)))
    };
    stream::iter(points.metrics())
        .then(of_metric)
        .try_flatten()
        .boxed()
}

async fn step(
    points: &dyn PointStore,
    listed: Arc<[SeriesNumber]>,
    start: usize,
    is_known: &KnownSeries<'_>,
) -> Result<SeriesStep, StoreError> {
    let series = &listed[start..listed.len().min(start + SERIES_AT_A_TIME)];
    let visited = series.len() as u64;
    let (mut numbers, mut keys) = (Vec::new(), Vec::new());
    for series in series {
        let mut key = Vec::new();
        points.key(*series, &mut key);
        if !is_known(&key) {
            numbers.push(*series);
            keys.push(key);
        }
    }
    let last = points.last(&numbers, TimeRange::ALL).await?;
    let with_points = keys.into_iter().zip(last).filter(|(_, last)| last.is_some());
    Ok(SeriesStep {
        visited,
        with_points: with_points.map(|(key, _)| key).collect(),
    })
}
