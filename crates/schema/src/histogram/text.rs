//! The text form of a histogram in telnet lines: `LOWER,UPPER=COUNT:...:u=UNDERFLOW:o=OVERFLOW`.
//!
//! Source: OpenTSDB 2.4, `HistogramDataPointRpc.parseTelnet`, `HistogramPojo.toSimpleHistogram`.

use thiserror::Error;

use super::{Bounds, Bucket, Histogram, HistogramError};
use crate::value::parse_java_float;

/// Why a text is not a histogram. Has OpenTSDB's messages.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BucketTextError {
    /// Not a key and a count.
    #[error("Improperly formatted bucket: {text}")]
    Bucket {
        /// The text between two colons.
        text: String,
    },
    /// Not two bounds.
    #[error("Improperly formatted bounds: {text}")]
    Bounds {
        /// The text between two colons.
        text: String,
    },
    /// A bound or a count that is not a number.
    #[error("For input string: \"{text}\"")]
    NotANumber {
        /// The rejected text.
        text: String,
    },
    /// A histogram that cannot be stored.
    #[error(transparent)]
    Histogram(#[from] HistogramError),
}

/// Parses the text form. Buckets come in any order, and all parts may be missing except that there is one.
///
/// # Errors
///
/// [`BucketTextError`].
pub fn parse_histogram(text: &str) -> Result<Histogram, BucketTextError> {
    let (mut underflow, mut overflow) = (0, 0);
    let mut buckets = Vec::new();
    for bucket in text.split(':') {
        let mut parts = bucket.split('=');
        let (Some(key), Some(count), None) = (parts.next(), parts.next(), parts.next()) else {
            let text = bucket.to_owned();
            return Err(BucketTextError::Bucket { text });
        };
        match key {
            "u" | "U" => underflow = parse_count(count)?,
            "o" | "O" => overflow = parse_count(count)?,
            _ => {
                // OpenTSDB parses the bounds in lower case.
                let key = key.to_lowercase();
                let bounds = parse_bounds(&key)?.ok_or_else(|| BucketTextError::Bounds {
                    text: bucket.to_owned(),
                })?;
                let count = parse_count(count)?;
                buckets.push(Bucket { bounds, count });
            }
        }
    }
    Ok(Histogram::new(buckets, underflow, overflow)?)
}

/// Parses the bounds of a bucket, `LOWER,UPPER`; `None` if they are not two.
///
/// # Errors
///
/// [`BucketTextError::NotANumber`].
pub fn parse_bounds(text: &str) -> Result<Option<Bounds>, BucketTextError> {
    let mut bounds = text.split(',');
    let (Some(lower), Some(upper), None) = (bounds.next(), bounds.next(), bounds.next()) else {
        return Ok(None);
    };
    let bound = |text: &str| {
        parse_java_float(text).ok_or_else(|| BucketTextError::NotANumber {
            text: text.to_owned(),
        })
    };
    let (lower, upper) = (bound(lower)?, bound(upper)?);
    Ok(Some(Bounds { lower, upper }))
}

/// Parses a count as Java's `Long.parseLong` does.
///
/// # Errors
///
/// [`BucketTextError::NotANumber`].
pub fn parse_count(text: &str) -> Result<i64, BucketTextError> {
    text.parse().map_err(|_| BucketTextError::NotANumber {
        text: text.to_owned(),
    })
}
