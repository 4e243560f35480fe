//! A figure of a frame: its unit decides how it is shown, and that it is a number in JSON.

use serde_json::{Value, json};

/// The content of a section's cell.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Figure {
    Text(String),
    /// A method, of gRPC with its package: `oxtsdb.data.v1.DataService/Write`.
    Method(String),
    /// Why a server cannot serve, on lines of its own.
    Note(String),
    /// A number that counts nothing.
    Id(u64),
    Count(f64),
    PerSecond(f64),
    Bytes(f64),
    BytesPerSecond(f64),
    /// A latency, in seconds.
    Latency(f64),
    /// A time of minutes to years, in seconds.
    Duration(f64),
    /// A part of a whole; 1 is all of it.
    Share(f64),
    /// Nothing has happened in the time of the frame.
    Idle,
    /// The server does not have this figure.
    Missing,
}

impl Figure {
    /// A figure that a server may not have.
    pub(super) fn from_value(figure: fn(f64) -> Self, value: Option<f64>) -> Self {
        value
            .filter(|value| value.is_finite())
            .map_or(Self::Missing, figure)
    }

    /// A figure that there is only if something has happened.
    pub(super) fn from_events(figure: fn(f64) -> Self, value: Option<f64>) -> Self {
        value.map_or(Self::Idle, figure)
    }

    /// Numbers are aligned to the right.
    pub(super) fn is_number(&self) -> bool {
        !matches!(self, Self::Text(_) | Self::Method(_) | Self::Note(_))
    }

    /// The figure for people, short.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Note(text) => text.clone(),
            Self::Method(method) => short_method(method),
            Self::Id(id) => id.to_string(),
            Self::Count(value) => scaled(*value, 1000.0, &["", " k", " M", " G", " T"]),
            Self::PerSecond(value) => rate(*value),
            Self::Bytes(value) => bytes(*value),
            Self::BytesPerSecond(value) => format!("{}/s", bytes(*value)),
            Self::Latency(seconds) => latency(*seconds),
            Self::Duration(seconds) => duration(*seconds),
            Self::Share(share) => format!("{:.0}%", share * 100.0),
            Self::Idle | Self::Missing => "-".to_owned(),
        }
    }

    /// The figure for programs, exact and in base units.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Text(text) | Self::Method(text) | Self::Note(text) => json!(text),
            Self::Id(id) => json!(id),
            Self::Count(value)
            | Self::PerSecond(value)
            | Self::Bytes(value)
            | Self::BytesPerSecond(value)
            | Self::Latency(value)
            | Self::Duration(value)
            | Self::Share(value) => json!(value),
            Self::Idle | Self::Missing => Value::Null,
        }
    }
}

/// `DataService/Write` of `oxtsdb.data.v1.DataService/Write`; paths of HTTP as they are.
fn short_method(method: &str) -> String {
    match method.split_once('/') {
        Some((service, name)) => {
            let service = service.rsplit('.').next().unwrap_or_default();
            format!("{service}/{name}")
        }
        None => method.to_owned(),
    }
}

/// Three digits and a unit. Values below the first step are whole.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut at = 0;
    while (value.abs() >= step * 10.0 || (at > 0 && value.abs() >= step)) && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    let decimals = if at > 0 && value.abs() < 100.0 { 1 } else { 0 };
    format!("{value:.decimals$}{}", units[at])
}

fn bytes(value: f64) -> String {
    let mut value = value;
    let mut at = 0;
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    while value.abs() >= 1024.0 && at + 1 < units.len() {
        value /= 1024.0;
        at += 1;
    }
    let decimals = if at > 0 && value.abs() < 100.0 { 1 } else { 0 };
    format!("{value:.decimals$} {}", units[at])
}

/// Rare events are visible: one in a minute is 0.02.
fn rate(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 0.005 => "<0.01".to_owned(),
        v if v < 1.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => scaled(value, 1000.0, &["", " k", " M", " G", " T"]),
    }
}

fn latency(seconds: f64) -> String {
    let (value, unit) = match seconds.abs() {
        v if v < 0.001 => (seconds * 1e6, "us"),
        v if v < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let decimals = if value.abs() < 10.0 { 1 } else { 0 };
    format!("{value:.decimals$} {unit}")
}

/// The two largest units.
fn duration(seconds: f64) -> String {
    const UNITS: [(&str, f64); 5] = [
        ("y", 365.0 * 86_400.0),
        ("d", 86_400.0),
        ("h", 3600.0),
        ("m", 60.0),
        ("s", 1.0),
    ];
    let seconds = seconds.max(0.0);
    let largest = UNITS.iter().position(|(_, length)| seconds >= *length);
    match largest {
        None => format!("{seconds:.1}s"),
        Some(4) => format!("{}s", seconds.floor()),
        Some(at) => {
            let (unit, length) = UNITS[at];
            let (next, next_length) = UNITS[at + 1];
            let count = (seconds / length).floor();
            let rest = ((seconds - count * length) / next_length).floor();
            format!("{count}{unit}{rest}{next}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_have_their_unit() {
        for (figure, expected) in [
            (Figure::Count(0.0), "0"),
            (Figure::Count(9999.0), "9999"),
            (Figure::Count(12_345.0), "12.3 k"),
            (Figure::Count(1_234_567.0), "1.2 M"),
            (Figure::Count(16_777_215.0), "16.8 M"),
            (Figure::PerSecond(0.0), "0"),
            (Figure::PerSecond(0.001), "<0.01"),
            (Figure::PerSecond(0.016), "0.02"),
            (Figure::PerSecond(12.34), "12.3"),
            (Figure::PerSecond(1234.0), "1234"),
            (Figure::PerSecond(123_456.0), "123 k"),
            (Figure::Bytes(1023.0), "1023 B"),
            (Figure::Bytes(1536.0), "1.5 KiB"),
            (Figure::Bytes(12_638_257_152.0), "11.8 GiB"),
            (Figure::BytesPerSecond(2048.0), "2.0 KiB/s"),
            (Figure::Latency(0.000_25), "250 us"),
            (Figure::Latency(0.0015), "1.5 ms"),
            (Figure::Latency(0.25), "250 ms"),
            (Figure::Latency(2.5), "2.5 s"),
            (Figure::Duration(0.5), "0.5s"),
            (Figure::Duration(59.9), "59s"),
            (Figure::Duration(3723.0), "1h2m"),
            (Figure::Duration(90_000.0), "1d1h"),
            (Figure::Duration(4e7), "1y97d"),
            (Figure::Share(0.987), "99%"),
            (Figure::from_value(Figure::Count, None), "-"),
            (Figure::from_value(Figure::Count, Some(f64::NAN)), "-"),
            (
                Figure::Method("oxtsdb.data.v1.DataService/Write".to_owned()),
                "DataService/Write",
            ),
            (Figure::Method("/favicon.ico".to_owned()), "/favicon.ico"),
            (Figure::Method("put".to_owned()), "put"),
        ] {
            assert_eq!(figure.text(), expected, "{figure:?}");
        }
        assert_eq!(Figure::Latency(0.25).json(), json!(0.25));
        assert_eq!(Figure::Missing.json(), Value::Null);
        let method = Figure::Method("oxtsdb.data.v1.DataService/Write".to_owned());
        assert_eq!(method.json(), json!("oxtsdb.data.v1.DataService/Write"));
    }
}
