//! Conversions between messages and documents.

use oxtsdb_metadata::lookup::SeriesNames;
use oxtsdb_metadata::meta::SeriesMeta;
use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1 as pb;
use oxtsdb_proto::error::invalid_field;
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::document::CustomFields;
use oxtsdb_schema::ts_meta::TsMeta;
use prost_types::Timestamp;
use tonic::Status;

/// Whether a field of a message is not empty.
pub(super) fn is_set(meta: &pb::SeriesMeta, field: &str) -> bool {
    match field {
        "display_name" => !meta.display_name.is_empty(),
        "description" => !meta.description.is_empty(),
        "notes" => !meta.notes.is_empty(),
        "created" => meta.created.is_some(),
        "custom" => meta.custom.is_some(),
        "units" => !meta.units.is_empty(),
        "data_type" => !meta.data_type.is_empty(),
        "retention_days" => meta.retention_days != 0,
        "max" => meta.max.is_some(),
        _ => meta.min.is_some(),
    }
}

/// The document of a message.
pub(super) fn document(meta: &pb::SeriesMeta) -> Result<TsMeta, Status> {
    let created_seconds = meta.created.as_ref().map_or(0, |created| created.seconds);
    if created_seconds < 0 {
        return Err(invalid_field("meta.created", "is before 1970"));
    }
    let custom = meta.custom.clone();
    let custom = custom.map(|custom| CustomFields::new(custom.into_fields()));
    Ok(TsMeta {
        display_name: meta.display_name.clone(),
        description: meta.description.clone(),
        notes: meta.notes.clone(),
        created_seconds,
        custom,
        units: meta.units.clone(),
        data_type: meta.data_type.clone(),
        retention_days: meta.retention_days,
        max: meta.max.unwrap_or(f64::NAN),
        min: meta.min.unwrap_or(f64::NAN),
    })
}

/// Copies fields from `values`.
pub(super) fn assign(document: &mut TsMeta, values: &TsMeta, fields: &[&str]) {
    for field in fields {
        match *field {
            "display_name" => document.display_name.clone_from(&values.display_name),
            "description" => document.description.clone_from(&values.description),
            "notes" => document.notes.clone_from(&values.notes),
            "created" => document.created_seconds = values.created_seconds,
            "custom" => document.custom.clone_from(&values.custom),
            "units" => document.units.clone_from(&values.units),
            "data_type" => document.data_type.clone_from(&values.data_type),
            "retention_days" => document.retention_days = values.retention_days,
            "max" => document.max = values.max,
            _ => document.min = values.min,
        }
    }
}

/// The message of a series.
pub(super) fn message(tsuid: &Tsuid, names: SeriesNames, meta: SeriesMeta) -> pb::SeriesMeta {
    let SeriesMeta {
        document,
        etag,
        counter,
    } = meta;
    let document = document.unwrap_or_else(|| TsMeta::new(0));
    let tag = |(key, value): &(std::sync::Arc<str>, std::sync::Arc<str>)| Tag {
        key: key.as_ref().to_owned(),
        value: value.as_ref().to_owned(),
    };
    pb::SeriesMeta {
        tsuid: tsuid.as_bytes().to_vec().into(),
        name: Some(SeriesName {
            metric: names.metric.as_ref().to_owned(),
            tags: names.tags.iter().map(tag).collect(),
        }),
        display_name: document.display_name,
        description: document.description,
        notes: document.notes,
        created: (document.created_seconds != 0).then(|| timestamp(document.created_seconds)),
        custom: document.custom.as_ref().map(Into::into),
        units: document.units,
        data_type: document.data_type,
        retention_days: document.retention_days,
        max: Some(document.max).filter(|max| !max.is_nan()),
        min: Some(document.min).filter(|min| !min.is_nan()),
        total_points: counter.map(|counter| counter.points),
        last_received: counter.map(|counter| timestamp(counter.written_ms.div_euclid(1000))),
        etag,
    }
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}
