use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::*;
use crate::http::parameters::Parameters;
use crate::http::query::parse::from_parameters;
use crate::http::query::rules::QueryRules;
use oxtsdb_query::Points;

fn group(points: &[(i64, Number)]) -> Group {
    Group {
        number: 0,
        is_whole: true,
        query: 0,
        metric: Arc::from("m\""),
        tags: vec![(Arc::from("host"), Arc::from("a"))],
        aggregate_tags: vec![Arc::from("dc"), Arc::from("rack")],
        tsuids: Vec::new(),
        annotations: None,
        points: points.iter().copied().collect::<Points>(),
    }
}

fn rendered(query: &str, points: &[(i64, Number)]) -> String {
    let parameters = Parameters::parse(Some(&format!("start=1&end=2&{query}")));
    let query = from_parameters(
        &parameters,
        QueryRules {
            fix_duplicates: false,
        },
        &TimeZone::UTC,
        0,
    )
    .unwrap();
    let mut response = ResponseWriter::new(&query, &TagkUids::default());
    response.add(&group(points)).unwrap();
    let statistics = Statistics {
        elapsed: Duration::from_millis(5),
        ..Statistics::default()
    };
    String::from_utf8(response.finish(&statistics).unwrap().into_bytes()).unwrap()
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
    ];
    assert_eq!(
        rendered("m=sum:m", &points),
        format!(
            r#"{HEAD}{{"1":-1,"1":1.0,"2":1.0E7,"3":1.0E-4,"4":-0.0,"5":"NaN","6":-9223372036854775808}}}}]"#
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
        },
        &TimeZone::UTC,
        0,
    )
    .unwrap();
    let statistics = Statistics {
        elapsed: Duration::from_millis(5),
        ..Statistics::default()
    };
    let json = String::from_utf8(
        ResponseWriter::new(&query, &TagkUids::default())
            .finish(&statistics)
            .unwrap()
            .into_bytes(),
    )
    .unwrap();
    assert_eq!(
        json,
        concat!(
            r#"[{"statsSummary":{"emittedDPs":0,"rowsPreFilter":0,"dpsPreFilter":0,"bytesPreFilter":0,"#,
            r#""series":0,"duplicatePoints":0,"skippedCells":0,"resolution":"raw","totalTime":5.0}}]"#
        )
    );
}
