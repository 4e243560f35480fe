//! Annotations in results, as OpenTSDB 2.4.1 returns them; groups of series without points have their names.

use oxtsdb_test_stack::service::Service;
use serde_json::{Value, json};

const START: i64 = 1_356_998_400;

/// Points of three hosts in one hour, and annotations: of `a` in this hour, of `b`, of `c` in a later hour without points.
async fn service() -> Service {
    let service = Service::start().await;
    let points: Vec<Value> = ["a", "b", "c"]
        .iter()
        .flat_map(|host| {
            (0..6)
                .map(move |i| json!({"metric":"m","timestamp":START + i * 10,"value":i,"tags":{"host":host}}))
        })
        .collect();
    assert_eq!(
        service.post("/api/put", json!(points).to_string()).await.status,
        204
    );
    let annotations: Vec<Value> = [
        (START + 1, 1, START + 2, "a1"),
        ((START + 4) * 1000 + 500, 1, 0, "a4.5"),
        (START + 15, 1, 0, "a15"),
        (START + 600, 1, 0, "a600"),
        (START + 13, 2, 0, "b13"),
        (START + 10_800, 3, 0, "c"),
        (START + 20, 0, START + 25, "global20"),
        (START + 30, 0, START + 900, "global30"),
        ((START + 5) * 1000 + 1, 0, 0, "global5"),
    ]
    .into_iter()
    .map(|(start, series, end, name)| {
        let tsuid = match series {
            0 => String::new(),
            series => format!("00000100000100000{series}"),
        };
        json!({"startTime":start,"endTime":end,"tsuid":tsuid,"description":name})
    })
    .collect();
    let response = service
        .post("/api/annotation/bulk", json!(annotations).to_string())
        .await;
    assert_eq!(response.status, 200);
    service
}

/// Of each element: metric, host, number of points, and the descriptions in a member.
fn shown(elements: &Value, member: &str) -> Vec<String> {
    let names = |element: &Value| match element[member].as_array() {
        None => "-".to_owned(),
        Some(list) => {
            let names: Vec<_> = list
                .iter()
                .map(|one| one["description"].as_str().unwrap())
                .collect();
            names.join(",")
        }
    };
    let element = |element: &Value| {
        let (metric, host) = (&element["metric"], &element["tags"]["host"]);
        let points = element["dps"].as_object().unwrap().len();
        format!(
            "{} {} {points}: {}",
            metric.as_str().unwrap(),
            host.as_str().unwrap_or("*"),
            names(element)
        )
    };
    elements.as_array().unwrap().iter().map(element).collect()
}

async fn query(service: &Service, from: i64, to: i64, rest: &str) -> Value {
    let target = format!("/api/query?start={}&end={}&{rest}", START + from, START + to);
    let response = service.get(&target).await;
    assert_eq!(response.status, 200, "{target}: {}", response.text());
    response.json()
}

#[tokio::test]
async fn groups_have_the_annotations_of_their_series() {
    let service = service().await;
    for (from, to, rest, expected) in [
        (0, 100, "m=sum:m", &["m * 6: a1,b13,a15,a4.5"][..]),
        (
            0,
            100,
            "m=sum:m{host=*}",
            &["m a 6: a1,a15,a4.5", "m b 6: b13", "m c 6: -"],
        ),
        (
            0,
            100,
            "m=none:m",
            &["m a 6: a1,a15,a4.5", "m b 6: b13", "m c 6: -"],
        ),
        (4, 13, "m=sum:m", &["m * 1: b13,a4.5"]),
        (16, 100, "m=sum:m", &["m * 4: "]),
        (
            550,
            650,
            "m=sum:m{host=*}",
            &["m a 0: a600", "m b 0: ", "m c 0: -"],
        ),
        (0, 100, "m=sum:10s-avg:m", &["m * 6: a1,b13,a15,a4.5"]),
        (0, 100, "m=sum:rate:m{host=b}", &["m b 5: b13"]),
        (0, 100, "tsuid=sum:000001000001000001", &["m a 6: a1,a15,a4.5"]),
        (0, 100, "m=sum:m&no_annotations&global_annotations", &["m * 6: -"]),
        (0, 10_900, "m=sum:m{host=c}", &["m c 6: c"]),
        (10_700, 10_900, "m=sum:m", &["m c 0: c"]),
        (10_810, 10_900, "m=sum:m{host=*}", &["m c 0: "]),
        (10_800, 10_900, "m=sum:10s-avg-zero:m", &["m c 0: c"]),
        (10_800, 10_900, "m=none:m&no_annotations", &["m c 0: -"]),
        (10_800, 10_900, "tsuid=sum:000001000001000003", &["m c 0: c"]),
    ] {
        let elements = query(&service, from, to, rest).await;
        assert_eq!(shown(&elements, "annotations"), expected, "{from} {to} {rest}");
    }
    let elements = query(&service, 10_800, 10_900, "m=sum:m{host=*}&show_tsuids").await;
    // OpenTSDB returns an empty metric, and no tags and TSUIDs.
    assert_eq!(elements[0]["tsuids"], json!(["000001000001000003"]));
    assert_eq!(elements[0]["tags"], json!({"host": "c"}));
    assert_eq!(elements[0]["aggregateTags"], json!([]));
}

#[tokio::test]
async fn every_element_has_the_global_annotations() {
    let service = service().await;
    for (from, to, rest, expected) in [
        (
            0,
            100,
            "m=sum:m&global_annotations",
            &["m * 6: global20,global5"][..],
        ),
        (
            0,
            1000,
            "m=sum:m&global_annotations",
            &["m * 6: global20,global30,global5"],
        ),
        (6, 24, "m=sum:m&global_annotations", &["m * 2: "]),
        (10_800, 10_900, "m=sum:m&global_annotations", &["m c 0: -"]),
        (0, 100, "m=sum:m", &["m * 6: -"]),
        (
            0,
            100,
            "m=sum:m&m=max:m{host=a}&global_annotations",
            &["m * 6: global20,global5", "m a 6: global20,global5"],
        ),
    ] {
        let elements = query(&service, from, to, rest).await;
        assert_eq!(
            shown(&elements, "globalAnnotations"),
            expected,
            "{from} {to} {rest}"
        );
    }
    let body = json!({"start":START,"end":START + 100,"globalAnnotations":"true",
        "queries":[{"aggregator":"sum","metric":"m","tags":{"host":"b"}}]});
    let response = service.post("/api/query", body.to_string()).await;
    assert_eq!(
        response.text(),
        r#"[{"metric":"m","tags":{"host":"b"},"aggregateTags":[],"annotations":[{"tsuid":"000001000001000002","description":"b13","notes":"","startTime":1356998413,"endTime":0}],"globalAnnotations":[{"tsuid":"","description":"global20","notes":"","startTime":1356998420,"endTime":1356998425},{"tsuid":"","description":"global5","notes":"","startTime":1356998405001,"endTime":0}],"dps":{"1356998400":0,"1356998410":1,"1356998420":2,"1356998430":3,"1356998440":4,"1356998450":5}}]"#
    );
}

#[tokio::test]
async fn functions_keep_annotations_and_joins_have_none() {
    let service = service().await;
    for (call, expected) in [
        ("scale(sum:m{host=a},2)", &["m a 6: a1,a15,a4.5"][..]),
        ("sum(sum:m{host=a},sum:m{host=b})", &["m a 6: ", "m * 6: "]),
    ] {
        let rest = format!("exp={call}&global_annotations");
        let target = format!("/api/query/gexp?start={START}&end={}&{rest}", START + 100);
        let response = service.get(&target).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let elements = response.json();
        assert_eq!(shown(&elements, "annotations"), expected, "{call}");
        let global = shown(&elements, "globalAnnotations");
        assert!(
            global.iter().all(|shown| shown.ends_with(": global20,global5")),
            "{global:?}"
        );
        let elements = service.get(&format!("{target}&no_annotations")).await.json();
        let none = [
            shown(&elements, "annotations"),
            shown(&elements, "globalAnnotations"),
        ]
        .concat();
        assert!(none.iter().all(|shown| shown.ends_with(": -")), "{none:?}");
    }
}
