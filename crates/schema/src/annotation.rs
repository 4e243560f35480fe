//! Annotations: notes on a series, or on everything, as cells of table `tsdb`.
//!
//! ```text
//!   row        of a series: the row of its hour, beside its points
//!              global:      zeros for salt and metric | base time
//!   family     t
//!   qualifier  01 | seconds since the base time, 2 bytes, or milliseconds, 4 bytes
//!   value      {"tsuid":"000001000001000001","startTime":1369141261,"endTime":0,"description":"","notes":"","custom":null}
//! ```
//!
//! A start time that is a multiple of 1000 is divided by 1000 before its qualifier is built, so that a whole second
//! and the same instant in milliseconds are one cell. OpenTSDB also divides *seconds* that are a multiple of 1000:
//! the undivided time selects the row, its thousandth is the offset. Writers must repeat this, or OpenTSDB does not
//! find the cell. The stored start time has the unit in which it was sent.
//!
//! The value is compact JSON, the fields in this order, `custom` null or sorted by UTF-16 code units, `tsuid` as it
//! was sent and absent in global annotations. OpenTSDB edits an annotation by check-and-put against its own
//! serialisation of what it has read, so [`Annotation::to_stored`] must produce its bytes. [`Annotation::decode`]
//! accepts all JSON that OpenTSDB accepts.
//!
//! Source: OpenTSDB 2.4, `Annotation.getRowKey`, `getQualifier`, `getStorageJSON`.

mod read;

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use smallvec::SmallVec;
use thiserror::Error;

use crate::row_key::{RowKeyLayout, write_row_key};
use crate::stored_json;
use crate::timestamp::{HOUR_SECONDS, Timestamp};

/// The first byte of a qualifier.
const PREFIX: u8 = 0x01;

/// An annotation, as a cell holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotation {
    /// The series as hexadecimal text, in the case in which it was sent; empty: global.
    pub tsuid: String,
    /// The begin: seconds, or milliseconds if any of the upper 32 bits is set.
    pub start_time: i64,
    /// The end, as `start_time`; 0: an instant, or not yet over.
    pub end_time: i64,
    /// One line of text. `None` is JSON's null, which OpenTSDB stores if it receives it.
    pub description: Option<String>,
    /// Longer text; as `description`.
    pub notes: Option<String>,
    /// Anything else; values can be null.
    pub custom: Option<Custom>,
}

/// Further fields of an annotation.
pub type Custom = BTreeMap<String, Option<String>>;

/// A cell value that is no annotation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("annotation is damaged: {reason}")]
pub struct AnnotationError {
    /// The reason why the JSON is rejected.
    pub reason: String,
}

/// The qualifier of an annotation.
pub type AnnotationQualifier = SmallVec<[u8; 5]>;

/// The row with an annotation of a series, given by the bytes of its TSUID, or with a global one.
pub fn row_key(layout: &RowKeyLayout, tsuid: Option<&[u8]>, start: Timestamp) -> Vec<u8> {
    let mut key = Vec::new();
    match tsuid {
        Some(tsuid) => write_row_key(layout, tsuid, start.base_time(), &mut key),
        None => {
            key.resize(layout.salt.width() + layout.widths.metric.bytes(), 0);
            key.extend_from_slice(&start.base_time().seconds().to_be_bytes());
        }
    }
    key
}

/// The qualifier of the annotation that begins at an instant.
pub fn qualifier(start: Timestamp) -> AnnotationQualifier {
    let sent = number(start);
    // Of milliseconds and, as OpenTSDB does, of seconds.
    let folded = if sent % 1000 == 0 { sent / 1000 } else { sent };
    let mut qualifier = SmallVec::from_slice(&[PREFIX]);
    match u32::try_from(folded) {
        Ok(seconds) => {
            let [_, _, offset @ ..] = (seconds % HOUR_SECONDS).to_be_bytes();
            qualifier.extend_from_slice(&offset);
        }
        // Not a multiple of 1000, so it is what was sent.
        Err(_) => qualifier.extend_from_slice(&start.offset_ms().to_be_bytes()),
    }
    qualifier
}

/// Whether a cell of family `t` is an annotation: all of any writer have one of two lengths.
pub fn is_annotation(qualifier: &[u8]) -> bool {
    matches!(qualifier, [PREFIX, _, _] | [PREFIX, _, _, _, _])
}

/// Milliseconds since the base time that a qualifier states; `None` for cells that are not annotations.
pub fn offset_ms(qualifier: &[u8]) -> Option<i64> {
    match *qualifier {
        [PREFIX, a, b] => Some(i64::from(u16::from_be_bytes([a, b])) * 1000),
        [PREFIX, a, b, c, d] => Some(i64::from(u32::from_be_bytes([a, b, c, d]))),
        _ => None,
    }
}

/// A time as a number in its own unit.
fn number(time: Timestamp) -> i64 {
    if time.is_millis() {
        time.as_millis()
    } else {
        time.as_millis() / 1000
    }
}

/// A stored time, seconds or milliseconds, in milliseconds.
pub const fn millis(time: i64) -> i64 {
    if time >> 32 == 0 { time * 1000 } else { time }
}

impl Annotation {
    /// Decodes the value of a cell, or a document that a client sent. Unknown fields are ignored, scalars are
    /// converted as OpenTSDB's parser converts them, and of a repeated field the last one counts.
    ///
    /// # Errors
    ///
    /// [`AnnotationError`] unless it is a JSON object, and each field can be converted.
    pub fn decode(json: &[u8]) -> Result<Annotation, AnnotationError> {
        read::annotation(json)
    }

    /// The value of its cell.
    pub fn to_stored(&self) -> Vec<u8> {
        stored_json::to_bytes(&Stored(self))
    }

    /// Whether it belongs to no series.
    pub fn is_global(&self) -> bool {
        self.tsuid.is_empty()
    }

    /// The begin, in milliseconds since the epoch.
    pub const fn start_ms(&self) -> i64 {
        millis(self.start_time)
    }

    /// The memory that it takes, in bytes; an estimate.
    pub fn held_bytes(&self) -> u64 {
        const ENTRY: usize = 3 * size_of::<String>();
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let custom = self.custom.iter().flatten();
        let custom: usize = custom.map(|(key, value)| ENTRY + key.len() + text(value)).sum();
        let texts = self.tsuid.len() + text(&self.description) + text(&self.notes);
        (size_of::<Self>() + texts + custom) as u64
    }
}

/// An annotation as its cell has it.
struct Stored<'a>(&'a Annotation);

impl Serialize for Stored<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let annotation = self.0;
        let mut fields = serializer.serialize_map(None)?;
        if !annotation.is_global() {
            fields.serialize_entry("tsuid", &annotation.tsuid)?;
        }
        fields.serialize_entry("startTime", &annotation.start_time)?;
        fields.serialize_entry("endTime", &annotation.end_time)?;
        fields.serialize_entry("description", &annotation.description)?;
        fields.serialize_entry("notes", &annotation.notes)?;
        fields.serialize_entry("custom", &annotation.custom.as_ref().map(Sorted))?;
        fields.end()
    }
}

/// Custom fields in Java's order of strings.
struct Sorted<'a>(&'a Custom);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries: Vec<_> = self.0.iter().collect();
        entries.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        serializer.collect_map(entries)
    }
}

#[cfg(test)]
mod tests;
