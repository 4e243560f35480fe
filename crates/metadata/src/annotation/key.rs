//! The key of an annotation: its series, if any, and its start time.

use oxtsdb_schema::annotation::{self, AnnotationQualifier};
use oxtsdb_schema::{RowKeyLayout, Timestamp, Tsuid};
use smallvec::{SmallVec, smallvec};

use super::error::KeyError;
use crate::meta::changes::Subject;

/// The key of an annotation.
///
/// A start time that is a whole second can be sent in seconds or in milliseconds. Both are one cell, except at
/// multiples of 1000 seconds; there a key of an instant has two cells, and the first is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnotationKey {
    /// As it was sent.
    tsuid: String,
    series: Option<Tsuid>,
    start: Timestamp,
    row: Vec<u8>,
    qualifiers: SmallVec<[AnnotationQualifier; 2]>,
}

impl AnnotationKey {
    /// A key with series and time as OpenTSDB's clients send them: hexadecimal text, empty for a global annotation; and
    /// seconds or milliseconds.
    ///
    /// OpenTSDB pads a text of odd length with a zero, and stores TSUIDs of any length. This one rejects those that no
    /// series can have: their rows would be neither of a series nor global.
    ///
    /// # Errors
    ///
    /// [`KeyError`].
    pub fn as_sent(layout: &RowKeyLayout, tsuid: &str, start: i64) -> Result<AnnotationKey, KeyError> {
        if start < 1 {
            return Err(KeyError::NoStart);
        }
        let series = (!tsuid.is_empty())
            .then(|| series_of(layout, tsuid))
            .transpose()?;
        let start = Timestamp::from_opentsdb(start).map_err(KeyError::Start)?;
        Ok(AnnotationKey {
            tsuid: tsuid.to_owned(),
            start,
            row: annotation::row_key(layout, series.as_ref().map(Tsuid::as_bytes), start),
            qualifiers: smallvec![annotation::qualifier(start)],
            series,
        })
    }

    /// A key with the bytes of a TSUID, empty for a global annotation, and an instant.
    ///
    /// # Errors
    ///
    /// [`KeyError`].
    pub fn at_instant(layout: &RowKeyLayout, tsuid: &[u8], start_ms: i64) -> Result<AnnotationKey, KeyError> {
        let series = (!tsuid.is_empty()).then(|| Tsuid::from_bytes(tsuid, &layout.widths));
        let series = series.transpose().map_err(KeyError::Tsuid)?;
        let start = timestamp_of(start_ms)?;
        let mut qualifiers = smallvec![annotation::qualifier(start)];
        if !start.is_millis()
            && let Ok(in_millis) = Timestamp::from_opentsdb(start_ms)
            && in_millis.is_millis()
            && !qualifiers.contains(&annotation::qualifier(in_millis))
        {
            qualifiers.push(annotation::qualifier(in_millis));
        }
        Ok(AnnotationKey {
            tsuid: series.as_ref().map(ToString::to_string).unwrap_or_default(),
            start,
            row: annotation::row_key(layout, series.as_ref().map(Tsuid::as_bytes), start),
            qualifiers,
            series,
        })
    }

    /// The text of the TSUID; empty: global.
    pub fn tsuid(&self) -> &str {
        &self.tsuid
    }

    /// The series; `None`: global.
    pub(super) fn series(&self) -> Option<&Tsuid> {
        self.series.as_ref()
    }

    /// The start as a document has it.
    pub fn start_time(&self) -> i64 {
        number(self.start)
    }

    /// The annotation's subject in text search.
    pub(super) fn subject(&self) -> Subject {
        Subject::Annotation(self.series.clone(), self.start.as_millis())
    }

    /// The address of the cell that is written.
    pub fn cell(&self) -> (&[u8], &[u8]) {
        (&self.row, &self.qualifiers[0])
    }

    pub(super) fn row(&self) -> &[u8] {
        &self.row
    }

    /// The possible cells; a new annotation is the first.
    pub(super) fn qualifiers(&self) -> &[AnnotationQualifier] {
        &self.qualifiers
    }
}

/// An instant as OpenTSDB stores it: seconds if it is a whole second, else milliseconds.
///
/// # Errors
///
/// [`KeyError`] for one that no row can hold.
fn timestamp_of(time_ms: i64) -> Result<Timestamp, KeyError> {
    if time_ms < 1 {
        return Err(KeyError::NoStart);
    }
    match u32::try_from(time_ms / 1000) {
        Ok(seconds) if time_ms % 1000 == 0 => return Ok(Timestamp::from_seconds(seconds)),
        _ => {}
    }
    let time = Timestamp::from_opentsdb(time_ms).map_err(KeyError::Start)?;
    if time.is_millis() {
        Ok(time)
    } else {
        Err(KeyError::AmbiguousMillis { start_ms: time_ms })
    }
}

/// An instant as a number of a document: seconds if it is a whole second, else milliseconds. 0 stays 0.
///
/// # Errors
///
/// [`KeyError`] for one that no row can hold.
pub fn document_time(time_ms: i64) -> Result<i64, KeyError> {
    match time_ms {
        0 => Ok(0),
        time_ms => timestamp_of(time_ms).map(number),
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

/// Parses a TSUID as OpenTSDB does.
///
/// # Errors
///
/// [`KeyError`].
pub fn series_of(layout: &RowKeyLayout, text: &str) -> Result<Tsuid, KeyError> {
    let padded = if text.len().is_multiple_of(2) {
        text.to_owned()
    } else {
        format!("0{text}")
    };
    let bytes = hex::decode(&padded).map_err(|_| KeyError::NotHex { text: padded })?;
    Tsuid::from_bytes(&bytes, &layout.widths).map_err(KeyError::Tsuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERIES: &str = "000001000001000001";

    #[test]
    fn a_whole_second_is_found_in_both_units() {
        let layout = RowKeyLayout::default();
        let tsuid = hex::decode(SERIES).unwrap();
        let at = |ms| AnnotationKey::at_instant(&layout, &tsuid, ms).unwrap();
        let sent = |start| AnnotationKey::as_sent(&layout, SERIES, start).unwrap();
        assert_eq!(at(1_369_141_261_000), sent(1_369_141_261));
        assert_eq!(at(1_369_141_261_500), sent(1_369_141_261_500));
        let both = at(1_369_141_000_000);
        let expected = [sent(1_369_141_000).qualifiers, sent(1_369_141_000_000).qualifiers].concat();
        assert_eq!(both.qualifiers(), expected);
        assert_eq!(both.start_time(), 1_369_141_000);
        assert_eq!(both.row(), sent(1_369_141_000_000).row());
    }

    #[test]
    fn rejects_keys_that_no_row_has() {
        let layout = RowKeyLayout::default();
        let error = |tsuid, start| {
            AnnotationKey::as_sent(&layout, tsuid, start)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(error("", 0), "The start timestamp has not been set");
        assert_eq!(error("", -1), "The start timestamp has not been set");
        assert_eq!(error("zz", 1), "contains illegal character for hexBinary: zz");
        assert_eq!(error("z", 1), "contains illegal character for hexBinary: 0z");
        assert_eq!(
            error("000001", 1),
            "TSUID `000001` has 3 bytes, expected 3 and one or more times 6 bytes"
        );
        assert!(error("", 99_999_999_999_999).contains("is after 4294967295999"));
        let at = |ms| AnnotationKey::at_instant(&layout, &[], ms);
        assert_eq!(at(0), Err(KeyError::NoStart));
        assert_eq!(at(1_500), Err(KeyError::AmbiguousMillis { start_ms: 1_500 }));
        assert_eq!(at(1_000).unwrap().start_time(), 1);
        assert!(at(4_294_967_296_000).is_err());
        assert_eq!(document_time(0), Ok(0));
        assert_eq!(document_time(1_369_141_261_500), Ok(1_369_141_261_500));
    }
}
