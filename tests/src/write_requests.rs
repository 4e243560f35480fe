//! Requests of the write calls.

use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::write_stream_request::Open;
use oxtsdb_proto::data::v1::{
    Columns, TimeSeries, TimeUnit, WriteColumnsRequest, WriteOptions, WriteRequest, time_series,
};

use crate::sample::{Number, Sample};

/// Milliseconds, and any instant that can be stored.
pub fn any_time() -> WriteOptions {
    WriteOptions {
        allow_any_time: true,
        ..plausible_time()
    }
}

/// Milliseconds, and plausible instants only.
pub fn plausible_time() -> WriteOptions {
    WriteOptions {
        time_unit: TimeUnit::Milliseconds.into(),
        ..WriteOptions::default()
    }
}

/// `Write` of some points, in their order.
pub fn write_request<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> WriteRequest {
    WriteRequest {
        series: time_series(samples),
        options: Some(any_time()),
    }
}

/// `WriteColumns` of some points.
pub fn columns_request(columns: Columns) -> WriteColumnsRequest {
    WriteColumnsRequest {
        columns: Some(columns),
        options: Some(any_time()),
    }
}

/// The first message of a `WriteStream`.
pub fn open() -> Open {
    Open {
        client_name: "oxtsdb-tests".to_owned(),
        options: Some(any_time()),
    }
}

/// Points in their order: consecutive ones of one series and one type of value together.
pub fn time_series<'a>(samples: impl IntoIterator<Item = &'a Sample>) -> Vec<TimeSeries> {
    let mut all: Vec<TimeSeries> = Vec::new();
    for sample in samples {
        let next = one_point(sample);
        match all.last_mut() {
            Some(last) if last.series == next.series && last.values.is_empty() == next.values.is_empty() => {
                last.timestamps.extend(next.timestamps);
                last.values.extend(next.values);
                last.int_values.extend(next.int_values);
            }
            _ => all.push(next),
        }
    }
    all
}

fn one_point(sample: &Sample) -> TimeSeries {
    let tag = |(key, value): &(String, String)| Tag {
        key: key.clone(),
        value: value.clone(),
    };
    let name = SeriesName {
        metric: sample.metric.clone(),
        tags: sample.tags.iter().map(tag).collect(),
    };
    let mut series = TimeSeries {
        series: Some(time_series::Series::Name(name)),
        timestamps: vec![sample.timestamp_ms],
        ..TimeSeries::default()
    };
    match sample.value {
        Number::Int(value) => series.int_values.push(value),
        Number::Double(value) => series.values.push(value),
    }
    series
}
