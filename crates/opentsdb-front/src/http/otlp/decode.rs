//! Data points of an `ExportMetricsServiceRequest`, one after the other.
//!
//! ```text
//!   request     1 ResourceMetrics*     1 Resource (1 attributes: KeyValue*), 2 ScopeMetrics*
//!   scope       2 Metric*              1 name, one of 5 Gauge, 7 Sum, 9 Histogram, 10 ExponentialHistogram, 11 Summary
//!   each of 5 … 11                     1 data points*, 2 temporality (Sum, Histogram, ExponentialHistogram)
//! ```
//!
//! Between two points, the places of what is left of the request, the resource, the scope and the metric are kept, the attributes of
//! the resource that are wanted, and the metric's name: each is read once, however many points follow.
//!
//! Source: opentelemetry-proto 1.x, `metrics/v1/metrics.proto`, `collector/metrics/v1/metrics_service.proto`.

use std::ops::Range;

use super::point::resource_attributes;
use crate::http::protobuf::{FieldValue, Malformed, next, text};

/// A position in the data points of a body.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The keys of the attributes of resources that are kept.
    wanted: Vec<String>,
    /// Places in the body: the messages that follow in the request, in its current resource, in the current scope, and in the
    /// current metric.
    resources: Range<usize>,
    scopes: Range<usize>,
    metrics: Range<usize>,
    points: Range<usize>,
    /// Of the current resource and the current metric.
    attributes: Vec<(String, String)>,
    name: String,
    kind: Kind,
    has_temporality: bool,
    /// Resources, metrics and points that were read.
    resource_count: usize,
    metric_count: usize,
    count: usize,
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Gauge,
    Sum,
    Histogram,
    ExponentialHistogram,
    Summary,
}

impl Decoder {
    pub(super) fn new(body: &[u8], wanted: Vec<String>) -> Self {
        Self {
            wanted,
            resources: 0..body.len(),
            ..Self::default()
        }
    }

    /// The message of the next point; `None` at the end.
    ///
    /// # Errors
    ///
    /// If a part of the body is no message.
    pub(super) fn next<'a>(&mut self, body: &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
        loop {
            if let Some(point) = take(body, &mut self.points, 1)? {
                self.count += 1;
                return Ok(body.get(point));
            }
            if let Some(metric) = take(body, &mut self.metrics, 2)? {
                self.begin(body, metric)?;
            } else if let Some(scope) = take(body, &mut self.scopes, 2)? {
                self.metrics = scope;
            } else if let Some(resource) = take(body, &mut self.resources, 1)? {
                let message = last(body, resource.clone(), 1)?;
                self.attributes = resource_attributes(body.get(message).unwrap_or_default(), &self.wanted)?;
                self.resource_count += 1;
                self.scopes = resource;
            } else {
                return Ok(None);
            }
        }
    }

    /// The number of the last point, from 1.
    pub(super) const fn number(&self) -> usize {
        self.count
    }

    /// The kind of its metric.
    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// The name of its metric.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether its metric says what sums and counts begin at; gauges and summaries need not.
    pub(super) const fn has_temporality(&self) -> bool {
        self.has_temporality
    }

    /// The attributes of its resource that are wanted.
    pub(super) fn attributes(&self) -> &[(String, String)] {
        &self.attributes
    }

    /// The numbers of its resource and of its metric.
    pub(super) const fn place(&self) -> (usize, usize) {
        (self.resource_count, self.metric_count)
    }

    /// Begins a metric: its points follow, wherever its name is.
    fn begin(&mut self, body: &[u8], metric: Range<usize>) -> Result<(), Malformed> {
        let name = last(body, metric.clone(), 1)?;
        text(body.get(name).unwrap_or_default())?.clone_into(&mut self.name);
        self.metric_count += 1;
        let mut rest = metric;
        while let Some((number, value, place)) = field(body, &mut rest)? {
            let kind = match (number, value) {
                (5, FieldValue::Bytes(_)) => Kind::Gauge,
                (7, FieldValue::Bytes(_)) => Kind::Sum,
                (9, FieldValue::Bytes(_)) => Kind::Histogram,
                (10, FieldValue::Bytes(_)) => Kind::ExponentialHistogram,
                (11, FieldValue::Bytes(_)) => Kind::Summary,
                _ => continue,
            };
            (self.kind, self.points) = (kind, place);
        }
        self.has_temporality = matches!(self.kind, Kind::Gauge | Kind::Summary) || {
            let mut rest = self.points.clone();
            let mut has_temporality = false;
            while let Some((number, value, _)) = field(body, &mut rest)? {
                // 1 is delta, 2 is cumulative.
                has_temporality |= number == 2 && matches!(value, FieldValue::Varint(1 | 2));
            }
            has_temporality
        };
        Ok(())
    }
}

/// A field: its number, its value, and the place of its bytes.
type Field<'a> = (u64, FieldValue<'a>, Range<usize>);

/// Takes the next field at a place of the body.
fn field<'a>(body: &'a [u8], rest: &mut Range<usize>) -> Result<Option<Field<'a>>, Malformed> {
    let mut bytes = body.get(rest.clone()).unwrap_or_default();
    let Some((number, value)) = next(&mut bytes)? else {
        return Ok(None);
    };
    rest.start = rest.end - bytes.len();
    let length = match value {
        FieldValue::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    Ok(Some((number, value, rest.start - length..rest.start)))
}

/// Takes fields up to the next message with a number; returns its place.
fn take(body: &[u8], rest: &mut Range<usize>, number: u64) -> Result<Option<Range<usize>>, Malformed> {
    while let Some((at, value, place)) = field(body, rest)? {
        if at == number && matches!(value, FieldValue::Bytes(_)) {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// The place of the last message or text with a number; empty if there is none.
fn last(body: &[u8], mut rest: Range<usize>, number: u64) -> Result<Range<usize>, Malformed> {
    let mut last = 0..0;
    while let Some(place) = take(body, &mut rest, number)? {
        last = place;
    }
    Ok(last)
}
