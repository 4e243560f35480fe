//! Expressions through every front end: `/api/query/gexp`, `/api/query/exp` and `DataService.QueryExpressions`.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::query_expressions_request::expression::Body;
use oxtsdb_proto::data::v1::query_expressions_request::function::Function as Kind;
use oxtsdb_proto::data::v1::query_expressions_request::{Arithmetic, Expression, Function, Input};
use oxtsdb_proto::data::v1::query_expressions_response::Frame;
use oxtsdb_proto::data::v1::{AggregateFunction, QueryExpressionsRequest};
use oxtsdb_tests::Tsdb;
use oxtsdb_tests::read_back::{range, sub_query};
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const T: i64 = 1_356_998_400;

/// `a` is 1, 2, 3 and `b` 10, 20, 30 at 0, 10 and 20 seconds.
async fn with_points() -> anyhow::Result<Tsdb> {
    let tsdb = Tsdb::start().await?;
    let point = |metric: &str, place: i64, value: i64| json!({"metric": metric, "timestamp": T + 10 * place, "value": value, "tags": {"host": "x"}});
    let points: Vec<Value> = (0..3)
        .flat_map(|place| [point("a", place, place + 1), point("b", place, 10 * (place + 1))])
        .collect();
    let response = tsdb.http().post("/api/put", &json!(points)).await?;
    ensure!(response.status == 204, "{response:?}");
    Ok(tsdb)
}

fn calls(exp: &str) -> String {
    let exp = exp.replace('{', "%7B").replace('}', "%7D");
    format!("/api/query/gexp?start={T}&end={}&exp={exp}", T + 100)
}

/// A request to `/api/query/exp` with metrics `a` and `b` and these expressions.
fn formulas(expressions: &[(&str, &str)]) -> Value {
    let expression = |(id, expr): &(&str, &str)| json!({"id": id, "expr": expr});
    json!({
        "time": {"start": T, "end": T + 100, "aggregator": "sum"},
        "metrics": [{"id": "a", "metric": "a"}, {"id": "b", "metric": "b"}],
        "expressions": expressions.iter().map(expression).collect::<Vec<_>>(),
    })
}

fn arithmetic(name: &str, text: &str) -> Expression {
    let text = text.to_owned();
    Expression {
        name: name.to_owned(),
        body: Some(Body::Arithmetic(Arithmetic { text, join: None })),
        fill: 0.0,
    }
}

/// A request over gRPC with inputs `a` and `b` and these expressions.
fn request(expressions: Vec<Expression>) -> QueryExpressionsRequest {
    let input = |name: &str| Input {
        name: name.to_owned(),
        query: Some(sub_query(name, AggregateFunction::Sum)),
        ..Input::default()
    };
    QueryExpressionsRequest {
        range: Some(range(T * 1000, (T + 100) * 1000)),
        inputs: vec![input("a"), input("b")],
        expressions,
        ..QueryExpressionsRequest::default()
    }
}

/// The values of each output, in order.
async fn values(tsdb: &Tsdb, request: QueryExpressionsRequest) -> Result<Vec<(String, Vec<f64>)>, Status> {
    let mut frames = tsdb.data().query_expressions(request).await?.into_inner();
    let mut outputs: Vec<(String, Vec<f64>)> = Vec::new();
    let mut is_whole = false;
    while let Some(frame) = frames.next().await {
        match frame?.frame {
            Some(Frame::Series(series)) => outputs.push((series.output, Vec::new())),
            Some(Frame::Points(points)) => {
                let doubles = points.values.iter().copied();
                let ints = points.int_values.iter().map(|int| *int as f64);
                let (_, values) = outputs
                    .last_mut()
                    .ok_or_else(|| Status::internal("points first"))?;
                values.extend(doubles.chain(ints));
            }
            Some(Frame::Statistics(_)) => is_whole = true,
            Some(Frame::Done(_)) | None => {}
        }
    }
    if is_whole {
        Ok(outputs)
    } else {
        Err(Status::internal("no last frame"))
    }
}

#[tokio::test]
async fn each_front_end_computes() -> anyhow::Result<()> {
    let tsdb = with_points().await?;
    let http = tsdb.http();

    let response = http
        .get(&calls("scale(divide(sum:b{host=*},sum:a{host=*}),2)"))
        .await?;
    ensure!(response.status == 200, "{response:?}");
    let dps = &response.json()?[0]["dps"];
    let (first, second, third) = (T.to_string(), (T + 10).to_string(), (T + 20).to_string());
    ensure!(
        *dps == json!({first: 20.0, second: 20.0, third: 20.0}),
        "{response:?}"
    );

    let request_body = formulas(&[("e", "b - a"), ("f", "e * 2")]);
    let response = http.post("/api/query/exp", &request_body).await?;
    ensure!(response.status == 200, "{response:?}");
    let outputs = &response.json()?["outputs"];
    let rows = |place: usize| outputs[place]["dps"].clone();
    let ms = |place: i64| (T + 10 * place) * 1000;
    ensure!(
        rows(0) == json!([[ms(0), 9.0], [ms(1), 18.0], [ms(2), 27.0]]),
        "{response:?}"
    );
    ensure!(
        rows(1) == json!([[ms(0), 18.0], [ms(1), 36.0], [ms(2), 54.0]]),
        "{response:?}"
    );

    let scaled = Expression {
        body: Some(Body::Function(Function {
            of: vec!["e".to_owned()],
            function: Some(Kind::Scale(0.5)),
        })),
        ..arithmetic("f", "")
    };
    let computed = values(&tsdb, request(vec![arithmetic("e", "b - a"), scaled])).await?;
    let expected = [("e", [9.0, 18.0, 27.0]), ("f", [4.5, 9.0, 13.5])];
    let expected = expected.map(|(name, values)| (name.to_owned(), values.to_vec()));
    ensure!(computed == expected, "{computed:?}");
    Ok(())
}

/// A query with explicit tags reads one more hour; its result has only the first instant of that hour.
#[tokio::test]
async fn formulas_of_explicit_tags_end_where_others_do() -> anyhow::Result<()> {
    let tsdb = with_points().await?;
    let later = [3_600, 3_700]
        .map(|seconds| json!({"metric": "a", "timestamp": T + seconds, "value": 4, "tags": {"host": "x"}}));
    let response = tsdb.http().post("/api/put", &json!(later)).await?;
    ensure!(response.status == 204, "{response:?}");
    let host = json!({"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true});
    let request = json!({
        "time": {"start": T, "end": T + 100, "aggregator": "sum"},
        "filters": [{"id": "f", "tags": [host], "explicitTags": true}],
        "metrics": [{"id": "a", "metric": "a", "filter": "f"}],
        "outputs": [{"id": "a"}],
    });
    let response = tsdb.http().post("/api/query/exp", &request).await?.json()?;
    let rows = response["outputs"][0]["dps"].as_array().context("no rows")?;
    let times: Vec<_> = rows.iter().filter_map(|row| row[0].as_i64()).collect();
    let expected = [0, 10, 20, 3_600].map(|seconds| (T + seconds) * 1000);
    ensure!(times == expected, "{response}");
    Ok(())
}

#[tokio::test]
async fn http_rejects_with_opentsdbs_texts() -> anyhow::Result<()> {
    let tsdb = with_points().await?;
    let http = tsdb.http();
    let deep = format!("{}sum:a{}", "absolute(".repeat(65), ")".repeat(65));
    for (exp, status, message) in [
        ("root(sum:a)", 400, "Function root has not been implemented"),
        ("sum(sum:a)", 400, "Must have 2 to 26 series, got 1 instead"),
        ("scale(sum:a)", 400, "Missing scaling factor"),
        ("scale(sum:a", 400, "Failed to parse scale(sum:a"),
        ("scale(sum:nope,2)", 400, "No such name for 'metrics': 'nope'"),
        ("timeShift(sum:a,'1h')", 400, "unknown time unit=h'"),
        (&deep, 400, "Calls are nested deeper than 64 levels"),
    ] {
        let response = http.get(&calls(exp)).await?;
        let reported = (response.status, response.error_message()?);
        ensure!(reported == (status, message.to_owned()), "{exp}: {reported:?}");
    }

    let deep = format!("{}a{}", "(-".repeat(65), ")".repeat(65));
    let mut unknown = formulas(&[("e", "a")]);
    unknown["metrics"][0]["metric"] = json!("nope");
    for (request_body, status, message) in [
        (
            formulas(&[("e", "a + zz")]),
            400,
            "Expression [a + zz] was missing input zz",
        ),
        (
            formulas(&[("e", "e + a")]),
            400,
            "Self referencing expression found: e",
        ),
        (
            formulas(&[("e", "f + a"), ("f", "e * 2")]),
            400,
            "Circular reference found: f",
        ),
        (
            formulas(&[("a", "b")]),
            400,
            "Duplicated variable or expression id: a",
        ),
        (
            formulas(&[("e", &deep)]),
            400,
            "the expression is deeper than 64 levels",
        ),
        (unknown, 400, "No such name for 'metrics': 'nope'"),
        (
            json!({"time": {"start": T, "aggregator": "sum"}}),
            400,
            "missing or empty metrics",
        ),
    ] {
        let response = http.post("/api/query/exp", &request_body).await?;
        let reported = (response.status, response.error_message()?);
        ensure!(
            reported == (status, message.to_owned()),
            "{request_body}: {reported:?}"
        );
    }
    let response = http
        .post_bytes("/api/query/exp", &[], b"{\"time\":".to_vec())
        .await?;
    ensure!(response.status == 400, "{response:?}");
    let message = response.error_message()?;
    ensure!(
        message == "EOF while parsing a value at line 1 column 8",
        "{message}"
    );
    Ok(())
}

#[tokio::test]
async fn grpc_rejects_with_the_path_of_the_field() -> anyhow::Result<()> {
    let tsdb = with_points().await?;
    let deep = format!("{}a{}", "(-".repeat(65), ")".repeat(65));
    let none = Expression {
        body: Some(Body::Function(Function {
            of: vec!["a".to_owned()],
            function: None,
        })),
        ..arithmetic("e", "")
    };
    for (expressions, field, description) in [
        (
            vec![none],
            "expressions[0].function",
            "has no function, expected one of its kinds",
        ),
        (
            vec![arithmetic("e", "a + zz")],
            "expressions[0].arithmetic.text",
            "has `zz`, which is no name of an input or of an expression",
        ),
        (
            vec![arithmetic("e", "f + a"), arithmetic("f", "e * 2")],
            "expressions[1]",
            "uses itself, or expressions that do",
        ),
        (
            vec![arithmetic("e", &deep)],
            "expressions[0].arithmetic.text",
            "the expression is deeper than 64 levels",
        ),
        (
            vec![arithmetic("a", "b")],
            "expressions[0].name",
            "is `a`, which another one has",
        ),
    ] {
        let status = values(&tsdb, request(expressions))
            .await
            .err()
            .context("no error")?;
        ensure!(status.code() == Code::InvalidArgument, "{status:?}");
        let details = status.get_error_details();
        let violations = &details.bad_request().context("no bad request")?.field_violations;
        let reported = (violations[0].field.as_str(), violations[0].description.as_str());
        ensure!(reported == (field, description), "{reported:?}");
    }

    let mut unknown = request(vec![arithmetic("e", "a")]);
    unknown.inputs[1].query = Some(sub_query("nope", AggregateFunction::Sum));
    let status = values(&tsdb, unknown).await.err().context("no error")?;
    ensure!(status.code() == Code::NotFound, "{status:?}");
    let details = status.get_error_details();
    let info = details.error_info().context("no error info")?;
    ensure!(
        info.reason == "NAME_NOT_FOUND" && info.metadata["name"] == "nope",
        "{info:?}"
    );
    Ok(())
}
