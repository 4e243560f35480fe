//! Series that differ from each other by the end of their metric, and by one tag: `h_bucket{le=…}`, `h_count`, `h_sum`.

use std::ops::Range;

use oxtsdb_schema::Value;
use oxtsdb_schema::value::ValueError;

use super::buckets::{Bucket, Count, bound_text, cumulative};
use super::histogram_form::{HistogramForm, cell};
use super::{Chunk, MappedSeries, NameMap, Tag};

/// The tag with the upper bound of a bucket.
const BOUND: &str = "le";

/// The end of a metric.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) enum Suffix {
    None,
    Bucket,
    Count,
    Sum,
    Min,
    Max,
}

impl Suffix {
    const fn text(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bucket => "_bucket",
            Self::Count => "_count",
            Self::Sum => "_sum",
            Self::Min => "_min",
            Self::Max => "_max",
        }
    }
}

/// A metric with each suffix: each text is in a chunk once, however many points have it.
#[derive(Debug, Default)]
pub(in crate::http) struct SuffixedMetric([Option<MappedSeries>; 6]);

/// Adds points of the series of one metric and one list of tags, at one instant.
pub(in crate::http) struct SuffixedSeries<'a> {
    pub(in crate::http) chunk: &'a mut Chunk,
    pub(in crate::http) metric: &'a mut SuffixedMetric,
    pub(in crate::http) map: &'a NameMap,
    /// The metric without a suffix.
    pub(in crate::http) name: &'a str,
    pub(in crate::http) tags: &'a [Tag],
    /// The same in the chunk.
    pub(in crate::http) tag_list: Range<u32>,
    pub(in crate::http) timestamp_ms: i64,
    /// The data point or the series that they were sent in, from 1.
    pub(in crate::http) number: usize,
}

impl SuffixedSeries<'_> {
    /// Adds a point of the metric with a suffix.
    pub(in crate::http) fn add(&mut self, suffix: Suffix, value: Result<Value, ValueError>) {
        self.add_with(suffix, self.tag_list.clone(), value);
    }

    fn add_with(&mut self, suffix: Suffix, tags: Range<u32>, value: Result<Value, ValueError>) {
        let series = self.series(suffix, tags);
        self.chunk.point(&series, self.timestamp_ms, value);
    }

    fn series(&mut self, suffix: Suffix, tags: Range<u32>) -> MappedSeries {
        let series = &mut self.metric.0[suffix as usize];
        let series = series.get_or_insert_with(|| {
            let name = [self.name, suffix.text()];
            self.chunk.series(self.map, &name, 0..0, 0)
        });
        series.with(tags, self.number)
    }

    /// Adds a point with one tag more.
    pub(in crate::http) fn add_tagged(
        &mut self,
        suffix: Suffix,
        key: &str,
        tag_value: &str,
        value: Result<Value, ValueError>,
    ) {
        let tag = self.chunk.tag(self.map, key, tag_value);
        let tags = self.chunk.tag_list(self.map, self.tags.iter().chain(&tag));
        self.add_with(suffix, tags, value);
    }

    /// Adds the buckets of a histogram; `total` is the count of all values, unless it is the sum of the buckets' counts.
    pub(in crate::http) fn add_buckets(
        &mut self,
        form: HistogramForm,
        buckets: &[Bucket],
        total: Option<Count>,
    ) {
        let codecs = match form {
            HistogramForm::Series => {
                let (bounds, sum) = cumulative(buckets.iter().copied());
                for (bound, count) in bounds.into_iter().chain([(f64::INFINITY, total.unwrap_or(sum))]) {
                    self.add_tagged(Suffix::Bucket, BOUND, &bound_text(bound), value_of(count));
                }
                return;
            }
            HistogramForm::OpenTsdb(codecs) => codecs,
        };
        let series = self.series(Suffix::None, self.tag_list.clone());
        self.chunk.cell(&series, self.timestamp_ms, cell(codecs, buckets));
    }

    /// Adds the count of all values of a histogram or a summary.
    pub(in crate::http) fn add_count(&mut self, count: Count) {
        self.add(Suffix::Count, value_of(count));
    }
}

/// A count as an integer, or as floating point if it is none or too large.
fn value_of(count: Count) -> Result<Value, ValueError> {
    match count {
        Count::Int(int) => {
            i64::try_from(int).map_or_else(|_| Value::double(count.as_f64()), |int| Ok(Value::Int(int)))
        }
        Count::Float(count) => Value::double(count),
    }
}
