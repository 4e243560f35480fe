//! Series of both in one tree.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::tree_service_client::TreeServiceClient;
use oxtsdb_proto::data::v1::{SyncTreesRequest, SyncTreesResponse};
use oxtsdb_tests::until;
use serde_json::{Value, json};

use super::both::{Both, Side, now};

/// Series of each kind: with a place, with a taken place, without a match.
const SERIES: u64 = 12;

/// Whichever defines the tree and whichever writes a series: `treesync` of each finds the same leaves, collisions and
/// series that did not match, and changes nothing when it is repeated.
#[tokio::test]
async fn treesync_of_each_agrees_on_series_of_both() -> anyhow::Result<()> {
    for definer in [0, 1] {
        let both = Both::start("placed").await?;
        let sides = both.sides();
        define(&sides[definer]).await?;
        // OpenTSDB loads its trees with the first series, which bypasses them.
        sides[0].point("warm.up", now()?, &json!({"warm": "up"})).await?;
        let warm = "/api/uid/tsmeta?tsuid=000001000001000001";
        sides[0].status_until(warm, 200).await?;
        for number in 0..SERIES {
            let side = &sides[usize::try_from(number % 2)?];
            let metric = format!("sys.é{number}");
            let host = format!("web{}.x.y", number % 3);
            let dc = format!("dc{}", number % 2);
            side.point(&metric, now()?, &json!({"dc": dc, "host": host}))
                .await?;
            let taken = json!({"dc": dc, "host": host, "core": "1"});
            side.point(&metric, now()?, &taken).await?;
            side.point(&metric, now()?, &json!({"host": host})).await?;
        }
        // Metadata follows the points; treesync reads it.
        let documents = 1 + 3 * usize::try_from(SERIES)?;
        until("all series have metadata", || async {
            let cells = both.cells(&both.tables.meta).await?;
            let count = cells
                .keys()
                .filter(|(_, _, qualifier)| qualifier == b"ts_meta")
                .count();
            ensure!(count == documents, "{count} documents, expected {documents}");
            Ok(())
        })
        .await?;
        both.rig.uid_manager(&both.opentsdb, &["treesync"]).await?;
        sync(&both).await?;
        let before = both.cells(&both.tables.tree).await?;
        both.rig.uid_manager(&both.opentsdb, &["treesync"]).await?;
        let again = sync(&both).await?;
        let after = both.cells(&both.tables.tree).await?;
        ensure!(before == after, "a repetition changed {before:?} to {after:?}");
        ensure!(
            (again.placed, again.existing, again.collisions) == (0, SERIES, SERIES),
            "{again:?}"
        );
        let rows: BTreeSet<_> = after
            .keys()
            .map(|(row, _, qualifier)| (row, qualifier == b"branch"))
            .collect();
        for (row, _, qualifier) in after
            .keys()
            .filter(|(_, _, qualifier)| qualifier.starts_with(b"leaf:"))
        {
            let leaf = hex::encode(qualifier);
            ensure!(
                rows.contains(&(row, true)),
                "no branch in {}, which has {leaf}",
                hex::encode(row)
            );
        }
        let mut seen = Vec::new();
        for side in &sides {
            // OpenTSDB leaves out leaves until their names are in its cache.
            let leaves = until(&format!("{} has all leaves", side.name), || async {
                let leaves = leaves(side).await?;
                ensure!(leaves.len() == usize::try_from(SERIES)?, "{leaves:?}");
                Ok(leaves)
            })
            .await?;
            let collisions = problems(side, "collisions").await?;
            let not_matched = problems(side, "notmatched").await?;
            ensure!(
                collisions.len() == usize::try_from(SERIES)?,
                "{}: {collisions:?}",
                side.name
            );
            ensure!(
                not_matched.len() == usize::try_from(SERIES)? + 1,
                "{}: {not_matched:?}",
                side.name
            );
            seen.push((leaves, collisions, not_matched));
        }
        ensure!(seen[0] == seen[1], "{seen:?}");
        both.check_uids().await?;
    }
    Ok(())
}

async fn define(side: &Side) -> anyhow::Result<()> {
    let tree = json!({"name": "By DC", "enabled": true, "strictMatch": true, "storeFailures": true});
    side.post("/api/tree", &tree).await?;
    for rule in [
        json!({"level": 0, "type": "TAGK", "field": "dc"}),
        json!({"level": 1, "type": "TAGK", "field": "host", "regex": "^(.*?)\\.", "displayFormat": "host: {value}"}),
        json!({"level": 2, "type": "METRIC", "separator": "\\."}),
    ] {
        let mut rule = rule;
        rule["treeId"] = json!(1);
        rule["order"] = json!(0);
        side.post("/api/tree/rule", &rule).await?;
    }
    Ok(())
}

async fn sync(both: &Both) -> anyhow::Result<SyncTreesResponse> {
    let mut client = TreeServiceClient::new(both.oxtsdb.data_channel());
    let mut progress = client.sync_trees(SyncTreesRequest::default()).await?.into_inner();
    let mut last = None;
    while let Some(report) = progress.message().await? {
        last = Some(report);
    }
    last.filter(|report| report.done).context("an incomplete stream")
}

/// The path and the TSUID of each leaf.
async fn leaves(side: &Side) -> anyhow::Result<BTreeSet<(String, String)>> {
    let mut leaves = BTreeSet::new();
    let mut branches = vec!["0001".to_owned()];
    while let Some(id) = branches.pop() {
        let branch = side.get(&format!("/api/tree/branch?branch={id}")).await?;
        let below = branch["branches"].as_array().into_iter().flatten();
        branches.extend(
            below
                .filter_map(|branch| branch["branchId"].as_str())
                .map(str::to_owned),
        );
        for leaf in branch["leaves"].as_array().into_iter().flatten() {
            let path = format!("{} {}", branch["path"], leaf["displayName"]);
            leaves.insert((path, leaf["tsuid"].to_string()));
        }
    }
    Ok(leaves)
}

async fn problems(side: &Side, what: &str) -> anyhow::Result<BTreeMap<String, Value>> {
    let body = side.get(&format!("/api/tree/{what}?treeid=1")).await?;
    let entries = body
        .as_object()
        .with_context(|| format!("{}: {body}", side.name))?;
    Ok(entries.clone().into_iter().collect())
}
