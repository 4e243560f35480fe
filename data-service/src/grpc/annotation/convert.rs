//! Annotations as messages and as the domain's types. Each rejection names its field.

use std::collections::BTreeMap;

use oxtsdb_metadata::annotation::{AnnotationKey, Edit, KeyError, Source, document_time};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::Annotation as AnnotationMessage;
use oxtsdb_proto::error::{invalid_field, invalid_field_because};
use oxtsdb_proto::update_mask;
use oxtsdb_schema::annotation::millis;
use oxtsdb_schema::{Annotation, RowKeyLayout, Tsuid};
use prost_types::FieldMask;
use tonic::Status;

/// The fields that a mask can name.
const FIELDS: &[&str] = &["end_ms", "description", "notes", "custom"];

/// The key of a message; `within` is its path, with its dot.
pub(super) fn key(
    layout: &RowKeyLayout,
    within: &str,
    tsuid: &[u8],
    start_ms: i64,
) -> Result<AnnotationKey, Status> {
    AnnotationKey::at_instant(layout, tsuid, start_ms).map_err(|error| match &error {
        KeyError::Tsuid(_) | KeyError::NotHex { .. } => {
            wrong_tsuid(&format!("{within}tsuid"), &error.to_string())
        }
        KeyError::NoStart | KeyError::Start(_) | KeyError::AmbiguousMillis { .. } => {
            let rule = time_rule(start_ms, &error);
            invalid_field_because(&format!("{within}start_ms"), ErrorReason::InvalidTimestamp, rule)
        }
    })
}

fn time_rule(time_ms: i64, error: &KeyError) -> String {
    match error {
        KeyError::NoStart => format!("is {time_ms}, expected more than 0"),
        error => error.to_string(),
    }
}

fn wrong_tsuid(field: &str, rule: &str) -> Status {
    invalid_field_because(field, ErrorReason::InvalidUidWidth, rule)
}

/// The annotations of a series, or global ones.
pub(super) fn source(layout: &RowKeyLayout, field: &str, tsuid: &[u8]) -> Result<Source, Status> {
    if tsuid.is_empty() {
        return Ok(Source::Global);
    }
    let series = Tsuid::from_bytes(tsuid, &layout.widths);
    series
        .map(Source::Series)
        .map_err(|error| wrong_tsuid(field, &error.to_string()))
}

/// The change that a message and its mask request.
pub(super) fn edit(
    within: &str,
    annotation: AnnotationMessage,
    mask: Option<&FieldMask>,
) -> Result<Edit, Status> {
    let is_set = |field: &str| match field {
        "end_ms" => annotation.end_ms != 0,
        "description" => !annotation.description.is_empty(),
        "notes" => !annotation.notes.is_empty(),
        _ => !annotation.custom.is_empty(),
    };
    let fields = update_mask::fields(mask, FIELDS, is_set)?;
    let mut edit = Edit::default();
    for field in fields {
        match field {
            "end_ms" => edit.end_time = Some(end_time(within, &annotation)?),
            "description" => edit.description = Some(Some(annotation.description.clone())),
            "notes" => edit.notes = Some(Some(annotation.notes.clone())),
            _ => {
                let custom: BTreeMap<_, _> = annotation
                    .custom
                    .iter()
                    .map(|(key, value)| (key.clone(), Some(value.clone())))
                    .collect();
                edit.custom = Some((!custom.is_empty()).then_some(custom));
            }
        }
    }
    Ok(edit)
}

fn end_time(within: &str, annotation: &AnnotationMessage) -> Result<i64, Status> {
    let (start_ms, end_ms) = (annotation.start_ms, annotation.end_ms);
    let field = format!("{within}end_ms");
    if end_ms != 0 && end_ms < start_ms {
        let rule = format!("is {end_ms}, before start_ms {start_ms}");
        return Err(invalid_field(&field, rule));
    }
    document_time(end_ms).map_err(|error| {
        invalid_field_because(&field, ErrorReason::InvalidTimestamp, time_rule(end_ms, &error))
    })
}

/// The message of an annotation, without its etag. A TSUID that is no hexadecimal text becomes an empty one; null
/// becomes an empty text.
pub(in crate::grpc) fn annotation(annotation: &Annotation) -> AnnotationMessage {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let custom = annotation.custom.iter().flatten();
    AnnotationMessage {
        tsuid: hex::decode(&annotation.tsuid).unwrap_or_default().into(),
        start_ms: annotation.start_ms(),
        end_ms: millis(annotation.end_time),
        description: text(&annotation.description),
        notes: text(&annotation.notes),
        custom: custom.map(|(key, value)| (key.clone(), text(value))).collect(),
        etag: String::new(),
    }
}
