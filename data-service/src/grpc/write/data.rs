//! Calls that write data of other kinds than points: histograms, rollups.

use std::sync::Arc;

use oxtsdb_ingest::columns::Failures;
use oxtsdb_ingest::{Caller, PointErrorReason, WriteError, WriteOutcome};
use oxtsdb_proto::common::v1::SeriesName;
use tonic::Status;

use super::count_write;
use crate::grpc::{DataServiceHandler, status};

/// The data of a call, checked in their order.
#[derive(Debug)]
pub(in crate::grpc) struct CheckedData<D> {
    good: Vec<D>,
    /// The place of each good datum in the call.
    places: Vec<usize>,
    /// The data that are not stored, by place.
    reasons: Vec<(usize, Arc<PointErrorReason>)>,
}

impl<D> FromIterator<Result<D, PointErrorReason>> for CheckedData<D> {
    fn from_iter<I: IntoIterator<Item = Result<D, PointErrorReason>>>(data: I) -> Self {
        let (mut good, mut places, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        for (place, datum) in data.into_iter().enumerate() {
            match datum {
                Ok(datum) => {
                    good.push(datum);
                    places.push(place);
                }
                Err(reason) => reasons.push((place, Arc::new(reason))),
            }
        }
        Self {
            good,
            places,
            reasons,
        }
    }
}

impl<D> CheckedData<D> {
    /// The data to write.
    pub(in crate::grpc) fn good(&self) -> &[D] {
        &self.good
    }

    /// Counts the data by the outcome of their write. Returns the number of stored data, and the others; `describe`
    /// returns a datum by its place in the call as text, for the log.
    ///
    /// # Errors
    ///
    /// The write has failed as a whole.
    pub(in crate::grpc) fn end(
        mut self,
        (service, caller): (&DataServiceHandler, &Caller),
        outcome: Result<WriteOutcome, WriteError>,
        max_errors: usize,
        describe: impl Fn(usize) -> String,
    ) -> Result<(u64, Failures), Status> {
        let (written, error) = match outcome {
            Ok(WriteOutcome { written, errors }) => {
                let place = |index: usize| self.places.get(index).copied();
                let failed = errors.into_iter();
                let failed = failed.filter_map(|error| Some((place(error.index)?, error.reason)));
                self.reasons.extend(failed);
                self.reasons.sort_by_key(|(place, _)| *place);
                (written, None)
            }
            Err(error) => (self.good.len() as u64, Some(error)),
        };
        let mut failures = Failures::new(max_errors);
        for (place, reason) in &self.reasons {
            failures.add_run(*place, 1, reason);
        }
        failures.describe(describe);
        count_write(service, caller, written, &failures, error.is_none());
        match error {
            None => Ok((written, failures)),
            Some(error) => Err(status::write_status(&error)),
        }
    }
}

/// The tags of a series by name.
pub(in crate::grpc) fn tags(name: &SeriesName) -> Vec<(&str, &str)> {
    let tags = name.tags.iter();
    tags.map(|tag| (tag.key.as_str(), tag.value.as_str())).collect()
}

/// The datum at a place of a call, as text: its series and its timestamp.
pub(in crate::grpc) fn describe<S>(
    series: &[S],
    timestamps: impl Fn(&S) -> &[i64],
    text: impl Fn(&S) -> String,
    place: usize,
) -> String {
    let mut first = 0;
    for series in series {
        let timestamps = timestamps(series);
        if let Some(timestamp) = timestamps.get(place - first) {
            return format!("{} {timestamp}", text(series)).trim_start().to_owned();
        }
        first += timestamps.len();
    }
    String::new()
}

/// Metric and tags of a series by name, as text.
pub(in crate::grpc) fn name_text(name: &SeriesName) -> String {
    let tags = tags(name).into_iter();
    let tags: String = tags.map(|(key, value)| format!(" {key}={value}")).collect();
    format!("{}{tags}", name.metric)
}
