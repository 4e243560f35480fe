//! Renamed and deleted names.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::uid::v1::get_or_create_uids_response::result::Outcome;
use oxtsdb_proto::uid::v1::{DeleteUidRequest, GetOrCreateUidsRequest, RenameUidRequest, UidName};
use oxtsdb_tests::{Tsdb, until};
use serde_json::json;

use super::both::{Both, Side, now};

const ROUNDS: usize = 8;
/// Kinds with OpenTSDB's words for them.
const KINDS: [(UidKind, &str); 3] = [
    (UidKind::Metric, "metric"),
    (UidKind::TagKey, "tagk"),
    (UidKind::TagValue, "tagv"),
];

/// A name is renamed by each in turn; the other has the new name, its points, and not the old one.
#[tokio::test]
async fn names_renamed_by_one_are_read_by_the_other() -> anyhow::Result<()> {
    let both = Both::start("rename").await?;
    let sides = both.sides();
    let names = |round: usize| [format!("m{round}"), format!("k{round}"), format!("v{round}")];
    let [metric, key, value] = names(0);
    let instant = now()?;
    sides[0].point(&metric, instant, &json!({key: value})).await?;
    for side in &sides {
        check_query(side, &names(0), instant).await?;
    }
    for round in 1..=ROUNDS {
        for (kind, (old, new)) in KINDS
            .into_iter()
            .zip(names(round - 1).into_iter().zip(names(round)))
        {
            if round % 2 == 0 {
                let rename = json!({kind.1: old, "name": new});
                let result = sides[0].post("/api/uid/rename", &rename).await?;
                ensure!(result["result"] == "true", "{result}");
            } else {
                rename(&both.oxtsdb, kind.0, &old, &new).await?;
            }
        }
        for side in &sides {
            if side.name == "OpenTSDB" {
                side.get("/api/dropcaches").await?;
            }
            let expected = names(round);
            until(&format!("{} has the new names", side.name), || {
                check_query(side, &expected, instant)
            })
            .await?;
            let old = format!("/api/query?start=1h-ago&m=sum:m{}", round - 1);
            side.status_until(&old, 400).await?;
            let suggested = side.get("/api/suggest?type=metrics&q=m").await?;
            ensure!(
                suggested == json!([format!("m{round}")]),
                "{}: {suggested}",
                side.name
            );
        }
        both.check_uids().await?;
    }
    Ok(())
}

/// A name that one deleted has another UID when it is written again, by whichever.
#[tokio::test]
async fn names_deleted_by_one_are_gone_for_the_other() -> anyhow::Result<()> {
    let both = Both::start("delete").await?;
    let sides = both.sides();
    for (round, (made_by_opentsdb, deleted_by_opentsdb)) in
        [(true, true), (true, false), (false, true), (false, false)]
            .into_iter()
            .enumerate()
    {
        let name = format!("m{round}");
        let uid = assign(&both, made_by_opentsdb, &name).await?;
        let suggestions = format!("/api/suggest?type=metrics&q={name}");
        for side in &sides {
            side.get_until(&suggestions, |names| *names == json!([name]))
                .await?;
        }
        if deleted_by_opentsdb {
            both.rig
                .uid_manager(&both.opentsdb, &["delete", "metrics", &name])
                .await?;
        } else {
            delete(&both.oxtsdb, &name).await?;
        }
        sides[0].get("/api/dropcaches").await?;
        for side in &sides {
            side.get_until(&suggestions, |names| *names == json!([])).await?;
            let query = format!("/api/query?start=1h-ago&m=sum:{name}");
            side.status_until(&query, 400).await?;
        }
        both.check_uids().await?;
        let again = assign(&both, !made_by_opentsdb, &name).await?;
        ensure!(again > uid, "`{name}` has {again} after {uid}");
    }
    both.check_uids().await
}

/// Assigns a UID to a metric, in hexadecimal form.
async fn assign(both: &Both, by_opentsdb: bool, name: &str) -> anyhow::Result<String> {
    if by_opentsdb {
        let assigned = both.opentsdb.assign(UidKind::Metric, &[name]).await?;
        return assigned.get(name).cloned().context("no UID");
    }
    let request = GetOrCreateUidsRequest {
        names: vec![UidName {
            kind: UidKind::Metric.into(),
            name: name.to_owned(),
            tag_key: String::new(),
        }],
        explicit: true,
        ..Default::default()
    };
    let response = both.oxtsdb.uids().get_or_create_uids(request).await?.into_inner();
    match response
        .results
        .into_iter()
        .next()
        .and_then(|result| result.outcome)
    {
        Some(Outcome::Uid(uid)) => Ok(hex::encode_upper(uid)),
        other => anyhow::bail!("`{name}`: {other:?}"),
    }
}

async fn rename(oxtsdb: &Tsdb, kind: UidKind, name: &str, new_name: &str) -> anyhow::Result<()> {
    let request = RenameUidRequest {
        kind: kind.into(),
        name: name.to_owned(),
        new_name: new_name.to_owned(),
        ..RenameUidRequest::default()
    };
    // OpenTSDB renamed it a moment ago.
    until("the name is known", || async {
        Ok(oxtsdb.uids().rename_uid(request.clone()).await?)
    })
    .await?;
    Ok(())
}

async fn delete(oxtsdb: &Tsdb, name: &str) -> anyhow::Result<()> {
    let request = DeleteUidRequest {
        kind: UidKind::Metric.into(),
        name: name.to_owned(),
        ..DeleteUidRequest::default()
    };
    oxtsdb.uids().delete_uid(request).await?;
    Ok(())
}

async fn check_query(side: &Side, [metric, key, value]: &[String; 3], instant: u64) -> anyhow::Result<()> {
    let path = format!(
        "/api/query?start={}&end={}&m=sum:{metric}%7B{key}={value}%7D",
        instant - 1,
        instant + 1
    );
    let groups = side.get(&path).await?;
    ensure!(groups[0]["metric"] == *metric, "{}: {groups}", side.name);
    ensure!(
        groups[0]["tags"] == json!({key: value}),
        "{}: {groups}",
        side.name
    );
    ensure!(
        groups[0]["dps"]
            .as_object()
            .is_some_and(|points| points.len() == 1),
        "{}: {groups}",
        side.name
    );
    Ok(())
}
