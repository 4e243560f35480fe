//! Draws the result of a query.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use jiff::tz::TimeZone;
use oxtsdb_plot::{Bucket, Histogram, Mark, Plot, PointSource, Points, TimeRange};
use oxtsdb_query::{Group, HistogramPart, QueryError, WholeResult};
use oxtsdb_schema::Annotation;
use oxtsdb_schema::histogram::Bounds;

use super::settings::GraphSettings;

/// Most characters of an annotation in a picture.
const MARK_CHARS: usize = 40;

/// A result with the settings of its picture.
pub(super) struct Drawing {
    pub(super) settings: GraphSettings,
    /// First and last instant, milliseconds since the epoch.
    pub(super) range_ms: (i64, i64),
    pub(super) zone: TimeZone,
    pub(super) result: WholeResult,
}

impl Drawing {
    /// The picture as PNG, or as SVG.
    ///
    /// # Errors
    ///
    /// The query has no memory for it.
    pub(super) fn draw(self, is_svg: bool) -> Result<Bytes, QueryError> {
        let Self {
            settings,
            range_ms: (start_ms, end_ms),
            zone,
            result,
        } = self;
        let budget = result.held.budget();
        let _held = budget.hold(Plot::memory_bytes(settings.size, result.groups.len()))?;
        let heat_maps = HeatMaps::from_groups(&result.groups);
        let _held_of_histograms = budget.hold(heat_maps.byte_len())?;
        let values: Vec<_> = result
            .groups
            .iter()
            .filter(|group| bucket_of(group).is_none())
            .map(GroupValues)
            .collect();
        let mut plot = Plot::new(settings.size, TimeRange { start_ms, end_ms });
        for values in &values {
            let label = label(values.0, &values.0.metric);
            plot.series
                .push(settings.series(values.0.query, label, Points::Source(values)));
        }
        for (query, label, histograms) in heat_maps.0 {
            plot.series
                .push(settings.series(query, label, Points::Histograms(histograms.into())));
        }
        plot.marks = marks(&result);
        let _held_of_texts = budget.hold(text_bytes(&plot))?;
        plot.zone = zone;
        settings.apply(&mut plot);
        let picture = if is_svg {
            plot.svg().into_bytes()
        } else {
            plot.png()
        };
        Ok(picture.into())
    }
}

/// Memory of names and marks, in bytes.
fn text_bytes(plot: &Plot<'_>) -> u64 {
    let series = plot
        .series
        .iter()
        .map(|series| size_of_val(series) + series.label.len());
    let marks = plot.marks.iter().map(|mark| size_of_val(mark) + mark.text.len());
    series.chain(marks).sum::<usize>() as u64
}

/// The values of a group.
struct GroupValues<'a>(&'a Group);

impl PointSource for GroupValues<'_> {
    fn visit(&self, visit: &mut dyn FnMut(i64, f64) -> ControlFlow<()>) {
        for (time_ms, value) in self.0.points.iter() {
            if visit(time_ms, value.as_f64()).is_break() {
                return;
            }
        }
    }
}

/// The bucket of a group of histogram counts.
const fn bucket_of(group: &Group) -> Option<Bounds> {
    match group.part {
        Some(HistogramPart::Bucket(bounds)) => Some(bounds),
        _ => None,
    }
}

/// The name of a group as in the legend of OpenTSDB: `sys.cpu.user{host=web01}`.
fn label(group: &Group, metric: &str) -> String {
    let tags: Vec<String> = group
        .tags
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!("{metric}{{{}}}", tags.join(", "))
}

/// Histograms of groups of buckets: sub-query, name, and the histograms by time.
struct HeatMaps(Vec<(usize, String, Vec<Histogram>)>);

impl HeatMaps {
    fn from_groups(groups: &[Group]) -> Self {
        let mut maps: BTreeMap<(usize, String), BTreeMap<i64, Vec<Bucket>>> = BTreeMap::new();
        for (group, bounds) in groups.iter().filter_map(|group| Some((group, bucket_of(group)?))) {
            let suffix = HistogramPart::Bucket(bounds).to_string();
            let metric = group
                .metric
                .strip_suffix(suffix.as_str())
                .unwrap_or(&group.metric);
            let histograms = maps.entry((group.query, label(group, metric))).or_default();
            for (timestamp_ms, count) in group.points.iter() {
                histograms.entry(timestamp_ms).or_default().push(Bucket {
                    lower: bounds.lower.into(),
                    upper: bounds.upper.into(),
                    count: count.as_f64(),
                });
            }
        }
        let histograms = |buckets: BTreeMap<i64, Vec<Bucket>>| {
            let all = buckets.into_iter();
            all.map(|(timestamp_ms, buckets)| Histogram {
                timestamp_ms,
                buckets,
            })
            .collect()
        };
        Self(
            maps.into_iter()
                .map(|((query, name), buckets)| (query, name, histograms(buckets)))
                .collect(),
        )
    }

    /// Memory of the histograms, in bytes.
    fn byte_len(&self) -> u64 {
        let histograms = self.0.iter().flat_map(|(_, _, histograms)| histograms);
        let bytes = histograms
            .map(|histogram| size_of::<Histogram>() + histogram.buckets.capacity() * size_of::<Bucket>());
        bytes.sum::<usize>() as u64
    }
}

/// The annotations of the series and the global ones, in order of time.
fn marks(result: &WholeResult) -> Vec<Mark> {
    let of_series = result
        .groups
        .iter()
        .filter_map(|group| group.annotations.as_deref())
        .flatten();
    let global = result.global_annotations.iter().flatten();
    let mut marks: Vec<Mark> = of_series
        .chain(global)
        .map(|annotation| mark(annotation))
        .collect();
    marks.sort_by(|one, other| (one.timestamp_ms, &one.text).cmp(&(other.timestamp_ms, &other.text)));
    // An annotation of a series that two groups have.
    marks.dedup();
    marks
}

fn mark(annotation: &Annotation) -> Mark {
    let text = annotation.description.as_deref().unwrap_or_default();
    Mark {
        timestamp_ms: annotation.start_ms(),
        text: text.chars().take(MARK_CHARS).collect(),
    }
}
