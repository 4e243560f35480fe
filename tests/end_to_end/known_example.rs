//! The example of OpenTSDB's documentation is stored byte for byte as OpenTSDB stores it.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::data::v1::CellType;
use oxtsdb_proto::uid::v1::{
    GetUidUsageRequest, LookupNamesRequest, LookupUidsRequest, UidName, UidValue, lookup_names_response,
    lookup_uids_response,
};
use oxtsdb_tests::{Tsdb, read_back};
use serde_json::json;

/// UIDs are assigned in this order: metric, then key and value of each tag.
const MAPPINGS: [(UidKind, &str, [u8; 3]); 5] = [
    (UidKind::Metric, "sys.cpu.nice", [0, 0, 1]),
    (UidKind::TagKey, "host", [0, 0, 1]),
    (UidKind::TagValue, "web01", [0, 0, 1]),
    (UidKind::TagKey, "dc", [0, 0, 2]),
    (UidKind::TagValue, "lga", [0, 0, 2]),
];

/// Puts the point on an empty store, over HTTP.
async fn with_the_example() -> anyhow::Result<Tsdb> {
    let tsdb = Tsdb::start().await?;
    let point = json!({
        "metric": "sys.cpu.nice",
        "timestamp": 1_346_846_400,
        "value": 18,
        "tags": {"host": "web01", "dc": "lga"},
    });
    // UIDs depend on the order of the keys, and `json!` sorts them: so the text is written out.
    let text =
        r#"{"metric":"sys.cpu.nice","timestamp":1346846400,"value":18,"tags":{"host":"web01","dc":"lga"}}"#;
    ensure!(serde_json::from_str::<serde_json::Value>(text)? == point);
    let response = tsdb
        .http()
        .post_bytes("/api/put", &[], text.as_bytes().to_vec())
        .await?;
    ensure!(response.status == 204 && response.body.is_empty(), "{response:?}");
    Ok(tsdb)
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_the_documented_example_byte_for_byte() -> anyhow::Result<()> {
    let tsdb = with_the_example().await?;
    let rows = read_back::all_rows(&mut tsdb.data_admin()).await?;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row = &rows[0];
    assert_eq!(
        hex::encode(&row.row_key),
        "00000150473ec0000001000001000002000002"
    );
    assert_eq!(hex::encode(&row.tsuid), "000001000001000001000002000002");
    assert_eq!(row.base_timestamp_ms, 1_346_846_400_000);
    assert_eq!(row.cells.len(), 1, "{row:?}");
    let cell = &row.cells[0];
    assert_eq!(hex::encode(&cell.qualifier), "0000");
    assert_eq!(hex::encode(&cell.value), "12");
    assert_eq!(cell.r#type(), CellType::Point);
    assert_eq!(cell.points[0].timestamp_ms, 1_346_846_400_000);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn uid_counters_are_1_2_2() -> anyhow::Result<()> {
    let tsdb = with_the_example().await?;
    let usage = tsdb
        .uids()
        .get_uid_usage(GetUidUsageRequest {})
        .await?
        .into_inner();
    let used = |kind: UidKind| {
        let usage = usage.kinds.iter().find(|usage| usage.kind() == kind);
        usage.map(|usage| (usage.used, usage.available))
    };
    let max = (1 << 24) - 1;
    assert_eq!(used(UidKind::Metric), Some((1, max - 1)));
    assert_eq!(used(UidKind::TagKey), Some((2, max - 2)));
    assert_eq!(used(UidKind::TagValue), Some((2, max - 2)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn resolves_each_name_in_both_directions() -> anyhow::Result<()> {
    let tsdb = with_the_example().await?;
    for bypass_cache in [false, true] {
        let names = MAPPINGS.map(|(kind, name, _)| UidName {
            kind: kind.into(),
            name: name.to_owned(),
            tag_key: String::new(),
        });
        let request = LookupUidsRequest {
            names: names.to_vec(),
            bypass_cache,
            ..Default::default()
        };
        let uids = tsdb.uids().lookup_uids(request).await?.into_inner().results;
        let uids_of_values = MAPPINGS.map(|(kind, _, uid)| UidValue {
            kind: kind.into(),
            uid: uid.to_vec().into(),
        });
        let request = LookupNamesRequest {
            uids: uids_of_values.to_vec(),
            bypass_cache,
            ..Default::default()
        };
        let names = tsdb.uids().lookup_names(request).await?.into_inner().results;
        assert_eq!((uids.len(), names.len()), (MAPPINGS.len(), MAPPINGS.len()));

        for ((kind, name, uid), (uid_outcome, name_outcome)) in
            MAPPINGS.iter().zip(uids.into_iter().zip(names))
        {
            let uid_outcome = uid_outcome.outcome.context("no outcome")?;
            let expected = lookup_uids_response::result::Outcome::Uid(uid.to_vec().into());
            assert_eq!(uid_outcome, expected, "{kind:?} `{name}`");
            let name_outcome = name_outcome.outcome.context("no outcome")?;
            let expected = lookup_names_response::result::Outcome::Name((*name).to_owned());
            assert_eq!(name_outcome, expected, "{kind:?} {uid:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn query_returns_the_point() -> anyhow::Result<()> {
    let tsdb = with_the_example().await?;
    let path = "/api/query?start=1346846399&end=1346846401&m=sum:sys.cpu.nice%7Bhost=*%7D";
    let response = tsdb.http().get(path).await?;
    assert_eq!(response.status, 200, "{response:?}");
    let expected = json!([{
        "metric": "sys.cpu.nice",
        "tags": {"host": "web01", "dc": "lga"},
        "aggregateTags": [],
        "dps": {"1346846400": 18},
    }]);
    assert_eq!(response.json()?, expected);
    Ok(())
}
