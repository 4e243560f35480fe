//! Compares two responses.
//!
//! Groups, points and numbers are compared in order and as text. Parts without a guarantee of OpenTSDB are not
//! compared: the order of tags, the values of `stats`, the `details` of errors, which show its objects.
//!
//! Numbers have no tolerance: doubles must be equal to the last bit. OpenTSDB's text may have one more digit, since
//! Java before 19 prints some doubles with more digits than necessary (JDK-4511638).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::http::HttpResponse;

/// One element of a response.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Element {
    #[serde(default)]
    metric: String,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    #[serde(default)]
    aggregate_tags: BTreeSet<String>,
    query: Option<Value>,
    tsuids: Option<Vec<String>>,
    annotations: Option<Value>,
    global_annotations: Option<Value>,
    #[serde(default)]
    dps: Points,
    stats: Option<Value>,
    stats_summary: Option<Value>,
}

/// Timestamps and values as text; a timestamp may occur more than once.
#[derive(Debug, Default)]
struct Points {
    are_arrays: bool,
    points: Vec<(String, String)>,
}

/// Whether two texts are equal, or the same double.
fn same_value(theirs: &str, ours: &str) -> bool {
    let double = |text: &str| {
        text.contains('.')
            .then(|| text.parse::<f64>().ok().map(f64::to_bits))
            .flatten()
    };
    theirs == ours || double(theirs).is_some_and(|bits| double(ours) == Some(bits))
}

fn same_point(theirs: &(String, String), ours: &(String, String)) -> bool {
    theirs.0 == ours.0 && same_value(&theirs.1, &ours.1)
}

impl<'de> Deserialize<'de> for Points {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PointsVisitor)
    }
}

struct PointsVisitor;

impl<'de> Visitor<'de> for PointsVisitor {
    type Value = Points;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("points as an object or as arrays")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Points, A::Error> {
        let mut points = Points::default();
        while let Some((instant, value)) = map.next_entry::<String, &RawValue>()? {
            points.points.push((instant, value.get().to_owned()));
        }
        Ok(points)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut pairs: A) -> Result<Points, A::Error> {
        let mut points = Points {
            are_arrays: true,
            ..Points::default()
        };
        while let Some((instant, value)) = pairs.next_element::<(&RawValue, &RawValue)>()? {
            points
                .points
                .push((instant.get().to_owned(), value.get().to_owned()));
        }
        Ok(points)
    }
}

fn elements(response: &HttpResponse) -> Result<Vec<Element>, serde_json::Error> {
    serde_json::from_str(&response.body)
}

/// Whether two responses differ only in elements without points.
pub fn differ_in_no_points(theirs: &HttpResponse, ours: &HttpResponse) -> bool {
    let with_points = |response: &HttpResponse| {
        let mut elements = elements(response).ok()?;
        elements.retain(|element| !element.dps.points.is_empty() || element.stats_summary.is_some());
        Some(elements)
    };
    if (theirs.status, ours.status) != (200, 200) {
        return false;
    }
    match (with_points(theirs), with_points(ours)) {
        (Some(theirs), Some(ours)) => elements_difference(&theirs, &ours).is_none(),
        _ => false,
    }
}

/// Whether two responses differ only in timestamps, which are up to an hour later in OpenTSDB.
pub fn differ_in_an_hour(theirs: &HttpResponse, ours: &HttpResponse) -> bool {
    if (theirs.status, ours.status) != (200, 200) {
        return false;
    }
    let (Ok(mut theirs), Ok(ours)) = (elements(theirs), elements(ours)) else {
        return false;
    };
    let pairs = theirs.iter_mut().zip(&ours);
    for (theirs, ours) in pairs.flat_map(|(theirs, ours)| theirs.dps.points.iter_mut().zip(&ours.dps.points))
    {
        let (Ok(later), Ok(instant)) = (theirs.0.parse::<i64>(), ours.0.parse::<i64>()) else {
            return false;
        };
        // Milliseconds have more digits.
        let hour = if ours.0.len() > 10 { 3_600_000 } else { 3600 };
        if !(0..=hour).contains(&(later - instant)) {
            return false;
        }
        theirs.0.clone_from(&ours.0);
    }
    elements_difference(&theirs, &ours).is_none()
}

/// Whether our status is OpenTSDB's. Faults of the client that it reports as its own are 400 with us.
pub fn is_same_status(theirs: &HttpResponse, ours: &HttpResponse) -> bool {
    theirs.status == ours.status || (theirs.status, ours.status) == (500, 400)
}

/// The first difference between OpenTSDB's response and ours.
pub fn difference(theirs: &HttpResponse, ours: &HttpResponse) -> Option<String> {
    if !is_same_status(theirs, ours) {
        return Some(format!("status {} and {}", theirs.status, ours.status));
    }
    if theirs.status != 200 {
        return message_difference(theirs, ours);
    }
    match (elements(theirs), elements(ours)) {
        (Ok(theirs), Ok(ours)) => elements_difference(&theirs, &ours),
        (theirs, ours) => {
            let error = |response: Result<Vec<Element>, serde_json::Error>| {
                response.err().map(|error| error.to_string())
            };
            Some(format!(
                "cannot be read: {:?} and {:?}",
                error(theirs),
                error(ours)
            ))
        }
    }
}

/// Compares the messages of two errors. After the text of an infinity OpenTSDB's message shows its objects.
fn message_difference(theirs: &HttpResponse, ours: &HttpResponse) -> Option<String> {
    let message = |response: &HttpResponse| {
        let message = response
            .error_message()
            .unwrap_or_else(|error| format!("{error:#}"));
        match message.split_once(" in this ") {
            Some((start, _)) if start.starts_with("Got ") => start.to_owned(),
            _ => message,
        }
    };
    let (theirs, ours) = (message(theirs), message(ours));
    (theirs != ours).then(|| format!("message `{theirs}` and `{ours}`"))
}

fn elements_difference(theirs: &[Element], ours: &[Element]) -> Option<String> {
    if theirs.len() != ours.len() {
        return Some(format!("{} and {} elements", theirs.len(), ours.len()));
    }
    theirs
        .iter()
        .zip(ours)
        .enumerate()
        .find_map(|(place, (theirs, ours))| {
            let what = element_difference(theirs, ours)?;
            Some(format!("element {place}: {what}"))
        })
}

fn element_difference(theirs: &Element, ours: &Element) -> Option<String> {
    fn field_difference<T: PartialEq + fmt::Debug>(what: &str, theirs: &T, ours: &T) -> Option<String> {
        (theirs != ours).then(|| format!("{what} {theirs:?} and {ours:?}"))
    }
    field_difference("metric", &theirs.metric, &ours.metric)
        .or_else(|| field_difference("tags", &theirs.tags, &ours.tags))
        .or_else(|| field_difference("aggregateTags", &theirs.aggregate_tags, &ours.aggregate_tags))
        .or_else(|| field_difference("query", &theirs.query, &ours.query))
        .or_else(|| field_difference("tsuids", &theirs.tsuids, &ours.tsuids))
        .or_else(|| field_difference("annotations", &theirs.annotations, &ours.annotations))
        .or_else(|| {
            field_difference(
                "globalAnnotations",
                &theirs.global_annotations,
                &ours.global_annotations,
            )
        })
        .or_else(|| field_difference("stats", &theirs.stats.is_some(), &ours.stats.is_some()))
        .or_else(|| {
            field_difference(
                "statsSummary",
                &theirs.stats_summary.is_some(),
                &ours.stats_summary.is_some(),
            )
        })
        .or_else(|| points_difference(&theirs.dps, &ours.dps))
}

fn points_difference(theirs: &Points, ours: &Points) -> Option<String> {
    if theirs.are_arrays != ours.are_arrays {
        return Some("points in another form".to_owned());
    }
    let (theirs, ours) = (&theirs.points, &ours.points);
    if let Some(place) = theirs
        .iter()
        .zip(ours)
        .position(|(theirs, ours)| !same_point(theirs, ours))
    {
        let differ = theirs
            .iter()
            .zip(ours)
            .filter(|(theirs, ours)| theirs != ours)
            .count();
        return Some(format!(
            "point {place} of {}: {:?} and {:?} ({differ} such)",
            theirs.len(),
            theirs[place],
            ours[place],
        ));
    }
    let next = |points: &[(String, String)], count: usize| points.get(count).cloned();
    (theirs.len() != ours.len()).then(|| {
        format!(
            "{} and {} points; then {:?} and {:?}",
            theirs.len(),
            ours.len(),
            next(theirs, ours.len()),
            next(ours, theirs.len()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, body: &str) -> HttpResponse {
        let body = body.to_owned();
        HttpResponse { status, body }
    }

    fn compare(theirs: &str, ours: &str) -> Option<String> {
        difference(&response(200, theirs), &response(200, ours))
    }

    const ONE: &str =
        r#"[{"metric":"m","tags":{"a":"b","c":"d"},"aggregateTags":["e","f"],"dps":{"1":1,"1":2.0}}]"#;

    #[test]
    fn ignores_the_order_of_tags() {
        let other = ONE
            .replace(r#""a":"b","c":"d""#, r#""c":"d","a":"b""#)
            .replace(r#""e","f""#, r#""f","e""#);
        assert_ne!(ONE, other);
        assert_eq!(compare(ONE, &other), None);
    }

    #[test]
    fn accepts_an_extra_digit_of_a_double() {
        assert!(same_value("2.0E-3", "0.002") && same_value("9.2233720368547748E18", "9.223372036854775E18"));
        assert!(!same_value("2.0", "2") && !same_value("0.0", "-0.0") && !same_value("1.0", "\"1.0\""));
    }

    #[test]
    fn finds_all_other_differences() {
        for (from, to) in [
            ("2.0", "2"),
            ("2.0", "2.0000000000000004"),
            (r#","1":2.0"#, ""),
            (r#""1":1,"1":2.0"#, r#""1":2.0,"1":1"#),
            (r#"{"1":1,"1":2.0}"#, "[[1,1],[1,2.0]]"),
            ("\"m\"", "\"n\""),
            (r#""e","f""#, r#""e""#),
            (r#""dps""#, r#""tsuids":[],"dps""#),
            ("[{", r#"[{"dps":{}},{"#),
        ] {
            let other = ONE.replace(from, to);
            assert!(compare(ONE, &other).is_some(), "{other}");
            assert!(compare(&other, ONE).is_some(), "{other}");
        }
    }

    #[test]
    fn recognizes_elements_without_points() {
        let more = ONE.strip_suffix("]").unwrap();
        let more = format!(r#"{more},{{"metric":"","tags":{{}},"aggregateTags":[],"dps":{{}}}}]"#);
        let only =
            |theirs: &str, ours: &str| differ_in_no_points(&response(200, theirs), &response(200, ours));
        assert!(compare(&more, ONE).is_some() && only(&more, ONE) && only(ONE, &more));
        assert!(!only(&more.replace("2.0", "3.0"), ONE));
        assert!(!only(&more.replace(r#""dps":{}"#, r#""dps":{"1":1}"#), ONE));
        assert!(!differ_in_no_points(&response(500, &more), &response(200, ONE)));
    }

    #[test]
    fn recognizes_timestamps_that_are_an_hour_late() {
        let only = |theirs: &str, ours: &str| differ_in_an_hour(&response(200, theirs), &response(200, ours));
        let late = ONE.replace(r#""1":"#, r#""3601":"#);
        assert!(compare(&late, ONE).is_some() && only(&late, ONE) && !only(ONE, &late));
        assert!(!only(&late.replace("3601", "3602"), ONE));
        assert!(!only(&late.replace("2.0", "3.0"), ONE));
        assert!(!only(&late.replace(r#","3601":2.0"#, ""), ONE));
    }

    #[test]
    fn compares_errors_by_status_and_message() {
        let error = |status: u16, message: &str, details: &str| {
            let body =
                format!(r#"{{"error":{{"code":{status},"message":"{message}","details":"{details}"}}}}"#);
            response(status, &body)
        };
        assert_eq!(difference(&error(400, "m", "a"), &error(400, "m", "b")), None);
        assert!(difference(&error(400, "m", ""), &error(400, "n", "")).is_some());
        assert!(difference(&error(400, "m", ""), &error(500, "m", "")).is_some());
        assert!(difference(&error(400, "m", ""), &response(200, ONE)).is_some());
    }
}
