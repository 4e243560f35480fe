//! OpenTSDB's error texts for points that it would not store. HTTP and telnet send the same texts.
//!
//! Clients match on these texts, so they are OpenTSDB's to the letter, with two exceptions: where
//! it prints a Java map, which is ordered by hash values, the tags stand here in the order of
//! the request; and an illegal character is followed by [`MORE_CHARACTERS`].
//!
//! Source: OpenTSDB 2.4, `TSDB.checkTimestampAndTags`, `IncomingDataPoints.checkMetricAndTags`,
//! `Tags.validateString`.

use std::fmt::Display;

use oxtsdb_metadata::uids::UidRejection;
use oxtsdb_schema::{NameError, Timestamp, Value};

use crate::{NamePlace, PointErrorReason};

/// A point as a line of telnet: `put sys.cpu 1356998400 42 host=web01 dc=lga`.
pub fn line(metric: &str, timestamp: Timestamp, value: Value, tags: &[(&str, &str)]) -> String {
    let mut line = match value {
        Value::Int(value) => format!("put {metric} {timestamp} {value}"),
        Value::Float(value) => format!("put {metric} {timestamp} {value}"),
        Value::Double(value) => format!("put {metric} {timestamp} {value}"),
    };
    for (key, value) in tags {
        line.push_str(&format!(" {key}={value}"));
    }
    line
}

/// `{host=web01, dc=lga}`.
pub fn tag_map<'t>(tags: impl Iterator<Item = (&'t str, &'t str)>) -> String {
    let mut text = String::from("{");
    for (place, (key, value)) in tags.enumerate() {
        if place > 0 {
            text.push_str(", ");
        }
        text.push_str(key);
        text.push('=');
        text.push_str(value);
    }
    text.push('}');
    text
}

/// A timestamp beyond the last that can be stored. The text shows the value as its encoded bytes, in Java's signed
/// form, and its flags.
pub fn bad_timestamp<'t>(
    timestamp: i64,
    metric: &str,
    tags: impl Iterator<Item = (&'t str, &'t str)>,
    value: &Value,
) -> String {
    bad_timestamp_of(timestamp, metric, tags, value.encoded().as_bytes(), value.flags())
}

/// As [`bad_timestamp`], of the bytes of a value.
pub fn bad_timestamp_of<'t>(
    timestamp: i64,
    metric: &str,
    tags: impl Iterator<Item = (&'t str, &'t str)>,
    value: &[u8],
    flags: u8,
) -> String {
    let bytes: Vec<String> = value.iter().map(|byte| byte.cast_signed().to_string()).collect();
    format!(
        "bad timestamp={timestamp} when trying to add value=[{}]/{flags} to metric={metric}, tags={}",
        bytes.join(", "),
        tag_map(tags)
    )
}

/// NaN or an infinity, as `error` reports.
pub fn not_finite(error: &impl Display, metric: &str, timestamp: impl Display) -> String {
    format!("{error} for metric={metric} timestamp={timestamp}")
}

/// A point without tags, by telnet.
pub fn no_tags(metric: &str) -> String {
    format!("Need at least one tag (metric={metric}, tags={{}})")
}

/// More tags than a series may have.
pub(crate) fn too_many_tags<'t>(
    count: usize,
    max: usize,
    tags: impl Iterator<Item = (&'t str, &'t str)>,
) -> String {
    format!(
        "Too many tags: {count} maximum allowed: {max}, tags: {}",
        tag_map(tags)
    )
}

/// The part of a point that a name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameOf<'a> {
    /// A metric.
    Metric,
    /// The key of a tag that has this value.
    TagKey(&'a str),
    /// The value of a tag that has this key.
    TagValue(&'a str),
}

impl Display for NameOf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NameOf::Metric => f.write_str("metric name"),
            NameOf::TagKey(value) => write!(f, "tag name with value [{value}]"),
            NameOf::TagValue(key) => write!(f, "tag value with key [{key}]"),
        }
    }
}

/// The hint at the setting that allows further characters.
pub const MORE_CHARACTERS: &str =
    " (letters, digits and -_./ are allowed, and what --extra-name-characters adds)";

/// A name with an invalid character. Characters beyond ISO-8859-1 cannot be allowed.
pub(crate) fn illegal_character(of: NameOf<'_>, name: &str, character: char) -> String {
    let more = match u8::try_from(character) {
        Ok(_) => MORE_CHARACTERS,
        Err(_) => "",
    };
    format!("Invalid {of} (\"{name}\"): illegal character: {character}{more}")
}

/// An empty name.
pub(crate) fn empty_name(of: NameOf<'_>) -> String {
    format!("Invalid {of} (\"\"): empty string")
}

/// A name that is `null`.
pub fn null_name(of: NameOf<'_>) -> String {
    format!("Invalid {of}: null")
}

/// Error of a point that was not stored, in OpenTSDB's texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejection {
    /// It breaks a rule; a retry does not help.
    Rule(String),
    /// It has no tags. HTTP and telnet have different texts for it.
    NoTags,
    /// A name is unknown and is not assigned on write.
    UnknownName {
        /// OpenTSDB's name of its kind: `metrics`, `tagk` or `tagv`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The point is valid, but UIDs could not be assigned to its names.
    Storage(String),
}

impl Rejection {
    /// The texts for the writer's reason. `tags` are the tags of the point.
    pub fn from_reason(reason: &PointErrorReason, tags: &[(&str, &str)]) -> Rejection {
        use PointErrorReason as R;
        match reason {
            R::NoTags => Rejection::NoTags,
            R::TooManyTags { count, max } => {
                Rejection::Rule(too_many_tags(*count, *max, tags.iter().copied()))
            }
            R::InvalidName { place, name, error } => {
                Rejection::Rule(invalid_name(NameOf::from(place), name, error))
            }
            R::NoUid {
                place,
                name,
                rejection,
            } => match rejection {
                UidRejection::AutoCreateDisabled => {
                    let kind = match place {
                        NamePlace::Metric => "metrics",
                        NamePlace::Tagk { .. } => "tagk",
                        NamePlace::Tagv { .. } => "tagv",
                    };
                    Rejection::UnknownName {
                        kind,
                        name: name.clone(),
                    }
                }
                UidRejection::InvalidName { detail } => {
                    Rejection::Rule(format!("Invalid {}: {detail}", NameOf::from(place)))
                }
                UidRejection::Denied { .. }
                | UidRejection::QuotaExceeded(_)
                | UidRejection::SpaceExhausted
                | UidRejection::CounterBehind { .. }
                | UidRejection::StoreFull { .. }
                | UidRejection::Unavailable { .. }
                | UidRejection::Other { .. } => Rejection::Storage(reason.to_string()),
            },
            R::Unresolved(_) => Rejection::Storage(reason.to_string()),
            // HTTP and telnet check other timestamps and values before, and send neither TSUIDs nor columns.
            R::NoSeries
            | R::Refused(_)
            | R::DuplicateTagk { .. }
            | R::InvalidTsuid(_)
            | R::UnknownUid { .. }
            | R::TimestampOutOfRange { .. }
            | R::ImplausibleTimestamp { .. }
            | R::BeforeRetention { .. }
            | R::NotWholeSecond { .. }
            | R::DeltaTimestamps(_)
            | R::InvalidValue(_)
            | R::InvalidHistogram(_)
            | R::InvalidRollup(_)
            | R::Shape(_) => Rejection::Rule(reason.to_string()),
        }
    }
}

impl<'a> From<&'a NamePlace> for NameOf<'a> {
    fn from(place: &'a NamePlace) -> NameOf<'a> {
        match place {
            NamePlace::Metric => NameOf::Metric,
            NamePlace::Tagk { tagv } => NameOf::TagKey(tagv),
            NamePlace::Tagv { tagk } => NameOf::TagValue(tagk),
        }
    }
}

fn invalid_name(of: NameOf<'_>, name: &str, error: &NameError) -> String {
    match error {
        NameError::Empty => empty_name(of),
        NameError::IllegalCharacter { character, .. } | NameError::NotLatin1 { character, .. } => {
            illegal_character(of, name, *character)
        }
        NameError::TooLong { length, max } => {
            format!("Invalid {of}: {length} characters, at most {max} are allowed")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_opentsdbs() {
        let tags = || [("host", "a"), ("dc", "b")].into_iter();
        assert_eq!(
            bad_timestamp(99_999_999_999_999, "m", tags().take(1), &Value::Int(1)),
            "bad timestamp=99999999999999 when trying to add value=[1]/0 to metric=m, tags={host=a}"
        );
        assert!(bad_timestamp(1, "m", tags(), &Value::Int(-300)).contains("value=[-2, -44]/1 to"));
        assert_eq!(
            too_many_tags(9, 8, tags()),
            "Too many tags: 9 maximum allowed: 8, tags: {host=a, dc=b}"
        );
        assert_eq!(
            illegal_character(NameOf::Metric, "a b", ' '),
            format!("Invalid metric name (\"a b\"): illegal character:  {MORE_CHARACTERS}")
        );
        assert_eq!(
            illegal_character(NameOf::TagKey("a"), "ho st", ' '),
            format!("Invalid tag name with value [a] (\"ho st\"): illegal character:  {MORE_CHARACTERS}")
        );
        assert_eq!(
            illegal_character(NameOf::TagValue("host"), "a b", ' '),
            format!("Invalid tag value with key [host] (\"a b\"): illegal character:  {MORE_CHARACTERS}")
        );
        assert_eq!(
            illegal_character(NameOf::Metric, "日", '日'),
            "Invalid metric name (\"日\"): illegal character: 日"
        );
        assert_eq!(
            empty_name(NameOf::TagValue("host")),
            "Invalid tag value with key [host] (\"\"): empty string"
        );
        assert_eq!(
            null_name(NameOf::TagKey("SUM")),
            "Invalid tag name with value [SUM]: null"
        );
        assert_eq!(no_tags("m"), "Need at least one tag (metric=m, tags={})");
        let error = oxtsdb_schema::value::parse_http("1e400").unwrap_err();
        assert_eq!(
            not_finite(&error, "m", 1_356_998_400),
            "value is NaN or Infinite: Infinity for metric=m timestamp=1356998400"
        );
    }
}
