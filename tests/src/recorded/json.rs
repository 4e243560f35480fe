//! JSON with objects that keep the order of their keys, and its comparison with a recorded value.

use std::fmt::{self, Display};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::Number;

/// Objects under these keys are hash maps of OpenTSDB: their keys are in no defined order.
const HASH_MAPS: [&str; 2] = ["tags", "dps"];
/// How far a time may be from now, seconds.
const DAY_SECONDS: i64 = 86_400;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// Where a response may differ in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    /// The outermost object is a hash map.
    pub(super) hash_root: bool,
    /// Arrays are in no defined order.
    pub(super) arrays: bool,
}

/// Compares a value with a recorded one, which may have markers. Returns where they differ.
pub(super) fn compare(recorded: &Json, actual: &Json, order: Order) -> Result<(), String> {
    compare_at("$", recorded, actual, order.hash_root, order)
}

fn compare_at(
    place: &str,
    recorded: &Json,
    actual: &Json,
    is_hash: bool,
    order: Order,
) -> Result<(), String> {
    let differs = || Err(format!("{place}: {actual}, OpenTSDB has {recorded}"));
    match (recorded, actual) {
        (Json::Text(recorded), actual) if is_marker(recorded, actual) => Ok(()),
        (Json::Array(recorded), Json::Array(actual)) if is_each(recorded) => {
            let Some(element) = recorded.last().filter(|_| !actual.is_empty()) else {
                return differs();
            };
            for (index, actual) in actual.iter().enumerate() {
                compare_at(&format!("{place}[{index}]"), element, actual, false, order)?;
            }
            Ok(())
        }
        (Json::Array(recorded), Json::Array(actual)) if recorded.len() == actual.len() => {
            if order.arrays {
                return compare_sets(place, recorded, actual, order);
            }
            for (index, (recorded, actual)) in recorded.iter().zip(actual).enumerate() {
                compare_at(&format!("{place}[{index}]"), recorded, actual, false, order)?;
            }
            Ok(())
        }
        (Json::Object(recorded), Json::Object(actual)) => {
            compare_keys(place, recorded, actual, is_hash)?;
            for (key, recorded) in recorded {
                let place = format!("{place}.{key}");
                let actual = actual.iter().find(|(name, _)| name == key);
                let (_, actual) = actual.ok_or_else(|| format!("{place} is missing"))?;
                compare_at(&place, recorded, actual, HASH_MAPS.contains(&key.as_str()), order)?;
            }
            Ok(())
        }
        _ if recorded == actual => Ok(()),
        _ => differs(),
    }
}

fn compare_keys(
    place: &str,
    recorded: &[(String, Json)],
    actual: &[(String, Json)],
    is_hash: bool,
) -> Result<(), String> {
    let keys = |object: &[(String, Json)]| -> Vec<String> {
        let mut keys: Vec<String> = object.iter().map(|(key, _)| key.clone()).collect();
        if is_hash {
            keys.sort_unstable();
        }
        keys
    };
    let (recorded, actual) = (keys(recorded), keys(actual));
    if recorded == actual {
        return Ok(());
    }
    Err(format!(
        "{place} has the keys {actual:?}, OpenTSDB's has {recorded:?}"
    ))
}

/// Whether a recorded array stands for one of any length with elements of one form.
fn is_each(recorded: &[Json]) -> bool {
    matches!(recorded, [Json::Text(each), _] if each == "<each>")
}

/// Each recorded element has one that is equal to it.
fn compare_sets(place: &str, recorded: &[Json], actual: &[Json], order: Order) -> Result<(), String> {
    let mut left: Vec<&Json> = actual.iter().collect();
    for recorded in recorded {
        let index = left
            .iter()
            .position(|actual| compare_at(place, recorded, actual, false, order).is_ok());
        let Some(index) = index else {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            return Err(format!(
                "{place} has no element {recorded}; unmatched are {}",
                left.join(", ")
            ));
        };
        left.swap_remove(index);
    }
    Ok(())
}

/// Whether a value is a time of today, seconds.
pub(super) fn is_now_seconds(value: &Json) -> bool {
    is_now(value, 1)
}

fn is_now(value: &Json, per_second: i64) -> bool {
    let Json::Number(number) = value else {
        return false;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    number
        .as_i64()
        .is_some_and(|time| (time / per_second - now).abs() < DAY_SECONDS)
}

/// Whether a recorded text is a marker that stands for the value.
fn is_marker(recorded: &str, actual: &Json) -> bool {
    match recorded {
        "<now_seconds>" => is_now(actual, 1),
        "<now_ms>" => is_now(actual, 1000),
        "<number>" => matches!(actual, Json::Number(_)),
        "<string>" => matches!(actual, Json::Text(_)),
        "<any>" => true,
        _ => false,
    }
}

/// Compares a text with a recorded one, in which `<any>` stands for any characters.
pub(super) fn is_text(recorded: &str, actual: &str) -> bool {
    let mut parts = recorded.split("<any>");
    let Some(mut rest) = parts.next().and_then(|first| actual.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Array(values) => {
                let mut array = serializer.serialize_seq(Some(values.len()))?;
                values
                    .iter()
                    .try_for_each(|value| array.serialize_element(value))?;
                array.end()
            }
            Self::Object(entries) => {
                let mut object = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    object.serialize_entry(key, value)?;
                }
                object.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("not finite"))?;
        Ok(Json::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = array.next_element()? {
            values.push(value);
        }
        Ok(Json::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Json, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = object.next_entry()? {
            entries.push(entry);
        }
        Ok(Json::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_ORDER: Order = Order {
        hash_root: false,
        arrays: false,
    };

    fn json(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    fn is_equal(recorded: &str, actual: &str, order: Order) -> bool {
        compare(&json(recorded), &json(actual), order).is_ok()
    }

    #[test]
    fn keys_have_an_order_but_for_hash_maps() {
        assert!(is_equal(r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#, IN_ORDER));
        assert!(!is_equal(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, IN_ORDER));
        assert!(is_equal(
            r#"{"tags":{"a":1,"b":2}}"#,
            r#"{"tags":{"b":2,"a":1}}"#,
            IN_ORDER
        ));
        let hash_root = Order {
            hash_root: true,
            ..IN_ORDER
        };
        assert!(is_equal(r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, hash_root));
        assert!(!is_equal(
            r#"{"x":{"a":1,"b":2}}"#,
            r#"{"x":{"b":2,"a":1}}"#,
            hash_root
        ));
    }

    #[test]
    fn arrays_have_an_order_unless_the_record_says_otherwise() {
        let arrays = Order {
            arrays: true,
            ..IN_ORDER
        };
        assert!(!is_equal("[1,2]", "[2,1]", IN_ORDER));
        assert!(is_equal("[1,2]", "[2,1]", arrays));
        assert!(!is_equal("[1,1]", "[1,2]", arrays));
        assert!(!is_equal("[1]", "[1,1]", arrays));
    }

    #[test]
    fn numbers_have_a_form() {
        assert!(!is_equal("1", "1.0", IN_ORDER));
        assert!(!is_equal("1", "\"1\"", IN_ORDER));
    }

    #[test]
    fn markers_stand_for_values_of_their_type() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(is_equal("\"<now_seconds>\"", &now.to_string(), IN_ORDER));
        assert!(!is_equal("\"<now_seconds>\"", "0", IN_ORDER));
        assert!(!is_equal(
            "\"<now_seconds>\"",
            &(now * 1000).to_string(),
            IN_ORDER
        ));
        assert!(is_equal("\"<now_ms>\"", &(now * 1000).to_string(), IN_ORDER));
        assert!(is_equal("\"<string>\"", "\"x\"", IN_ORDER));
        assert!(!is_equal("\"<string>\"", "1", IN_ORDER));
        assert!(is_equal("\"<any>\"", "{}", IN_ORDER));
        assert!(is_equal(r#"["<each>","<number>"]"#, "[1,2,3]", IN_ORDER));
        assert!(!is_equal(r#"["<each>","<number>"]"#, "[]", IN_ORDER));
        assert!(!is_equal(r#"["<each>","<number>"]"#, r#"[1,"x"]"#, IN_ORDER));
    }

    #[test]
    fn texts_have_any_characters_between_their_parts() {
        assert!(is_text("ab", "ab"));
        assert!(!is_text("ab", "abc"));
        assert!(is_text("a<any>c", "abbc"));
        assert!(!is_text("a<any>c", "abb"));
        assert!(is_text("<any>", ""));
    }
}
