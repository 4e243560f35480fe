//! Annotations as text.

use jiff::tz::TimeZone;
use oxtsdb_client::{Annotation, Timestamp};
use serde_json::json;

use crate::time_zone;

/// A line for each annotation: START, END, DESCRIPTION, NOTES, KEY=VALUE ..., ETAG, with tabs between. Line breaks and
/// tabs of texts are blanks.
pub fn lines(annotations: &[Annotation], zone: &TimeZone) -> String {
    let line = |annotation: &Annotation| {
        let custom = annotation
            .custom
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let fields = [
            shown(annotation.start, zone),
            annotation.end.map(|end| shown(end, zone)).unwrap_or_default(),
            annotation.description.clone(),
            annotation.notes.clone(),
            custom.collect::<Vec<_>>().join(" "),
            annotation.etag.clone(),
        ];
        let fields = fields.map(|field| field.replace(['\t', '\n', '\r'], " "));
        fields.join("\t").trim_end().to_owned() + "\n"
    };
    annotations.iter().map(line).collect()
}

/// An annotation as OpenTSDB's HTTP API has it.
pub fn json_object(annotation: &Annotation) -> String {
    let number = |ms: i64| if ms % 1000 == 0 { ms / 1000 } else { ms };
    let mut object = json!({
        "tsuid": hex::encode_upper(&annotation.tsuid),
        "description": annotation.description,
        "notes": annotation.notes,
        "startTime": number(annotation.start.millis()),
        "endTime": number(annotation.end.map_or(0, |end| end.millis())),
    });
    if !annotation.custom.is_empty() {
        object["custom"] = json!(annotation.custom);
    }
    object.to_string()
}

fn shown(time: Timestamp, zone: &TimeZone) -> String {
    time_zone::show(time.millis(), zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotation() -> Annotation {
        Annotation {
            tsuid: vec![0, 0, 1].into(),
            start: Timestamp::from_seconds(1_346_846_400),
            end: Some(Timestamp::from_millis(1_346_846_400_500)),
            description: "a\tb".to_owned(),
            notes: "two\nlines".to_owned(),
            custom: [("k".to_owned(), "v".to_owned())].into(),
            etag: "e".to_owned(),
        }
    }

    #[test]
    fn a_line_has_all_fields() {
        assert_eq!(
            lines(&[annotation()], &TimeZone::UTC),
            "2012-09-05 12:00:00Z\t2012-09-05 12:00:00.500Z\ta b\ttwo lines\tk=v\te\n"
        );
    }

    #[test]
    fn json_has_opentsdbs_fields() {
        let parsed: serde_json::Value = serde_json::from_str(&json_object(&annotation())).unwrap();
        assert_eq!(
            parsed,
            json!({"tsuid":"000001","description":"a\tb","notes":"two\nlines","custom":{"k":"v"},
                   "startTime":1_346_846_400,"endTime":1_346_846_400_500_i64})
        );
    }
}
