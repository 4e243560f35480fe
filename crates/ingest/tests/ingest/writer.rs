mod failures;
mod lanes;

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::{NamePlace, PointErrorReason};
use oxtsdb_ingest::{NewPoint, PointError, PointRef, WriteError, WriteOutcome};
use oxtsdb_metadata::uids::series::SeriesRef;
use oxtsdb_metadata::uids::{UidRejection, Uids, UidsError};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{NameError, Timestamp, Uid, UidKind, Value};
use oxtsdb_test_stack::{Gate, TestStack};
use uid_service::UidSettings;

fn point<'a>(metric: &'a str, tags: &'a [(&'a str, &'a str)], seconds: u32, value: i64) -> NewPoint<'a> {
    let timestamp = Timestamp::from_seconds(seconds);
    NewPoint {
        metric,
        tags,
        timestamp,
        value: Value::Int(value),
    }
}

/// The names of the recorded vectors, with the UIDs that OpenTSDB gave them.
async fn assign_vector_names(stack: &TestStack) {
    let names = [
        (UidKind::Metric, "sys.cpu.user"),
        (UidKind::Metric, "sys.mem.free"),
        (UidKind::Metric, "app.lat"),
        (UidKind::Tagk, "host"),
        (UidKind::Tagk, "dc"),
        (UidKind::Tagk, "cpu"),
        (UidKind::Tagv, "web01"),
        (UidKind::Tagv, "web02"),
        (UidKind::Tagv, "lax"),
        (UidKind::Tagv, "0"),
    ];
    let uids = stack
        .service
        .uids
        .assign_for(&names, |_| None, None)
        .await
        .unwrap();
    assert!(uids.iter().all(Result::is_ok));
}

async fn write_all(stack: &TestStack, points: &[NewPoint<'_>]) {
    let outcome = stack.service.writer.write(points, None).await.unwrap();
    assert_eq!(
        outcome,
        WriteOutcome {
            written: points.len() as u64,
            errors: Vec::new()
        }
    );
}

#[tokio::test]
async fn stores_the_documented_example_byte_for_byte() {
    let stack = TestStack::start().await;
    let tags = [("host", "web01"), ("dc", "lga")];
    write_all(&stack, &[point("sys.cpu.nice", &tags, 1_346_846_400, 18)]).await;
    assert_eq!(
        stack.cells("tsdb").await,
        ["00000150473ec0000001000001000002000002 t:0000 12"]
    );
    let metrics = "6d657472696373";
    let uid_cells = stack.cells("tsdb-uid").await;
    assert!(
        uid_cells.contains(&format!("00 id:{metrics} 0000000000000001")),
        "{uid_cells:#?}"
    );
    assert!(
        uid_cells.contains(&"00 id:7461676b 0000000000000002".to_owned()),
        "two tag keys"
    );
    assert!(
        uid_cells.contains(&"00 id:74616776 0000000000000002".to_owned()),
        "two tag values"
    );
}

/// Recorded from OpenTSDB 2.4.1 on HBase.
#[tokio::test]
async fn stores_integers_in_the_fewest_bytes() {
    let stack = TestStack::start().await;
    assign_vector_names(&stack).await;
    let recorded = [
        (0_i64, "0000 00"),
        (-1, "0010 ff"),
        (127, "0020 7f"),
        (-128, "0030 80"),
        (128, "0041 0080"),
        (-129, "0051 ff7f"),
        (32767, "0061 7fff"),
        (-32768, "0071 8000"),
        (32768, "0083 00008000"),
        (-32769, "0093 ffff7fff"),
        (2_147_483_647, "00a3 7fffffff"),
        (-2_147_483_648, "00b3 80000000"),
        (2_147_483_648, "00c7 0000000080000000"),
        (-2_147_483_649, "00d7 ffffffff7fffffff"),
        (i64::MAX, "00e7 7fffffffffffffff"),
        (i64::MIN, "00f7 8000000000000000"),
    ];
    let points: Vec<_> = (1_356_998_400..)
        .zip(recorded)
        .map(|(seconds, (value, _))| point("sys.cpu.user", &[("host", "web01")], seconds, value))
        .collect();
    write_all(&stack, &points).await;
    let expected: Vec<_> = recorded
        .iter()
        .map(|(_, cell)| format!("00000150e22700000001000001 t:{cell}"))
        .collect();
    assert_eq!(stack.cells("tsdb").await, expected);
}

/// Recorded from OpenTSDB 2.4.1 on HBase.
#[tokio::test]
async fn assigns_points_at_hour_boundaries_to_rows() {
    let stack = TestStack::start().await;
    assign_vector_names(&stack).await;
    let tags = [("host", "web01")];
    let at = |seconds, value| point("app.lat", &tags, seconds, value);
    write_all(
        &stack,
        &[at(1_357_001_999, 1), at(1_357_002_000, 2), at(u32::MAX, 8)],
    )
    .await;
    let expected = [
        "00000350e22700000001000001 t:e0f0 01",
        "00000350e23510000001000001 t:0000 02",
        "000003fffff960000001000001 t:69f0 08",
    ];
    assert_eq!(stack.cells("tsdb").await, expected);
}

/// Recorded from OpenTSDB 2.4.1 on HBase.
#[tokio::test]
async fn sorts_tags_by_uid() {
    let stack = TestStack::start().await;
    assign_vector_names(&stack).await;
    let points = [
        point(
            "sys.cpu.user",
            &[("host", "web01"), ("dc", "lax"), ("cpu", "0")],
            1_356_998_400,
            1,
        ),
        point(
            "sys.cpu.user",
            &[("cpu", "0"), ("dc", "lax"), ("host", "web01")],
            1_356_998_401,
            1,
        ),
        point("sys.cpu.user", &[("cpu", "0"), ("dc", "lax")], 1_356_998_402, 1),
    ];
    write_all(&stack, &points).await;
    let expected = [
        "00000150e22700000001000001000002000003000003000004 t:0000 01",
        "00000150e22700000001000001000002000003000003000004 t:0010 01",
        "00000150e22700000002000003000003000004 t:0020 01",
    ];
    assert_eq!(stack.cells("tsdb").await, expected);
}

#[tokio::test]
async fn assigns_uids_in_the_order_of_the_points() {
    let stack = TestStack::start().await;
    let points = [
        point("m2", &[("k2", "v2"), ("k1", "v1")], 1, 1),
        point("m1", &[("k1", "v3"), ("k3", "v1")], 1, 1),
    ];
    write_all(&stack, &points).await;
    let expected: Vec<(UidKind, &str, u64)> = vec![
        (UidKind::Metric, "m2", 1),
        (UidKind::Metric, "m1", 2),
        (UidKind::Tagk, "k2", 1),
        (UidKind::Tagk, "k1", 2),
        (UidKind::Tagk, "k3", 3),
        (UidKind::Tagv, "v2", 1),
        (UidKind::Tagv, "v1", 2),
        (UidKind::Tagv, "v3", 3),
    ];
    for (kind, name, number) in expected {
        let uid = stack.service.uids.uid(kind, name, None).await.unwrap();
        assert_eq!(uid.map(|uid| uid.number()), Some(number), "{kind} {name}");
    }
}

#[tokio::test]
async fn reports_invalid_points_by_index_and_stores_the_rest() {
    let stack = TestStack::start().await;
    let nine = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|tagk| (tagk, "v"));
    let points = [
        point("good", &[("host", "a")], 1, 1),
        point("", &[("host", "a")], 1, 1),
        point("a b", &[("host", "a")], 1, 1),
        point("m", &[("ho st", "a")], 1, 1),
        point("m", &[("host", "")], 1, 1),
        point("m", &[("host", "日本")], 1, 1),
        point("m", &[], 1, 1),
        point("m", &nine, 1, 1),
        point("m", &[("host", "a"), ("dc", "x"), ("host", "a")], 1, 1),
        point("good", &[("host", "b")], 1, 1),
    ];
    let outcome = stack.service.writer.write(&points, None).await.unwrap();
    assert_eq!(outcome.written, 2);
    let reported: Vec<_> = outcome
        .errors
        .iter()
        .map(|error| format!("{} {}", error.index, error.reason))
        .collect();
    let illegal = "illegal character ` ` at position";
    let allowed = "allowed are letters, digits, `-`, `_`, `.`, `/` and what --extra-name-characters of the UID service adds";
    let expected = [
        "1 metric: name is empty".to_owned(),
        format!("2 metric: name `a b` has the {illegal} 1, {allowed}"),
        format!("3 tag key with value `a`: name `ho st` has the {illegal} 2, {allowed}"),
        "4 tag value with key `host`: name is empty".to_owned(),
        "5 tag value with key `host`: name `日本` has the character `日`, which is not in ISO-8859-1 and cannot be stored"
            .to_owned(),
        "6 series has no tags, at least 1 is needed".to_owned(),
        "7 series has 9 tags, at most 8 are allowed".to_owned(),
        "8 tag key `host` occurs twice, with the values `a` and `a`".to_owned(),
    ];
    assert_eq!(reported, expected);
    assert_eq!(stack.cells("tsdb").await.len(), 2);
    let uid = stack.service.uids.uid(UidKind::Metric, "m", None).await.unwrap();
    assert_eq!(uid, None, "no name of a rejected point is assigned");
}

#[tokio::test]
async fn a_name_that_is_not_assigned_fails_only_its_points() {
    let mut uid_settings = UidSettings::default();
    uid_settings.naming.auto_create_metrics = false;
    let stack = TestStack::with(DataSettings::default(), uid_settings).await;
    let points = [point("unknown", &[("host", "a")], 1, 1)];
    let outcome = stack.service.writer.write(&points, None).await.unwrap();
    let expected = PointErrorReason::NoUid {
        place: NamePlace::Metric,
        name: "unknown".to_owned(),
        rejection: UidRejection::AutoCreateDisabled,
    };
    assert_eq!(
        outcome.errors,
        [PointError {
            index: 0,
            reason: Arc::new(expected)
        }]
    );
    let uid = stack.service.uids.uid(UidKind::Tagk, "host", None).await.unwrap();
    assert_eq!(
        uid, None,
        "no UID is spent on the tags of a point that cannot be stored"
    );
}

#[tokio::test]
async fn writes_are_idempotent() {
    let stack = TestStack::start().await;
    let points = [
        point("m", &[("host", "a")], 1, 1),
        point("m", &[("host", "b")], 1, 2),
    ];
    write_all(&stack, &points).await;
    let before = (stack.cells("tsdb").await, stack.cells("tsdb-uid").await);
    write_all(&stack, &points).await;
    assert_eq!((stack.cells("tsdb").await, stack.cells("tsdb-uid").await), before);
}

#[tokio::test]
async fn accepts_a_tsuid_if_its_uids_have_names() {
    let stack = TestStack::start().await;
    write_all(&stack, &[point("m", &[("host", "a")], 1, 1)]).await;
    let written = |tsuid: Vec<u8>| {
        let writer = stack.service.writer.clone();
        async move {
            let series = SeriesRef::Tsuid(&tsuid);
            let (timestamp, value) = (Timestamp::from_seconds(2), Value::Int(2));
            writer
                .write_refs(
                    1,
                    |_| PointRef {
                        series,
                        timestamp,
                        value,
                    },
                    None,
                )
                .await
                .unwrap()
        }
    };
    assert_eq!(written(vec![0, 0, 1, 0, 0, 1, 0, 0, 1]).await.written, 1);
    assert_eq!(
        stack.cells("tsdb").await,
        [
            "00000100000000000001000001 t:0010 01",
            "00000100000000000001000001 t:0020 02"
        ]
    );
    let unknown = written(vec![0, 0, 1, 0, 0, 1, 0, 0, 9]).await.errors;
    assert!(matches!(
        *unknown[0].reason,
        PointErrorReason::UnknownUid {
            kind: UidKind::Tagv,
            ..
        }
    ));
    let short = written(vec![0, 0, 1, 0, 0, 1]).await.errors;
    assert!(
        matches!(*short[0].reason, PointErrorReason::InvalidTsuid(_)),
        "{short:?}"
    );
}

#[tokio::test]
async fn writes_salt_before_the_metric() {
    let mut settings = DataSettings::default();
    settings.tables.salt_width = 1;
    let stack = TestStack::with(settings, UidSettings::default()).await;
    write_all(&stack, &[point("m", &[("host", "a")], 1_356_998_400, 1)]).await;
    let layout = stack.service.uids.layout();
    let tsuid = [0, 0, 1, 0, 0, 1, 0, 0, 1];
    let salt = layout
        .salt
        .bytes_of(layout.salt.bucket(&tsuid))
        .as_bytes()
        .to_vec();
    let expected = format!("{}00000150e22700000001000001 t:0000 01", hex::encode(&salt));
    assert_eq!(stack.cells("tsdb").await, [expected]);
}

#[tokio::test]
async fn rejects_a_uid_service_with_unexpected_widths() {
    let mut settings = DataSettings::default();
    settings.tables.expected_uid_widths = Some("4/3/3".to_owned());
    let stack = TestStack::start().await;
    let error = Uids::connect(stack.uid_client.clone(), &settings, None)
        .await
        .unwrap_err();
    let expected = UidsError::Layout {
        detail: "it has the UID widths 3/3/3, --expected-uid-widths says 4/3/3".to_owned(),
    };
    assert_eq!(error, expected);
}

#[tokio::test]
async fn finds_a_name_as_soon_as_a_write_has_assigned_it() {
    let stack = TestStack::start().await;
    let uids = &stack.service.uids;
    assert_eq!(uids.uid(UidKind::Metric, "m", None).await, Ok(None));
    write_all(&stack, &[point("m", &[("host", "a")], 1, 1)]).await;
    let uid = uids.uid(UidKind::Metric, "m", None).await.unwrap().unwrap();
    let names = uids
        .names(
            UidKind::Metric,
            &[uid, Uid::from_bytes(&[0, 0, 9]).unwrap()],
            None,
        )
        .await
        .unwrap();
    assert_eq!(names[0].as_deref(), Some("m"));
    assert_eq!(names[1], None);
    let suggested = uids.suggest(UidKind::Tagk, "h", (10, None), None).await.unwrap();
    let suggested = suggested.mappings.iter().map(|mapping| &*mapping.name);
    assert_eq!(suggested.collect::<Vec<_>>(), ["host"]);
    assert_eq!(
        uids.uid(UidKind::Metric, "日本", None).await,
        Ok(None),
        "such a name cannot exist"
    );
}

#[test]
fn an_invalid_name_reports_its_kind() {
    let reason = PointErrorReason::InvalidName {
        place: NamePlace::Tagk { tagv: "a".to_owned() },
        name: String::new(),
        error: NameError::Empty,
    };
    assert_eq!(reason.to_string(), "tag key with value `a`: name is empty");
}
