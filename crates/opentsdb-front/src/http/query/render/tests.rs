use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use oxtsdb_query::{Limits, Points};

use super::*;
use crate::http::parameters::Parameters;
use crate::http::query::parse::from_parameters;
use crate::http::query::rules::QueryRules;

fn group(points: &[(i64, Number)]) -> Group {
    Group {
        number: 0,
        is_whole: true,
        query: 0,
        metric: Arc::from("m\""),
        part: None,
        tags: vec![(Arc::from("host"), Arc::from("a"))],
        aggregate_tags: vec![Arc::from("dc"), Arc::from("rack")],
        tsuids: Vec::new(),
        annotations: None,
        rollup: None,
        points: points.iter().copied().collect::<Points>(),
    }
}

fn rendered(query: &str, points: &[(i64, Number)]) -> String {
    rendered_groups(query, &[points])
}

fn rendered_groups(query: &str, groups: &[&[(i64, Number)]]) -> String {
    let parameters = Parameters::parse(Some(&format!("start=1&end=2&{query}")));
    let query = from_parameters(
        &parameters,
        QueryRules {
            fix_duplicates: false,
            omits_nan: false,
            allow_delete: false,
            may_delete: true,
        },
        &TimeZone::UTC,
        0,
    )
    .unwrap();
    let renderer = GroupRenderer::new(&query, &TagkUids::default());
    let mut groups = groups.iter().map(|points| (group(points), None));
    let budget = Budget::from_limits(Limits::NONE);
    let (parts, held) = renderer.encode(&mut groups, None, &budget).unwrap();
    let mut writer = ResponseWriter::new(&query);
    let mut body = writer.groups(parts, held);
    body.extend(writer.end(&Statistics::default()));
    String::from_utf8(body.into_bytes()).unwrap()
}

const HEAD: &str = r#"[{"metric":"m\"","tags":{"host":"a"},"aggregateTags":["dc","rack"],"dps":"#;

#[test]
fn prints_numbers_like_java() {
    let points = [
        (1_000, Number::Int(-1)),
        (1_999, Number::Double(1.0)),
        (2_000, Number::Double(1e7)),
        (3_000, Number::Double(0.0001)),
        (4_000, Number::Double(-0.0)),
        (5_000, Number::Double(f64::NAN)),
        (6_000, Number::Int(i64::MIN)),
        (7_000, Number::Double(f64::INFINITY)),
        (8_000, Number::Double(f64::NEG_INFINITY)),
    ];
    assert_eq!(
        rendered("m=sum:m", &points),
        format!(
            r#"{HEAD}{{"1":-1,"1":1.0,"2":1.0E7,"3":1.0E-4,"4":-0.0,"5":"NaN","6":-9223372036854775808,"7":"Infinity","8":"-Infinity"}}}}]"#
        ),
        "seconds are not merged"
    );
    assert_eq!(
        rendered("m=sum:1s-sum-null:m&arrays&ms", &points[4..6]),
        format!("{HEAD}[[4000,-0.0],[5000,null]]}}]")
    );
}

#[test]
fn renders_an_empty_response() {
    assert_eq!(rendered("m=sum:m", &[]), format!("{HEAD}{{}}}}]"));
    assert_eq!(rendered("m=sum:m&arrays", &[]), format!("{HEAD}[]}}]"));
    let parameters = Parameters::parse(Some("start=1&end=2&m=sum:m&show_summary"));
    let query = from_parameters(
        &parameters,
        QueryRules {
            fix_duplicates: false,
            omits_nan: false,
            allow_delete: false,
            may_delete: true,
        },
        &TimeZone::UTC,
        0,
    )
    .unwrap();
    let statistics = Statistics {
        elapsed: Duration::from_millis(5),
        ..Statistics::default()
    };
    let json = String::from_utf8(ResponseWriter::new(&query).end(&statistics).into_bytes()).unwrap();
    assert_eq!(
        json,
        concat!(
            r#"[{"statsSummary":{"emittedDPs":0,"rowsPreFilter":0,"dpsPreFilter":0,"bytesPreFilter":0,"#,
            r#""series":0,"duplicatePoints":0,"skippedCells":0,"resolution":"raw","totalTime":5.0}}]"#
        )
    );
}

#[test]
fn the_texts_of_instants_are_those_of_each_group() {
    // More than the runs that are kept; the second has the instants of the first, the third others.
    let points = |from: i64, count: i64, millis: i64| -> Vec<(i64, Number)> {
        let place = |place| (from + place * millis, Number::Int(place));
        (0..count).map(place).collect()
    };
    let groups = [
        points(1_000, 20_000, 1_000),
        points(1_000, 20_000, 1_000),
        points(1_500, 1_500, 1_000),
        points(1_500, 3_000, 500),
        Vec::new(),
    ];
    let by_hand = |arrays: bool, in_millis: bool, points: &[(i64, Number)]| {
        let texts = points.iter().map(|(time_ms, value)| {
            let (time, Number::Int(int)) = (if in_millis { *time_ms } else { time_ms / 1000 }, value) else {
                panic!("integers")
            };
            if arrays {
                format!("[{time},{int}]")
            } else {
                format!("\"{time}\":{int}")
            }
        });
        let texts: Vec<String> = texts.collect();
        if arrays {
            format!("[{}]", texts.join(","))
        } else {
            format!("{{{}}}", texts.join(","))
        }
    };
    for (query, arrays, in_millis) in [
        ("m=sum:m", false, false),
        ("m=sum:m&arrays", true, false),
        ("m=sum:m&ms", false, true),
    ] {
        let groups: Vec<&[(i64, Number)]> = groups.iter().map(Vec::as_slice).collect();
        let expected = groups.iter().map(|points| {
            let dps = by_hand(arrays, in_millis, points);
            format!("{}{dps}}}", HEAD.strip_prefix('[').unwrap())
        });
        let expected: Vec<String> = expected.collect();
        let rendered = rendered_groups(query, &groups);
        assert!(rendered == format!("[{}]", expected.join(",")), "{query}");
    }
}
