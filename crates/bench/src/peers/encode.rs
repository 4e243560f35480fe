//! Points in the form of each protocol: what surrounds a timestamp and a value is made before the clock starts, so that the generator
//! uses little processor time and the same for each server.

use std::ops::Range;

use bytes::BufMut as _;
use clap::ValueEnum;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::points::{self, METRICS, Point};
use crate::workload::STEP_SECONDS;

/// A protocol that both servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrontEnd {
    /// OpenTSDB's lines of `put`, 1,000 a write.
    Telnet,
    /// OpenTSDB's POST /api/put, 500 points a request.
    Http,
    /// InfluxDB's line protocol as Telegraf sends it: a host's ten fields a line, 1,000 lines a request.
    Influx,
    /// Prometheus remote write 1.0, 2,000 samples a request.
    RemoteWrite,
    /// OTLP over HTTP as a collector sends it: a resource a host, 8,192 data points a request.
    Otlp,
}

impl FrontEnd {
    /// Its name in a table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Telnet => "telnet",
            Self::Http => "HTTP",
            Self::Influx => "Influx lines",
            Self::RemoteWrite => "remote write",
            Self::Otlp => "OTLP",
        }
    }

    /// Points of a write or a request: the defaults of real senders.
    pub(super) fn batch_points(self) -> usize {
        match self {
            Self::Telnet => 1_000,
            Self::Http => 500,
            Self::Influx => 10_000,
            Self::RemoteWrite => 2_000,
            Self::Otlp => 8_192,
        }
    }

    /// Headers of a request, but its length.
    pub(super) fn headers(self) -> &'static str {
        match self {
            Self::Telnet => "",
            Self::Http => "Content-Type: application/json\r\n",
            Self::Influx => "Content-Type: text/plain; charset=utf-8\r\n",
            Self::RemoteWrite => {
                "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
                 X-Prometheus-Remote-Write-Version: 0.1.0\r\n"
            }
            Self::Otlp => "Content-Type: application/x-protobuf\r\n",
        }
    }
}

/// Encodes batches of points of some hosts.
#[derive(Debug)]
pub(super) struct Encoder {
    front_end: FrontEnd,
    start_seconds: u32,
    first_host: u32,
    /// The bytes that name a metric, by number.
    metrics: Vec<Vec<u8>>,
    /// The bytes of the tags of a host.
    hosts: Vec<Vec<u8>>,
    /// A message that is complete before its length, or its compressed form, is written.
    part: Vec<u8>,
    snappy: snap::raw::Encoder,
}

impl Encoder {
    pub(super) fn new(front_end: FrontEnd, start_seconds: u32, hosts: Range<u32>) -> Self {
        Self {
            front_end,
            start_seconds,
            first_host: hosts.start,
            metrics: (0..METRICS)
                .map(|number| metric_bytes(front_end, number))
                .collect(),
            hosts: hosts.map(|host| host_bytes(front_end, host)).collect(),
            part: Vec::new(),
            snappy: snap::raw::Encoder::new(),
        }
    }

    /// Replaces `out` by the points as lines or as the body of a request.
    pub(super) fn encode(&mut self, points: &[Point], out: &mut Vec<u8>) -> anyhow::Result<()> {
        out.clear();
        match self.front_end {
            FrontEnd::Telnet => self.push_texts(points, b"", b" ", out),
            FrontEnd::Http => {
                self.push_texts(points, b",", br#","value":"#, out);
                // The first comma makes place for the bracket.
                out[0] = b'[';
                out.push(b']');
            }
            FrontEnd::Influx => {
                for points in points.chunk_by(is_same_line) {
                    self.push_line(points, out);
                }
            }
            FrontEnd::RemoteWrite => {
                let mut request = std::mem::take(&mut self.part);
                request.clear();
                for point in points {
                    self.push_time_series(*point, &mut request);
                }
                out.resize(snap::raw::max_compress_len(request.len()), 0);
                let length = self.snappy.compress(&request, out)?;
                out.truncate(length);
                self.part = request;
            }
            FrontEnd::Otlp => {
                let mut metrics = std::mem::take(&mut self.part);
                for points in points.chunk_by(|one, next| one.host == next.host) {
                    metrics.clear();
                    for point in points {
                        self.push_gauge(*point, &mut metrics);
                    }
                    // ResourceMetrics { resource, scope_metrics: [ScopeMetrics { metrics }] }
                    let host = self.host(points[0]);
                    put_head(1, host.len() + field_length(metrics.len()), out);
                    out.extend_from_slice(host);
                    put_head(2, metrics.len(), out);
                    out.extend_from_slice(&metrics);
                }
                self.part = metrics;
            }
        }
        Ok(())
    }

    fn seconds(&self, point: Point) -> u32 {
        self.start_seconds + point.step * STEP_SECONDS
    }

    fn host(&self, point: Point) -> &[u8] {
        &self.hosts[(point.host - self.first_host) as usize]
    }

    fn push_texts(&self, points: &[Point], before: &[u8], between: &[u8], text: &mut Vec<u8>) {
        for point in points {
            text.extend_from_slice(before);
            text.extend_from_slice(&self.metrics[point.metric as usize]);
            text.extend_from_slice(itoa::Buffer::new().format(self.seconds(*point)).as_bytes());
            text.extend_from_slice(between);
            point.push_value(text);
            text.extend_from_slice(self.host(*point));
        }
    }

    /// A line of Influx: points of one host and instant as fields.
    fn push_line(&self, points: &[Point], text: &mut Vec<u8>) {
        text.extend_from_slice(self.host(points[0]));
        for (number, point) in points.iter().enumerate() {
            text.push(if number == 0 { b' ' } else { b',' });
            text.extend_from_slice(&self.metrics[point.metric as usize]);
            point.push_value(text);
            if point.is_integer() {
                text.push(b'i');
            }
        }
        text.push(b' ');
        text.extend_from_slice(itoa::Buffer::new().format(self.seconds(points[0])).as_bytes());
        text.push(b'\n');
    }

    /// `WriteRequest.timeseries` with one sample.
    fn push_time_series(&self, point: Point, out: &mut Vec<u8>) {
        let milliseconds = u64::from(self.seconds(point)) * 1000;
        let sample_length = 1 + 8 + 1 + encoded_len_varint(milliseconds);
        let (metric, host) = (&self.metrics[point.metric as usize], self.host(point));
        put_head(1, metric.len() + host.len() + field_length(sample_length), out);
        out.extend_from_slice(metric);
        out.extend_from_slice(host);
        put_head(2, sample_length, out);
        out.put_u8(0x09);
        out.put_f64_le(point.value());
        out.put_u8(0x10);
        encode_varint(milliseconds, out);
    }

    /// `ScopeMetrics.metrics`: a gauge with one data point, without attributes.
    fn push_gauge(&self, point: Point, out: &mut Vec<u8>) {
        const DATA_POINT: usize = 1 + 8 + 1 + 8;
        let metric = &self.metrics[point.metric as usize];
        put_head(2, metric.len() + field_length(field_length(DATA_POINT)), out);
        out.extend_from_slice(metric);
        put_head(5, field_length(DATA_POINT), out);
        put_head(1, DATA_POINT, out);
        out.put_u8(0x19);
        out.put_u64_le(u64::from(self.seconds(point)) * 1_000_000_000);
        if point.is_integer() {
            out.put_u8(0x31);
            out.put_i64_le(point.units);
        } else {
            out.put_u8(0x21);
            out.put_f64_le(point.value());
        }
    }
}

fn is_same_line(one: &Point, next: &Point) -> bool {
    (one.host, one.step) == (next.host, next.step)
}

/// The bytes that name a metric, and end where a timestamp or value begins.
fn metric_bytes(front_end: FrontEnd, number: u32) -> Vec<u8> {
    let name = points::metric(number);
    match front_end {
        FrontEnd::Telnet => format!("put {name} ").into_bytes(),
        FrontEnd::Http => format!(r#"{{"metric":"{name}","timestamp":"#).into_bytes(),
        // The measurement is the name up to its point.
        FrontEnd::Influx => {
            let field = name.split_once('.').map_or(name.as_str(), |(_, field)| field);
            format!("{field}=").into_bytes()
        }
        FrontEnd::RemoteWrite => label("__name__", &name),
        FrontEnd::Otlp => text_field(1, &name),
    }
}

/// The bytes of a host's tags.
fn host_bytes(front_end: FrontEnd, host: u32) -> Vec<u8> {
    let tags = points::tags(host);
    match front_end {
        FrontEnd::Telnet => (tags.map(|(key, value)| format!(" {key}={value}")).concat() + "\n").into_bytes(),
        FrontEnd::Http => {
            let tags = tags.map(|(key, value)| format!(r#""{key}":"{value}""#));
            format!(r#","tags":{{{}}}}}"#, tags.join(",")).into_bytes()
        }
        FrontEnd::Influx => {
            let tags = tags.map(|(key, value)| format!(",{key}={value}")).concat();
            format!("bench{tags}").into_bytes()
        }
        FrontEnd::RemoteWrite => {
            let mut tags = tags;
            // Labels are sorted by name.
            tags.sort();
            tags.map(|(key, value)| label(key, &value)).concat()
        }
        FrontEnd::Otlp => {
            // Resource { attributes: [KeyValue { key, value: AnyValue { string_value } }] }
            let attributes = tags.map(|(key, value)| {
                let value = message_field(2, &text_field(1, &value));
                message_field(1, &[text_field(1, key), value].concat())
            });
            message_field(1, &attributes.concat())
        }
    }
}

/// `TimeSeries.labels`: a `Label`.
fn label(name: &str, value: &str) -> Vec<u8> {
    message_field(1, &[text_field(1, name), text_field(2, value)].concat())
}

fn text_field(number: u8, text: &str) -> Vec<u8> {
    message_field(number, text.as_bytes())
}

/// A protobuf field with a length.
fn message_field(number: u8, message: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    put_head(number, message.len(), &mut field);
    field.extend_from_slice(message);
    field
}

/// The tag and the length of a field.
fn put_head(number: u8, length: usize, out: &mut Vec<u8>) {
    out.put_u8(number << 3 | 2);
    encode_varint(length as u64, out);
}

/// Bytes of a field with its head, of a number below 16.
fn field_length(length: usize) -> usize {
    1 + encoded_len_varint(length as u64) + length
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::peers::points::{Order, Points};

    /// Two points of each series, encoded as one batch.
    fn encoded(front_end: FrontEnd) -> Vec<u8> {
        let points: Vec<Point> = Points::new(0..2, 2, Order::Time).collect();
        assert_eq!(points.len(), 40);
        let mut body = Vec::new();
        let mut encoder = Encoder::new(front_end, 1_767_225_600, 0..2);
        // A buffer with bytes of the batch before.
        encoder.encode(&points[..7], &mut body).unwrap();
        encoder.encode(&points, &mut body).unwrap();
        body
    }

    fn text(front_end: FrontEnd) -> String {
        String::from_utf8(encoded(front_end)).unwrap()
    }

    #[test]
    fn lines_of_telnet() {
        let text = text(FrontEnd::Telnet);
        assert_eq!(text.lines().count(), 40);
        let first = text.lines().next().unwrap();
        assert!(first.starts_with("put bench.metric00 1767225600 "), "{first}");
        assert!(first.ends_with(" host=host00000 dc=dc0 rack=rack00"), "{first}");
    }

    #[test]
    fn requests_of_put_are_json() {
        let points: Vec<serde_json::Value> = serde_json::from_slice(&encoded(FrontEnd::Http)).unwrap();
        assert_eq!(points.len(), 40);
        assert_eq!(points[0]["tags"]["rack"], "rack00");
    }

    #[test]
    fn lines_of_influx_have_ten_fields() {
        let text = text(FrontEnd::Influx);
        assert_eq!(text.lines().count(), 4);
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.starts_with("bench,host=host00001,dc=dc1,rack=rack01 metric00="),
            "{line}"
        );
        assert!(line.ends_with(" 1767225600"), "{line}");
        assert_eq!(line.matches("i,").count(), 5, "{line}");
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Pair {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        value: String,
    }

    #[test]
    fn samples_of_remote_write() {
        #[derive(Clone, PartialEq, prost::Message)]
        struct WriteRequest {
            #[prost(message, repeated, tag = "1")]
            series: Vec<TimeSeries>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct TimeSeries {
            #[prost(message, repeated, tag = "1")]
            labels: Vec<Pair>,
            #[prost(message, repeated, tag = "2")]
            samples: Vec<Sample>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Sample {
            #[prost(double, tag = "1")]
            value: f64,
            #[prost(int64, tag = "2")]
            milliseconds: i64,
        }
        let body = encoded(FrontEnd::RemoteWrite);
        let plain = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
        let series = WriteRequest::decode(&plain[..]).unwrap().series;
        assert_eq!(series.len(), 40);
        let names: Vec<&str> = series[39]
            .labels
            .iter()
            .map(|label| label.name.as_str())
            .collect();
        assert_eq!(names, ["__name__", "dc", "host", "rack"]);
        assert_eq!(series[39].samples[0].milliseconds, 1_767_225_610_000);
        let point = Points::new(0..2, 2, Order::Time).last().unwrap();
        assert_eq!(series[39].samples[0].value, point.value());
    }

    #[test]
    fn resources_of_otlp() {
        #[derive(Clone, PartialEq, prost::Message)]
        struct Request {
            #[prost(message, repeated, tag = "1")]
            resources: Vec<ResourceMetrics>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct ResourceMetrics {
            #[prost(message, optional, tag = "1")]
            resource: Option<Resource>,
            #[prost(message, repeated, tag = "2")]
            scopes: Vec<ScopeMetrics>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Resource {
            #[prost(message, repeated, tag = "1")]
            attributes: Vec<Attribute>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Attribute {
            #[prost(string, tag = "1")]
            key: String,
            #[prost(message, optional, tag = "2")]
            value: Option<Pair>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct ScopeMetrics {
            #[prost(message, repeated, tag = "2")]
            metrics: Vec<Metric>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Metric {
            #[prost(string, tag = "1")]
            name: String,
            #[prost(message, optional, tag = "5")]
            gauge: Option<Gauge>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct Gauge {
            #[prost(message, repeated, tag = "1")]
            points: Vec<DataPoint>,
        }
        #[derive(Clone, PartialEq, prost::Message)]
        struct DataPoint {
            #[prost(fixed64, tag = "3")]
            nanoseconds: u64,
            #[prost(double, optional, tag = "4")]
            double: Option<f64>,
            #[prost(sfixed64, optional, tag = "6")]
            integer: Option<i64>,
        }
        let resources = Request::decode(&encoded(FrontEnd::Otlp)[..]).unwrap().resources;
        // Two hosts at two instants.
        assert_eq!(resources.len(), 4);
        let attributes = &resources[1].resource.as_ref().unwrap().attributes;
        assert_eq!(attributes.len(), 3);
        assert_eq!(attributes[0].value.as_ref().unwrap().name, "host00001");
        let metrics = &resources[3].scopes[0].metrics;
        assert_eq!(metrics.len(), 10);
        let point = Points::new(0..2, 2, Order::Time).last().unwrap();
        assert_eq!(metrics[9].name, "bench.metric09");
        let data = &metrics[9].gauge.as_ref().unwrap().points[0];
        assert_eq!(data.nanoseconds, 1_767_225_610_000_000_000);
        assert_eq!((data.integer, data.double), (None, Some(point.value())));
        let data = &metrics[8].gauge.as_ref().unwrap().points[0];
        assert!(data.integer.is_some() && data.double.is_none());
    }
}
