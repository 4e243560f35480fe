//! Figures of parts that count by themselves, read when metrics are.

use std::fmt;

use oxtsdb_resources::durations::BOUNDS_SECONDS;
use oxtsdb_resources::figure::FigureKind;
use oxtsdb_resources::{DurationCounts, Figure};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Takes the figures of a part.
#[derive(Debug)]
pub struct Figures<'a> {
    encoder: DescriptorEncoder<'a>,
    failed: fmt::Result,
}

impl Figures<'_> {
    /// The figures of a table.
    pub fn table<T>(&mut self, table: &[Figure<T>], values: &T) {
        for Figure {
            metric,
            help,
            kind,
            value,
            ..
        } in table
        {
            match (kind, value(values)) {
                (FigureKind::Counter, Some(value)) => self.counter(metric, help, value),
                (FigureKind::Gauge, Some(value)) => self.gauge(metric, help, value),
                (_, None) => {}
            }
        }
    }

    /// As [`Figures::table`], one of each for each value of a label.
    pub fn table_by<T>(&mut self, table: &[Figure<T>], label: &str, values: &[(&str, &T)]) {
        for Figure {
            metric,
            help,
            kind,
            value,
            ..
        } in table
        {
            let values = values.iter();
            let values = values.filter_map(|(label, values)| Some((*label, value(values)?)));
            match kind {
                FigureKind::Counter => self.counter_by(metric, help, label, values),
                FigureKind::Gauge => self.gauge_by(metric, help, label, values),
            }
        }
    }

    /// A number that only grows; `_total` is added to its name.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.add(name, help, MetricType::Counter, |mut encoder| {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        });
    }

    /// As [`Figures::counter`], of seconds or other numbers with a fraction.
    pub fn counter_f64(&mut self, name: &str, help: &str, value: f64) {
        self.add(name, help, MetricType::Counter, |mut encoder| {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        });
    }

    /// As [`Figures::counter`], one for each value of a label.
    pub fn counter_by<'l>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'l str, u64)>,
    ) {
        self.add(name, help, MetricType::Counter, |mut encoder| {
            for (of, value) in values {
                let labels = [(label, of)];
                let mut encoder = encoder.encode_family(&labels)?;
                encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            }
            Ok(())
        });
    }

    /// A number that grows and shrinks.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.add(name, help, MetricType::Gauge, |mut encoder| {
            encoder.encode_gauge(&value)
        });
    }

    /// As [`Figures::gauge`], one for each value of a label.
    pub fn gauge_by<'l>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'l str, u64)>,
    ) {
        self.add(name, help, MetricType::Gauge, |mut encoder| {
            for (of, value) in values {
                let labels = [(label, of)];
                encoder.encode_family(&labels)?.encode_gauge(&value)?;
            }
            Ok(())
        });
    }

    /// As [`Figures::gauge_by`], of numbers with a fraction.
    pub fn gauge_f64_by<'l>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'l str, f64)>,
    ) {
        self.add(name, help, MetricType::Gauge, |mut encoder| {
            for (of, value) in values {
                let labels = [(label, of)];
                encoder.encode_family(&labels)?.encode_gauge(&value)?;
            }
            Ok(())
        });
    }

    /// How long something took, one histogram for each value of a label.
    pub fn durations_by<'l>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'l str, DurationCounts)>,
    ) {
        self.add(name, help, MetricType::Histogram, |mut encoder| {
            for (of, durations) in values {
                let labels = [(label, of)];
                let bounds = BOUNDS_SECONDS.into_iter().chain([f64::INFINITY]);
                let buckets: Vec<(f64, u64)> = bounds.zip(durations.counts).collect();
                let (sum, count) = (durations.sum.as_secs_f64(), durations.counts.iter().sum());
                let mut encoder = encoder.encode_family(&labels)?;
                encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            }
            Ok(())
        });
    }

    fn add(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        encode: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
    ) {
        if self.failed.is_err() {
            return;
        }
        let described = self.encoder.encode_descriptor(name, help, None, kind);
        self.failed = described.and_then(encode);
    }
}

/// Reports figures whenever metrics are read.
pub(super) struct FigureCollector<F>(F);

impl<F> FigureCollector<F> {
    pub(super) const fn new(report: F) -> Self {
        Self(report)
    }
}

impl<F> fmt::Debug for FigureCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FigureCollector")
    }
}

impl<F: Fn(&mut Figures<'_>) + Send + Sync + 'static> Collector for FigureCollector<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut figures = Figures {
            encoder,
            failed: Ok(()),
        };
        (self.0)(&mut figures);
        figures.failed
    }
}
