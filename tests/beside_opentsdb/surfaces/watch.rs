//! A watch beside OpenTSDB, which announces nothing.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::uid::v1::watch_uids_response::event::Event;
use oxtsdb_proto::uid::v1::{WatchUidsRequest, WatchUidsResponse};
use oxtsdb_tests::until;
use serde_json::json;
use tokio::time::timeout;
use tonic::Streaming;

use super::both::Both;

/// Assignments are found within a second, renames and deletes by the scan, here each second; the rest is for a
/// busy machine.
const BOUND: Duration = Duration::from_secs(10);

#[tokio::test]
async fn changes_of_opentsdb_become_events() -> anyhow::Result<()> {
    let both = Both::start("watch").await?;
    let request = WatchUidsRequest::default();
    let mut watch = both.oxtsdb.uids().watch_uids(request).await?.into_inner();
    watch.message().await?.context("a first response")?;

    both.opentsdb.assign(UidKind::Metric, &["m0"]).await?;
    let assigned = next(&mut watch).await?;
    ensure!(
        matches!(&assigned, Event::Assigned(event) if event.mapping.as_ref().is_some_and(|m| m.name == "m0")),
        "{assigned:?}"
    );

    // Renames before the first scan are not found.
    let [opentsdb, _] = both.sides();
    let mut number = 0;
    let renamed = loop {
        let body = json!({"metric": format!("m{number}"), "name": format!("m{}", number + 1)});
        let result = opentsdb.post("/api/uid/rename", &body).await?;
        ensure!(result["result"] == "true", "{result}");
        number += 1;
        ensure!(number < 10, "no event of {number} renames");
        if let Ok(event) = next(&mut watch).await {
            break event;
        }
    };
    check_renamed(&renamed, &format!("m{number}"))?;

    let (from, to) = (format!("m{number}"), "by.tool");
    both.rig
        .uid_manager(&both.opentsdb, &["rename", "metrics", &from, to])
        .await?;
    check_renamed(&next(&mut watch).await?, to)?;

    both.rig
        .uid_manager(&both.opentsdb, &["delete", "metrics", to])
        .await?;
    let deleted = next(&mut watch).await?;
    ensure!(
        matches!(&deleted, Event::Deleted(event) if event.mapping.as_ref().is_some_and(|m| *m.uid == [0, 0, 1])),
        "{deleted:?}"
    );
    until("the name is gone", || async {
        let suggested = both.oxtsdb.http().get("/api/suggest?type=metrics&q=by").await?;
        ensure!(suggested.body.trim() == "[]", "{suggested:?}");
        Ok(())
    })
    .await
}

fn check_renamed(event: &Event, name: &str) -> anyhow::Result<()> {
    ensure!(
        matches!(event, Event::Renamed(event) if event.mapping.as_ref().is_some_and(|m| m.name == name)),
        "not renamed to `{name}`: {event:?}"
    );
    Ok(())
}

/// The next event.
async fn next(watch: &mut Streaming<WatchUidsResponse>) -> anyhow::Result<Event> {
    let event = async {
        loop {
            let response = watch.message().await?.context("the watch ended")?;
            if let Some(event) = response.events.into_iter().find_map(|event| event.event) {
                return anyhow::Ok(event);
            }
        }
    };
    timeout(BOUND, event).await.context("no event")?
}
