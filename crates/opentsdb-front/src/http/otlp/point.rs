//! The fields of a data point.
//!
//! ```text
//!   field                  number   histogram   exponential histogram   summary
//!   attributes             7        9           1                       7
//!   time_unix_nano         3        3           3                       3
//!   flags                  8        10          10                      8
//!   as_double, as_int      4, 6
//!   count, sum                      4, 5        4, 5                    4, 5
//!   min, max                        11, 12      12, 13
//!   counts, bounds                  6, 7
//!   scale, zero_count                           6, 7
//!   positive, negative                          8, 9 (1 offset, 2 counts)
//!   zero_threshold                              14
//!   quantiles                                                           6 (1 quantile, 2 value)
//!   exemplars              5        8           11
//! ```

use std::borrow::Cow;

use super::decode::Kind;
use crate::http::mapped::MOST_TAGS;
use crate::http::mapped::buckets::{Count, MOST_BUCKETS, READ_BUCKETS};
use crate::http::protobuf::{FieldValue, Malformed, fixed64s, next, sint32, text, varints};

/// The bit of `flags` that says that the point has no value: its series has ended.
const NO_RECORDED_VALUE: u64 = 1;

/// A data point.
#[derive(Debug, Default)]
pub(super) struct DataPoint<'a> {
    pub(super) attributes: Vec<Attribute<'a>>,
    pub(super) time_unix_nano: u64,
    pub(super) has_no_value: bool,
    /// Of a gauge or a sum.
    pub(super) number: Option<Number>,
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    /// The counts of buckets, and the bounds between them.
    pub(super) counts: Vec<u64>,
    pub(super) bounds: Vec<f64>,
    pub(super) scale: i32,
    pub(super) zero_count: u64,
    pub(super) zero_threshold: f64,
    pub(super) positive: Buckets,
    pub(super) negative: Buckets,
    /// Quantile and value.
    pub(super) quantiles: Vec<(f64, f64)>,
    pub(super) exemplars: usize,
    /// Whether it has more buckets or attributes than are read.
    pub(super) is_too_large: bool,
}

/// An attribute: key, and value as text.
pub(super) type Attribute<'a> = (&'a str, Cow<'a, str>);

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Double(f64),
}

/// Buckets of an exponential histogram: the counts from an index on.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    offset: i32,
    counts: Vec<u64>,
}

/// The numbers of fields that all kinds have, each under its own.
struct FieldNumbers {
    attributes: u64,
    flags: u64,
    exemplars: Option<u64>,
}

impl FieldNumbers {
    const fn for_kind(kind: Kind) -> Self {
        let (attributes, flags, exemplars) = match kind {
            Kind::Gauge | Kind::Sum => (7, 8, Some(5)),
            Kind::Histogram => (9, 10, Some(8)),
            Kind::ExponentialHistogram => (1, 10, Some(11)),
            Kind::Summary => (7, 8, None),
        };
        Self {
            attributes,
            flags,
            exemplars,
        }
    }
}

impl<'a> DataPoint<'a> {
    /// Decodes a point of a metric of a kind.
    ///
    /// # Errors
    ///
    /// If the bytes are no message.
    pub(super) fn decode(kind: Kind, mut message: &'a [u8]) -> Result<Self, Malformed> {
        let mut point = Self::default();
        let numbers = FieldNumbers::for_kind(kind);
        while let Some((number, value)) = next(&mut message)? {
            match value {
                FieldValue::Bytes(attribute) if number == numbers.attributes => point.attribute(attribute)?,
                FieldValue::Varint(flags) if number == numbers.flags => {
                    point.has_no_value = flags & NO_RECORDED_VALUE != 0;
                }
                FieldValue::Bytes(_) if Some(number) == numbers.exemplars => point.exemplars += 1,
                FieldValue::Fixed64(nanos) if number == 3 => point.time_unix_nano = nanos,
                _ if matches!(kind, Kind::Gauge | Kind::Sum) => point.number_field(number, value),
                FieldValue::Fixed64(count) if number == 4 => point.count = count,
                FieldValue::Fixed64(bits) if number == 5 => point.sum = Some(f64::from_bits(bits)),
                _ => match kind {
                    Kind::Histogram => point.histogram_field(number, value)?,
                    Kind::ExponentialHistogram => point.exponential_field(number, value)?,
                    _ => point.summary_field(number, value)?,
                },
            }
        }
        let buckets = [&point.counts, &point.positive.counts, &point.negative.counts];
        let buckets = buckets.iter().map(|counts| counts.len()).sum::<usize>() + point.quantiles.len();
        point.is_too_large =
            buckets.max(point.bounds.len()) > MOST_BUCKETS || point.attributes.len() > MOST_TAGS;
        Ok(point)
    }

    const fn number_field(&mut self, number: u64, value: FieldValue<'a>) {
        match (number, value) {
            (4, FieldValue::Fixed64(bits)) => self.number = Some(Number::Double(f64::from_bits(bits))),
            (6, FieldValue::Fixed64(bits)) => self.number = Some(Number::Int(bits.cast_signed())),
            _ => {}
        }
    }

    fn histogram_field(&mut self, number: u64, value: FieldValue<'a>) -> Result<(), Malformed> {
        match (number, value) {
            (6, value) => fixed64s(value, READ_BUCKETS, &mut self.counts, |bits| bits)?,
            (7, value) => fixed64s(value, READ_BUCKETS, &mut self.bounds, f64::from_bits)?,
            (11, FieldValue::Fixed64(bits)) => self.min = Some(f64::from_bits(bits)),
            (12, FieldValue::Fixed64(bits)) => self.max = Some(f64::from_bits(bits)),
            _ => {}
        }
        Ok(())
    }

    fn exponential_field(&mut self, number: u64, value: FieldValue<'a>) -> Result<(), Malformed> {
        match (number, value) {
            (6, FieldValue::Varint(varint)) => self.scale = sint32(varint),
            (7, FieldValue::Fixed64(count)) => self.zero_count = count,
            (8, FieldValue::Bytes(buckets)) => self.positive = Buckets::decode(buckets)?,
            (9, FieldValue::Bytes(buckets)) => self.negative = Buckets::decode(buckets)?,
            (12, FieldValue::Fixed64(bits)) => self.min = Some(f64::from_bits(bits)),
            (13, FieldValue::Fixed64(bits)) => self.max = Some(f64::from_bits(bits)),
            (14, FieldValue::Fixed64(bits)) => self.zero_threshold = f64::from_bits(bits),
            _ => {}
        }
        Ok(())
    }

    fn summary_field(&mut self, number: u64, value: FieldValue<'a>) -> Result<(), Malformed> {
        if let (6, FieldValue::Bytes(mut quantile)) = (number, value)
            && self.quantiles.len() <= MOST_BUCKETS
        {
            let (mut of, mut at) = (0.0, 0.0);
            while let Some((number, value)) = next(&mut quantile)? {
                match (number, value) {
                    (1, FieldValue::Fixed64(bits)) => of = f64::from_bits(bits),
                    (2, FieldValue::Fixed64(bits)) => at = f64::from_bits(bits),
                    _ => {}
                }
            }
            self.quantiles.push((of, at));
        }
        Ok(())
    }

    fn attribute(&mut self, message: &'a [u8]) -> Result<(), Malformed> {
        if self.attributes.len() <= MOST_TAGS
            && let Some(attribute) = attribute(message)?
        {
            self.attributes.push(attribute);
        }
        Ok(())
    }
}

impl Buckets {
    /// Indices of upper bounds, and counts. OpenTelemetry's index is of the lower bound.
    pub(super) fn by_index(&self) -> impl DoubleEndedIterator<Item = (i64, Count)> + ExactSizeIterator {
        let first = i64::from(self.offset) + 1;
        let counts = self.counts.iter().enumerate();
        counts.map(move |(place, count)| (first + place as i64, Count::Int(*count)))
    }

    fn decode(mut message: &[u8]) -> Result<Self, Malformed> {
        let mut buckets = Self::default();
        while let Some((number, value)) = next(&mut message)? {
            match (number, value) {
                (1, FieldValue::Varint(varint)) => buckets.offset = sint32(varint),
                (2, value) => varints(value, READ_BUCKETS, &mut buckets.counts, |count| count)?,
                _ => {}
            }
        }
        Ok(buckets)
    }
}

/// The attributes of a resource with the wanted keys.
///
/// # Errors
///
/// If the bytes are no message.
pub(super) fn resource_attributes(
    mut resource: &[u8],
    wanted: &[String],
) -> Result<Vec<(String, String)>, Malformed> {
    let mut attributes = Vec::new();
    while let Some((number, value)) = next(&mut resource)? {
        if let (1, FieldValue::Bytes(message)) = (number, value)
            && let Some((key, value)) = attribute(message)?
            && wanted.iter().any(|wanted| wanted == key)
            && attributes.len() < MOST_TAGS
        {
            attributes.push((key.to_owned(), value.into_owned()));
        }
    }
    Ok(attributes)
}

/// A `KeyValue`; `None`: its value is a list, a map, or bytes, which no tag has.
fn attribute(mut message: &[u8]) -> Result<Option<Attribute<'_>>, Malformed> {
    let (mut key, mut of_key) = ("", None);
    while let Some((number, value)) = next(&mut message)? {
        match (number, value) {
            (1, FieldValue::Bytes(bytes)) => key = text(bytes)?,
            (2, FieldValue::Bytes(bytes)) => of_key = any_value(bytes)?,
            _ => {}
        }
    }
    Ok(of_key.map(|value| (key, value)))
}

/// An `AnyValue` as text; `None` if it is a list, a map, or bytes.
fn any_value(mut message: &[u8]) -> Result<Option<Cow<'_, str>>, Malformed> {
    let mut any = None;
    while let Some((number, value)) = next(&mut message)? {
        any = match (number, value) {
            (1, FieldValue::Bytes(bytes)) => Some(text(bytes)?.into()),
            (2, FieldValue::Varint(bit)) => Some(if bit == 0 { "false" } else { "true" }.into()),
            (3, FieldValue::Varint(int)) => Some(int.cast_signed().to_string().into()),
            (4, FieldValue::Fixed64(bits)) => Some(f64::from_bits(bits).to_string().into()),
            (5..=7, _) => None,
            _ => any,
        };
    }
    Ok(any)
}
