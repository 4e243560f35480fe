//! How histograms are stored: as series with a bound each, or as OpenTSDB's histograms.

use http::StatusCode;
use oxtsdb_schema::histogram::{Bounds, Bucket as StoredBucket};
use oxtsdb_schema::name::excerpt;
use oxtsdb_schema::{Histogram, HistogramCodecs};

use super::buckets::{Bucket, Count};
use crate::front::histogram_text::DISABLED;
use crate::http::error::HttpError;

/// The form of the buckets of histograms.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) enum HistogramForm {
    /// Series with the tag `le`.
    Series,
    /// One of OpenTSDB's histograms; queries return percentiles of them.
    OpenTsdb(HistogramCodecs),
}

impl HistogramForm {
    /// Of `histograms=` in a URL.
    ///
    /// # Errors
    ///
    /// 400 for an unknown form; 503, as `/api/histogram`, if the server has no codecs of histograms.
    pub(in crate::http) fn parse(
        text: Option<&str>,
        codecs: Option<HistogramCodecs>,
    ) -> Result<Self, HttpError> {
        match (text, codecs) {
            (None | Some("le"), _) => Ok(Self::Series),
            (Some("opentsdb"), Some(codecs)) => Ok(Self::OpenTsdb(codecs)),
            (Some("opentsdb"), None) => Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, DISABLED)),
            (Some(other), _) => Err(HttpError::bad_request(format!(
                "histograms `{}` is not known, expected le or opentsdb",
                excerpt(other)
            ))),
        }
    }
}

/// The value of the cell of a histogram. Bounds are rounded to the 4 bytes that OpenTSDB has; buckets that then have the same bounds
/// are one. The first bucket begins at 0 if its values may be positive, otherwise its values are the underflow.
///
/// # Errors
///
/// A text, if a count is no integer.
pub(super) fn cell(codecs: HistogramCodecs, buckets: &[Bucket]) -> Result<Vec<u8>, String> {
    let mut stored: Vec<StoredBucket> = Vec::with_capacity(buckets.len());
    let (mut underflow, mut overflow) = (0, 0);
    let mut last = None;
    for Bucket { lower, upper, count } in buckets {
        let Count::Int(count) = *count else {
            let count = count.as_f64();
            return Err(format!(
                "the count {count} of a bucket is floating point, OpenTSDB's histograms have integers"
            ));
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let lower = lower.or(last).or((*upper >= 0.0).then_some(0.0));
        last = Some(*upper);
        let Some(lower) = lower else {
            underflow += count;
            continue;
        };
        if !upper.is_finite() {
            overflow += count;
            continue;
        }
        let bounds = Bounds {
            lower: nearest(lower),
            upper: nearest(*upper),
        };
        match stored.last_mut() {
            Some(bucket) if bucket.bounds == bounds => bucket.count = bucket.count.saturating_add(count),
            _ => stored.push(StoredBucket { bounds, count }),
        }
    }
    let histogram = Histogram::new(stored, underflow, overflow).map_err(|error| error.to_string())?;
    codecs.encode_cell(&histogram).map_err(|error| error.to_string())
}

/// The nearest finite number of 4 bytes.
#[expect(clippy::cast_possible_truncation, reason = "documented")]
const fn nearest(bound: f64) -> f32 {
    (bound as f32).clamp(f32::MIN, f32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(lower: Option<f64>, upper: f64, count: u64) -> Bucket {
        let count = Count::Int(count);
        Bucket { lower, upper, count }
    }

    /// Buckets, underflow and overflow.
    fn stored(buckets: &[Bucket]) -> String {
        let codecs = HistogramCodecs::with_simple(42);
        let histogram = codecs.decode_cell(&cell(codecs, buckets).unwrap()).unwrap();
        let shown = histogram.buckets().iter().map(|bucket| {
            let Bounds { lower, upper } = bucket.bounds;
            format!("{lower}..{upper}={}", bucket.count)
        });
        let shown: Vec<_> = shown.collect();
        format!(
            "{} u={} o={}",
            shown.join(" "),
            histogram.underflow,
            histogram.overflow
        )
    }

    #[test]
    fn buckets_have_both_bounds() {
        let explicit = [
            bucket(None, 0.5, 1),
            bucket(None, 2.0, 2),
            bucket(None, f64::INFINITY, 3),
        ];
        assert_eq!(stored(&explicit), "0..0.5=1 0.5..2=2 u=0 o=3");
        let negative = [
            bucket(None, -1.0, 1),
            bucket(None, 0.0, 2),
            bucket(None, f64::INFINITY, 3),
        ];
        assert_eq!(stored(&negative), "-1..0=2 u=1 o=3");
        let exponential = [
            bucket(None, 0.0, 1),
            bucket(Some(1.0), 2.0, 2),
            bucket(Some(4.0), 8.0, 3),
        ];
        assert_eq!(stored(&exponential), "0..0=1 1..2=2 4..8=3 u=0 o=0");
    }

    #[test]
    fn bounds_have_four_bytes() {
        let close = [
            bucket(Some(1.0), 1.0 + 1e-12, 1),
            bucket(Some(1.0 + 1e-12), 1.0 + 2e-12, 2),
            bucket(Some(1e300), 1e301, 3),
        ];
        let most = f32::MAX;
        assert_eq!(stored(&close), format!("1..1=3 {most}..{most}=3 u=0 o=0"));
    }

    #[test]
    fn counts_are_integers() {
        let float = Bucket {
            count: Count::Float(1.5),
            ..bucket(None, 1.0, 0)
        };
        let error = cell(HistogramCodecs::with_simple(42), &[float]).unwrap_err();
        assert!(
            error.contains("the count 1.5 of a bucket is floating point"),
            "{error}"
        );
    }

    #[test]
    fn forms_are_named() {
        let codecs = HistogramCodecs::with_simple(42);
        assert!(matches!(
            HistogramForm::parse(None, None),
            Ok(HistogramForm::Series)
        ));
        assert!(matches!(
            HistogramForm::parse(Some("le"), None),
            Ok(HistogramForm::Series)
        ));
        assert!(matches!(
            HistogramForm::parse(Some("opentsdb"), Some(codecs)),
            Ok(HistogramForm::OpenTsdb(_))
        ));
        let error = HistogramForm::parse(Some("opentsdb"), None).unwrap_err();
        assert_eq!((error.status.as_u16(), error.message.as_str()), (503, DISABLED));
        let error = HistogramForm::parse(Some("cells"), Some(codecs)).unwrap_err();
        assert_eq!(
            error.message,
            "histograms `cells` is not known, expected le or opentsdb"
        );
    }
}
