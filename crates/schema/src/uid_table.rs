//! Cells of table `tsdb-uid`.
//!
//! ```text
//!   row        family  qualifier                  value
//!   00         id      metrics | tagk | tagv      8 bytes: the highest number assigned so far
//!   name       id      metrics | tagk | tagv      UID            forward mapping
//!   UID        name    metrics | tagk | tagv      name           reverse mapping
//!   UID        name    metric_meta | tagk_meta | tagv_meta       JSON
//! ```
//!
//! A row can hold several kinds. Note `metric_meta`, singular, beside `metrics`, plural.
//!
//! Source: OpenTSDB 2.4, `UniqueId`, `UIDMeta`.

use thiserror::Error;

use crate::hex_text::excerpt;
use crate::uid::UidKind;

/// The family of forward mappings (name to UID) and of the counters.
pub const ID_FAMILY: &[u8] = b"id";

/// The family of reverse mappings (UID to name) and of UID metadata.
pub const NAME_FAMILY: &[u8] = b"name";

/// The row of the counters, one cell per kind in family `id`.
pub const COUNTER_ROW: &[u8] = &[0];

/// The qualifier of a kind's metadata in family `name`.
pub const fn meta_qualifier(kind: UidKind) -> &'static [u8] {
    match kind {
        UidKind::Metric => b"metric_meta",
        UidKind::Tagk => b"tagk_meta",
        UidKind::Tagv => b"tagv_meta",
    }
}

/// A counter cell's value: the highest number assigned so far.
pub const fn encode_counter(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Decodes a counter cell. The number is signed, as in HBase's increment; a negative one means that the cell
/// was tampered with.
///
/// # Errors
///
/// [`CounterError`] unless the value has 8 bytes. HBase does not increment such a cell, so the kind gets no
/// new UIDs until an operator repairs it.
pub fn decode_counter(value: &[u8]) -> Result<i64, CounterError> {
    let bytes = <[u8; 8]>::try_from(value).map_err(|_| CounterError {
        length: value.len(),
        value: excerpt(value),
    })?;
    Ok(i64::from_be_bytes(bytes))
}

/// A counter cell without a value of 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("UID counter `{value}` has {length} bytes, expected 8")]
pub struct CounterError {
    /// Its length in bytes.
    pub length: usize,
    /// Its start, as hex.
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_8_bytes_big_endian() {
        assert_eq!(encode_counter(3), [0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(decode_counter(&encode_counter(0x0001_0203)), Ok(0x0001_0203));
        assert_eq!(decode_counter(&[0xff; 8]), Ok(-1));
    }

    #[test]
    fn rejects_counters_of_wrong_length() {
        let error = decode_counter(&[0, 0, 3]).unwrap_err();
        assert_eq!(error.to_string(), "UID counter `000003` has 3 bytes, expected 8");
        assert!(decode_counter(&[]).is_err());
        assert!(decode_counter(&[0; 9]).is_err());
    }

    #[test]
    fn metadata_qualifier_of_metrics_is_singular() {
        assert_eq!(meta_qualifier(UidKind::Metric), b"metric_meta");
        assert_eq!(UidKind::Metric.qualifier(), b"metrics");
        assert_eq!(meta_qualifier(UidKind::Tagk), b"tagk_meta");
        assert_eq!(meta_qualifier(UidKind::Tagv), b"tagv_meta");
    }
}
