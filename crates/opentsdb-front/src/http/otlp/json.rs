//! Export requests in JSON, rewritten as the same messages of protobuf.
//!
//! ```text
//!   {"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"load","gauge":{"dataPoints":[{"asInt":"3"}]}}]}]}]}
//! ```
//!
//! Names of fields are in lower camel case. Numbers are numbers or texts, values of enumerations are numbers or names; unknown
//! fields and `null` are left out. A body is read once, without a tree of it in memory.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>, <https://protobuf.dev/programming-guides/json/>.

use std::fmt;

use oxtsdb_schema::name::excerpt;
use prost::bytes::BufMut as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};

/// Bytes of protobuf that a byte of JSON becomes at most: `0,` in a list of numbers becomes a field of 9 bytes.
pub(super) const MOST_GROWTH: usize = 5;

/// Bytes of the length of a message, which is written before the message is: a varint of five bytes, whatever its value.
const LENGTH_BYTES: usize = 5;

/// The fields of a message.
type Message = [Field];

#[derive(Debug)]
struct Field {
    name: &'static str,
    number: u32,
    form: Form,
    is_repeated: bool,
}

/// The type of a field, as protobuf encodes it.
#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    Bool,
    Double,
    Fixed64,
    Sfixed64,
    /// `int64`, `uint64`, `uint32`.
    Varint,
    Sint32,
    /// An enumeration with these names of values, from 0.
    Enumeration(&'static [&'static str]),
    Message(&'static Message),
    /// Any value; only its presence is kept.
    Opaque,
}

const fn one(name: &'static str, number: u32, form: Form) -> Field {
    Field {
        name,
        number,
        form,
        is_repeated: false,
    }
}

const fn many(name: &'static str, number: u32, form: Form) -> Field {
    Field {
        is_repeated: true,
        ..one(name, number, form)
    }
}

static REQUEST: [Field; 1] = [many("resourceMetrics", 1, Form::Message(&RESOURCE_METRICS))];

static RESOURCE_METRICS: [Field; 2] = [
    one("resource", 1, Form::Message(&RESOURCE)),
    many("scopeMetrics", 2, Form::Message(&SCOPE_METRICS)),
];

static RESOURCE: [Field; 1] = [many("attributes", 1, Form::Message(&KEY_VALUE))];

static KEY_VALUE: [Field; 2] = [
    one("key", 1, Form::Text),
    one("value", 2, Form::Message(&ANY_VALUE)),
];

static ANY_VALUE: [Field; 7] = [
    one("stringValue", 1, Form::Text),
    one("boolValue", 2, Form::Bool),
    one("intValue", 3, Form::Varint),
    one("doubleValue", 4, Form::Double),
    one("arrayValue", 5, Form::Opaque),
    one("kvlistValue", 6, Form::Opaque),
    one("bytesValue", 7, Form::Opaque),
];

static SCOPE_METRICS: [Field; 1] = [many("metrics", 2, Form::Message(&METRIC))];

static METRIC: [Field; 6] = [
    one("name", 1, Form::Text),
    one("gauge", 5, Form::Message(&GAUGE)),
    one("sum", 7, Form::Message(&SUM)),
    one("histogram", 9, Form::Message(&HISTOGRAM)),
    one("exponentialHistogram", 10, Form::Message(&EXPONENTIAL_HISTOGRAM)),
    one("summary", 11, Form::Message(&SUMMARY)),
];

static GAUGE: [Field; 1] = [many("dataPoints", 1, Form::Message(&NUMBER_POINT))];

static SUM: [Field; 2] = [
    many("dataPoints", 1, Form::Message(&NUMBER_POINT)),
    one("aggregationTemporality", 2, TEMPORALITY),
];

static HISTOGRAM: [Field; 2] = [
    many("dataPoints", 1, Form::Message(&HISTOGRAM_POINT)),
    one("aggregationTemporality", 2, TEMPORALITY),
];

static EXPONENTIAL_HISTOGRAM: [Field; 2] = [
    many("dataPoints", 1, Form::Message(&EXPONENTIAL_POINT)),
    one("aggregationTemporality", 2, TEMPORALITY),
];

static SUMMARY: [Field; 1] = [many("dataPoints", 1, Form::Message(&SUMMARY_POINT))];

const TEMPORALITY: Form = Form::Enumeration(&[
    "AGGREGATION_TEMPORALITY_UNSPECIFIED",
    "AGGREGATION_TEMPORALITY_DELTA",
    "AGGREGATION_TEMPORALITY_CUMULATIVE",
]);

static NUMBER_POINT: [Field; 6] = [
    many("attributes", 7, Form::Message(&KEY_VALUE)),
    one("timeUnixNano", 3, Form::Fixed64),
    one("asDouble", 4, Form::Double),
    one("asInt", 6, Form::Sfixed64),
    many("exemplars", 5, Form::Opaque),
    one("flags", 8, Form::Varint),
];

static HISTOGRAM_POINT: [Field; 10] = [
    many("attributes", 9, Form::Message(&KEY_VALUE)),
    one("timeUnixNano", 3, Form::Fixed64),
    one("count", 4, Form::Fixed64),
    one("sum", 5, Form::Double),
    many("bucketCounts", 6, Form::Fixed64),
    many("explicitBounds", 7, Form::Double),
    many("exemplars", 8, Form::Opaque),
    one("flags", 10, Form::Varint),
    one("min", 11, Form::Double),
    one("max", 12, Form::Double),
];

static EXPONENTIAL_POINT: [Field; 13] = [
    many("attributes", 1, Form::Message(&KEY_VALUE)),
    one("timeUnixNano", 3, Form::Fixed64),
    one("count", 4, Form::Fixed64),
    one("sum", 5, Form::Double),
    one("scale", 6, Form::Sint32),
    one("zeroCount", 7, Form::Fixed64),
    one("positive", 8, Form::Message(&BUCKETS)),
    one("negative", 9, Form::Message(&BUCKETS)),
    one("flags", 10, Form::Varint),
    many("exemplars", 11, Form::Opaque),
    one("min", 12, Form::Double),
    one("max", 13, Form::Double),
    one("zeroThreshold", 14, Form::Double),
];

static BUCKETS: [Field; 2] = [
    one("offset", 1, Form::Sint32),
    many("bucketCounts", 2, Form::Varint),
];

static SUMMARY_POINT: [Field; 6] = [
    many("attributes", 7, Form::Message(&KEY_VALUE)),
    one("timeUnixNano", 3, Form::Fixed64),
    one("count", 4, Form::Fixed64),
    one("sum", 5, Form::Double),
    many("quantileValues", 6, Form::Message(&QUANTILE)),
    one("flags", 8, Form::Varint),
];

static QUANTILE: [Field; 2] = [one("quantile", 1, Form::Double), one("value", 2, Form::Double)];

/// The request of a body, in protobuf; at most [`MOST_GROWTH`] times as long.
///
/// # Errors
///
/// If the body is no JSON, or a field has a value of another type; the text names the field, the line and the column.
pub(super) fn to_protobuf(body: &[u8]) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len() * MOST_GROWTH);
    let mut json = serde_json::Deserializer::from_slice(body);
    let request = MessageSeed {
        name: "ExportMetricsServiceRequest",
        message: &REQUEST,
        out: &mut out,
    };
    request.deserialize(&mut json)?;
    json.end()?;
    out.shrink_to_fit();
    Ok(out)
}

/// Writes the fields of a JSON object.
struct MessageSeed<'o> {
    /// The field or the message, for errors.
    name: &'static str,
    message: &'static Message,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "an object for `{}`", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(FieldSeed(self.message))? {
            match field {
                Some(field) if field.is_repeated => map.next_value_seed(ListSeed { field, out: self.out })?,
                Some(field) => map.next_value_seed(ValueSeed { field, out: self.out })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The field of a message with a name, if it is read.
struct FieldSeed(&'static Message);

impl<'de> DeserializeSeed<'de> for FieldSeed {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldSeed {
    type Value = Option<&'static Field>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the name of a field")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|field| field.name == name))
    }
}

/// Writes the values of a repeated field.
struct ListSeed<'o> {
    field: &'static Field,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a list for `{}`", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { field, out } = self;
        while list.next_element_seed(ValueSeed { field, out })?.is_some() {}
        Ok(())
    }
}

/// Writes one value of a field.
struct ValueSeed<'o> {
    field: &'static Field,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, json: D) -> Result<(), D::Error> {
        match self.field.form {
            Form::Opaque => {
                json.deserialize_ignored_any(IgnoredAny)?;
                self.delimited(|_| Ok(()))
            }
            _ => json.deserialize_any(self),
        }
    }
}

impl ValueSeed<'_> {
    fn key(&mut self, wire_type: WireType) {
        encode_key(self.field.number, wire_type, self.out);
    }

    fn varint(&mut self, value: u64) {
        self.key(WireType::Varint);
        encode_varint(value, self.out);
    }

    fn fixed(&mut self, bits: u64) {
        self.key(WireType::SixtyFourBit);
        self.out.put_u64_le(bits);
    }

    /// Writes a message and the length before it.
    fn delimited<E>(&mut self, message: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        self.key(WireType::LengthDelimited);
        let start = self.out.len();
        self.out.extend_from_slice(&[0; LENGTH_BYTES]);
        message(self.out)?;
        let mut length = self.out.len() - start - LENGTH_BYTES;
        for (place, byte) in self.out[start..start + LENGTH_BYTES].iter_mut().enumerate() {
            let continues = u8::from(place + 1 < LENGTH_BYTES) << 7;
            // 7 bits always fit.
            *byte = u8::try_from(length & 0x7f).unwrap_or(0) | continues;
            length >>= 7;
        }
        Ok(())
    }

    /// Writes an integer; `None`: the field does not take it.
    fn integer(&mut self, value: i128) -> Option<()> {
        match self.field.form {
            Form::Fixed64 => self.fixed(value.try_into().ok()?),
            Form::Sfixed64 => self.fixed(i64::try_from(value).ok()?.cast_unsigned()),
            // An unsigned number above the signed ones has the same bits as a negative one.
            Form::Varint => match u64::try_from(value) {
                Ok(value) => self.varint(value),
                Err(_) => self.varint(i64::try_from(value).ok()?.cast_unsigned()),
            },
            Form::Sint32 => {
                let value = i32::try_from(value).ok()?;
                let zigzag = (value << 1) ^ (value >> 31);
                self.varint(u64::from(zigzag.cast_unsigned()));
            }
            Form::Enumeration(_) => self.varint(value.try_into().ok()?),
            Form::Double => self.fixed((value as f64).to_bits()),
            Form::Text | Form::Bool | Form::Message(_) | Form::Opaque => return None,
        }
        Some(())
    }

    /// Writes a floating-point number; `None`: the field does not take it.
    fn double(&mut self, value: f64) -> Option<()> {
        /// Beyond the range of 64 bits.
        const LIMIT: f64 = 2e19;
        match self.field.form {
            Form::Double => {
                self.fixed(value.to_bits());
                Some(())
            }
            _ if value.fract() == 0.0 && value.abs() < LIMIT =>
            {
                #[expect(clippy::cast_possible_truncation, reason = "a whole number within the limit")]
                self.integer(value as i128)
            }
            _ => None,
        }
    }

    /// Writes a text, or the number in it; `None`: the field does not take it.
    fn text(&mut self, text: &str) -> Option<()> {
        match self.field.form {
            Form::Text => {
                self.key(WireType::LengthDelimited);
                encode_varint(text.len() as u64, self.out);
                self.out.extend_from_slice(text.as_bytes());
                Some(())
            }
            Form::Enumeration(names) => {
                let value = names.iter().position(|name| *name == text)?;
                self.integer(value as i128)
            }
            Form::Message(_) | Form::Bool | Form::Opaque => None,
            Form::Double => self.double(match text {
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                "NaN" => f64::NAN,
                _ => text.parse().ok().filter(|value: &f64| value.is_finite())?,
            }),
            _ => match text.parse() {
                Ok(value) => self.integer(value),
                Err(_) => self.double(text.parse().ok()?),
            },
        }
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match self.field.form {
            Form::Text => "a text",
            Form::Bool => "true or false",
            Form::Double => "a number",
            Form::Fixed64 => "an integer from 0, of 64 bits",
            Form::Sfixed64 | Form::Varint => "an integer of 64 bits",
            Form::Sint32 => "an integer of 32 bits",
            Form::Enumeration(_) => "the number or the name of a value",
            Form::Message(_) => "an object",
            Form::Opaque => "a value",
        };
        write!(out, "{form} for `{}`", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<(), E> {
        let is_written = matches!(self.field.form, Form::Bool).then(|| self.varint(value.into()));
        is_written.ok_or_else(|| E::invalid_type(Unexpected::Bool(value), &self))
    }

    fn visit_u64<E: Error>(mut self, value: u64) -> Result<(), E> {
        let is_written = self.integer(value.into());
        is_written.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<(), E> {
        let is_written = self.integer(value.into());
        is_written.ok_or_else(|| E::invalid_value(Unexpected::Signed(value), &self))
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<(), E> {
        let is_written = self.double(value);
        is_written.ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
    }

    fn visit_str<E: Error>(mut self, text: &str) -> Result<(), E> {
        let is_written = self.text(text);
        is_written.ok_or_else(|| E::invalid_value(Unexpected::Str(&excerpt(text)), &self))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, map: A) -> Result<(), A::Error> {
        let Form::Message(message) = self.field.form else {
            return Err(A::Error::invalid_type(Unexpected::Map, &self));
        };
        let name = self.field.name;
        self.delimited(|out| MessageSeed { name, message, out }.visit_map(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(body: &str) -> String {
        to_protobuf(body.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_field_and_its_place() {
        let point = |field: &str| {
            let gauge = format!(r#"{{"name":"g","gauge":{{"dataPoints":[{{{field}}}]}}}}"#);
            format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{gauge}]}}]}}]}}"#)
        };
        for (field, expected) in [
            (
                r#""timeUnixNano":-1"#,
                "invalid value: integer `-1`, expected an integer from 0, of 64 bits for `timeUnixNano`",
            ),
            (
                r#""timeUnixNano":"soon""#,
                "invalid value: string \"soon\", expected an integer from 0",
            ),
            (
                r#""asInt":0.5"#,
                "invalid value: floating point `0.5`, expected an integer of 64 bits for `asInt`",
            ),
            (
                r#""asInt":"9223372036854775808""#,
                "expected an integer of 64 bits for `asInt`",
            ),
            (
                r#""asDouble":true"#,
                "invalid type: boolean `true`, expected a number for `asDouble`",
            ),
            (r#""asDouble":"1e999""#, "expected a number for `asDouble`"),
            (
                r#""attributes":{}"#,
                "invalid type: map, expected a list for `attributes`",
            ),
            (
                r#""attributes":[1]"#,
                "invalid value: integer `1`, expected an object for `attributes`",
            ),
        ] {
            let error = error(&point(field));
            assert!(
                error.contains(expected) && error.contains(" at line 1 column "),
                "{error}"
            );
        }
        assert!(
            error("[]")
                .starts_with("invalid type: sequence, expected an object for `ExportMetricsServiceRequest`")
        );
        assert!(error("{").starts_with("EOF while parsing an object"));
        assert!(error("{}{}").starts_with("trailing characters"));
    }

    #[test]
    fn a_message_is_as_long_as_announced_at_most() {
        let counts = format!("[{}0]", "0,".repeat(10_000));
        let body = format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"histogram":{{"dataPoints":[{{"bucketCounts":{counts}}}]}}}}]}}]}}]}}"#
        );
        let out = to_protobuf(body.as_bytes()).unwrap();
        assert!(out.len() > 4 * body.len() && out.len() <= MOST_GROWTH * body.len());
    }

    proptest! {
        #[test]
        fn no_body_panics(body in r#"[\[\]{}:,"a-z0-9]{0,60}"#) {
            if let Ok(out) = to_protobuf(body.as_bytes()) {
                prop_assert!(out.len() <= MOST_GROWTH * body.len());
            }
        }
    }
}
