//! The metrics of one scrape, by name and labels.

use std::collections::{BTreeSet, HashMap};

use super::sample::{Labels, Sample};
use super::text::{self, TextError};

/// All samples of a scrape, by the names of samples: counters have `_total`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics(HashMap<String, Vec<Sample>>);

impl Metrics {
    /// Parses OpenMetrics text.
    ///
    /// # Errors
    ///
    /// If it is not OpenMetrics text.
    pub(crate) fn parse(text: &str) -> Result<Self, TextError> {
        text::parse(text).map(Self)
    }

    /// The samples of a name, in the order of the text.
    pub(crate) fn samples(&self, name: &str) -> &[Sample] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// The value of the sample with exactly these labels.
    pub(crate) fn value(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let mut samples = self.samples(name).iter();
        let sample = samples.find(|sample| sample.labels.len() == labels.len() && sample.has(labels));
        sample.map(|sample| sample.value)
    }

    /// The sum of the samples that have these labels and any others; none if there is no such sample.
    pub(crate) fn sum(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let samples = self.samples(name).iter().filter(|sample| sample.has(labels));
        samples
            .map(|sample| sample.value)
            .reduce(|sum, value| sum + value)
    }

    /// By how much counters with these labels have grown since an earlier scrape. One that is lower, or was not there,
    /// began at zero. None if there is none.
    pub(crate) fn increase(&self, earlier: &Self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let before = earlier.samples(name);
        let samples = self.samples(name).iter().filter(|sample| sample.has(labels));
        let increases = samples.map(|sample| {
            let same = before.iter().find(|other| other.labels == sample.labels);
            match same {
                Some(same) if same.value <= sample.value => sample.value - same.value,
                _ => sample.value,
            }
        });
        increases.reduce(|sum, value| sum + value)
    }

    /// The values of a label, sorted.
    pub(crate) fn label_values(&self, name: &str, label: &str) -> BTreeSet<&str> {
        self.samples(name)
            .iter()
            .filter_map(|sample| sample.label(label))
            .collect()
    }

    /// The histograms with these labels and any others, added up; `name` is without suffix.
    pub(crate) fn histogram(&self, name: &str, labels: Labels<'_>) -> Histogram {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.samples(&format!("{name}_bucket")) {
            let bound = sample.label("le").and_then(|bound| bound.parse().ok());
            let Some(bound) = bound.filter(|_| sample.has(labels)) else {
                continue;
            };
            match buckets.binary_search_by(|(other, _)| f64::total_cmp(other, &bound)) {
                Ok(at) => buckets[at].1 += sample.value,
                Err(at) => buckets.insert(at, (bound, sample.value)),
            }
        }
        Histogram {
            buckets,
            sum: self.sum(&format!("{name}_sum"), labels).unwrap_or_default(),
            count: self.sum(&format!("{name}_count"), labels).unwrap_or_default(),
        }
    }
}

/// Durations, or other values, by the bounds of buckets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Histogram {
    /// Upper bounds in ascending order, the last one infinite, each with the count of all values up to it.
    buckets: Vec<(f64, f64)>,
    pub(crate) sum: f64,
    pub(crate) count: f64,
}

impl Histogram {
    /// The additions since an earlier scrape; all counts, if they began anew.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let before = |bound: f64| {
            let mut buckets = earlier.buckets.iter();
            buckets
                .find(|(other, _)| other.total_cmp(&bound).is_eq())
                .map_or(0.0, |(_, count)| *count)
        };
        let began_anew =
            self.count < earlier.count || self.buckets.iter().any(|(bound, count)| *count < before(*bound));
        if began_anew {
            return self.clone();
        }
        Self {
            buckets: self
                .buckets
                .iter()
                .map(|(bound, count)| (*bound, count - before(*bound)))
                .collect(),
            sum: self.sum - earlier.sum,
            count: self.count - earlier.count,
        }
    }

    /// Adds another histogram. For a bound that only one of them has, which servers of another version may have, the other
    /// one's count is the count of its next lower bound.
    pub(crate) fn add(&mut self, other: &Self) {
        let bounds: Vec<f64> = self
            .buckets
            .iter()
            .chain(&other.buckets)
            .map(|(bound, _)| *bound)
            .collect();
        let at = |histogram: &Self, bound: f64| {
            let below = histogram.buckets.iter().rev().find(|(other, _)| *other <= bound);
            below.map_or(0.0, |(_, count)| *count)
        };
        let mut added: Vec<(f64, f64)> = bounds
            .into_iter()
            .map(|bound| (bound, at(self, bound) + at(other, bound)))
            .collect();
        added.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        added.dedup_by_key(|(bound, _)| *bound);
        self.buckets = added;
        self.sum += other.sum;
        self.count += other.count;
    }

    /// An estimate of a quantile (0 to 1): linear between the bounds of its bucket, as Prometheus'
    /// `histogram_quantile`. Above the last finite bound it is that bound. None without values.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let total = self
            .buckets
            .last()
            .map(|(_, count)| *count)
            .filter(|count| *count > 0.0)?;
        let rank = q.clamp(0.0, 1.0) * total;
        let at = self
            .buckets
            .iter()
            .position(|(_, count)| *count >= rank && *count > 0.0)?;
        let (lower, below) = match at {
            0 => (0.0, 0.0),
            _ => self.buckets[at - 1],
        };
        let (upper, up_to) = self.buckets[at];
        if upper.is_infinite() {
            return Some(lower);
        }
        Some(lower + (upper - lower) * (rank - below) / (up_to - below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# TYPE r counter
r_total{m="a",code="OK"} 3
r_total{m="a",code="NO"} 1
r_total{m="b",code="OK"} 10
# TYPE t histogram
t_bucket{le="0.1",m="a"} 50
t_bucket{le="1.0",m="a"} 90
t_bucket{le="+Inf",m="a"} 100
t_sum{m="a"} 20
t_count{m="a"} 100
t_bucket{le="0.1",m="b"} 50
t_bucket{le="1.0",m="b"} 50
t_bucket{le="+Inf",m="b"} 50
t_sum{m="b"} 1
t_count{m="b"} 50
# EOF
"#;

    fn metrics() -> Metrics {
        Metrics::parse(TEXT).unwrap()
    }

    fn close(value: Option<f64>, expected: f64) {
        assert!(
            (value.unwrap() - expected).abs() < 1e-9,
            "{value:?}, expected {expected}"
        );
    }

    #[test]
    fn selects_and_sums_by_labels() {
        let metrics = metrics();
        assert_eq!(metrics.value("r_total", &[("code", "OK"), ("m", "a")]), Some(3.0));
        assert_eq!(metrics.value("r_total", &[("m", "b")]), None, "not all labels");
        assert_eq!(metrics.sum("r_total", &[("m", "a")]), Some(4.0));
        assert_eq!(metrics.sum("r_total", &[]), Some(14.0));
        assert_eq!(metrics.sum("r_total", &[("m", "c")]), None);
        assert_eq!(metrics.sum("x", &[]), None);
        assert_eq!(
            metrics
                .label_values("r_total", "m")
                .into_iter()
                .collect::<Vec<_>>(),
            ["a", "b"]
        );
    }

    #[test]
    fn increases_are_never_negative() {
        let text = |a: u32, b: u32| {
            format!("# TYPE r counter\nr_total{{m=\"a\"}} {a}\nr_total{{m=\"b\"}} {b}\n# EOF\n")
        };
        let [earlier, later, restarted] =
            [(10, 10), (12, 13), (3, 20)].map(|(a, b)| Metrics::parse(&text(a, b)).unwrap());
        assert_eq!(later.increase(&earlier, "r_total", &[]), Some(5.0));
        assert_eq!(later.increase(&earlier, "r_total", &[("m", "a")]), Some(2.0));
        assert_eq!(later.increase(&earlier, "r_total", &[("m", "c")]), None);
        // `a` began anew at 0.
        assert_eq!(restarted.increase(&later, "r_total", &[]), Some(3.0 + 7.0));
        assert_eq!(later.increase(&Metrics::default(), "r_total", &[]), Some(25.0));
    }

    #[test]
    fn quantiles_are_linear_within_a_bucket() {
        let a = metrics().histogram("t", &[("m", "a")]);
        close(a.quantile(0.25), 0.05);
        close(a.quantile(0.5), 0.1);
        close(a.quantile(0.7), 0.1 + 0.9 * 20.0 / 40.0);
        close(a.quantile(0.9), 1.0);
        // Above the last bound.
        close(a.quantile(0.99), 1.0);
        close(metrics().histogram("t", &[]).quantile(0.5), 0.1 * 75.0 / 100.0);
        close(metrics().histogram("t", &[("m", "b")]).quantile(1.0), 0.1);
        assert_eq!(Histogram::default().quantile(0.5), None);
        assert_eq!(metrics().histogram("t", &[("m", "c")]).quantile(0.5), None);
    }

    #[test]
    fn differences_survive_a_restart() {
        let a = metrics().histogram("t", &[("m", "a")]);
        let all = metrics().histogram("t", &[]);
        let b = all.since(&a);
        assert_eq!(b, metrics().histogram("t", &[("m", "b")]));
        // Counts that went down began at zero.
        assert_eq!(a.since(&all), a);
        assert_eq!(a.since(&Histogram::default()), a);
        assert_eq!(a.since(&a).quantile(0.5), None);
        let mut sum = Histogram::default();
        sum.add(&a);
        sum.add(&b);
        assert_eq!(sum, all);
    }

    #[test]
    fn histograms_with_other_bounds_are_added_by_bound() {
        let histogram = |buckets: &[(f64, f64)]| Histogram {
            buckets: buckets.to_vec(),
            sum: 1.0,
            count: buckets.last().map_or(0.0, |(_, count)| *count),
        };
        let mut sum = Histogram::default();
        sum.add(&histogram(&[(1.0, 2.0), (f64::INFINITY, 4.0)]));
        sum.add(&histogram(&[(0.5, 1.0), (1.0, 3.0), (f64::INFINITY, 3.0)]));
        assert_eq!(sum.buckets, [(0.5, 1.0), (1.0, 5.0), (f64::INFINITY, 7.0)]);
        assert_eq!((sum.sum, sum.count), (2.0, 7.0));
    }
}
