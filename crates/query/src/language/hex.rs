//! Parses UIDs and TSUIDs in hex.

use super::error::{LanguageError, METRIC_DIGITS};

/// Parses TSUIDs of one metric, in hex of either case. Any hex may follow the metric: a TSUID with bytes that are no
/// tags matches no series.
///
/// # Errors
///
/// [`LanguageError`] for a TSUID that has no metric, or another metric than the first, or is not hex.
pub fn parse_tsuids(texts: &[impl AsRef<str>]) -> Result<Vec<Vec<u8>>, LanguageError> {
    let mut first: Option<&str> = None;
    for text in texts.iter().map(AsRef::as_ref) {
        let is_long_enough = text.chars().count() >= METRIC_DIGITS;
        let metric = text
            .get(..METRIC_DIGITS)
            .filter(|_| is_long_enough)
            .ok_or_else(|| LanguageError::TsuidWithoutMetric {
                digits: text.chars().count(),
            })?;
        if *first.get_or_insert(metric) != metric {
            return Err(LanguageError::TsuidMetrics {
                first: first.unwrap_or_default().to_owned(),
                other: metric.to_owned(),
            });
        }
    }
    let mut tsuids = Vec::with_capacity(texts.len());
    for text in texts.iter().map(AsRef::as_ref) {
        let (metric, tags) = text.split_at(METRIC_DIGITS.min(text.len()));
        let tsuid = [parse_uids(metric)?, parse_uids(tags)?].concat();
        if tags.len().is_multiple_of(2) {
            tsuids.push(tsuid);
        }
    }
    Ok(tsuids)
}

/// Parses UIDs in hex of either case; an odd number of digits implies a leading zero.
///
/// # Errors
///
/// [`LanguageError::NoUid`] and [`LanguageError::Hex`].
pub fn parse_uids(text: &str) -> Result<Vec<u8>, LanguageError> {
    if text.is_empty() {
        return Err(LanguageError::NoUid);
    }
    let padded = if text.len().is_multiple_of(2) {
        text.to_owned()
    } else {
        format!("0{text}")
    };
    hex::decode(&padded).map_err(|_| LanguageError::Hex { text: padded })
}
