//! Metadata of UIDs and of series, counters of points, metasync and metapurge.

use std::collections::BTreeMap;

use anyhow::ensure;
use oxtsdb_client::{ClientBuilder, SyncedMeta};
use oxtsdb_tests::random;
use oxtsdb_tests::stored::Column;
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::both::{Both, custom, now, text};

const ROUNDS: usize = 30;
const POINTS: i64 = 10;

/// The series that OpenTSDB writes first, and the one that OxTSDB does.
const SERIES: [&str; 2] = ["000001000001000001", "000002000001000002"];

const UIDS: [(&str, &str); 5] = [
    ("000001", "metric"),
    ("000002", "metric"),
    ("000001", "tagk"),
    ("000001", "tagv"),
    ("000002", "tagv"),
];

/// Starts both, with a series that each of them has written the first point of.
async fn start(test: &str) -> anyhow::Result<Both> {
    let both = Both::start(test).await?;
    let now = now()?;
    for (side, (metric, host)) in both.sides().iter().zip([("m1", "a"), ("m2", "b")]) {
        side.point(metric, now, &json!({"host": host})).await?;
        // OpenTSDB stores metadata after it has responded.
        for side in both.sides() {
            let tsuid = if metric == "m1" { SERIES[0] } else { SERIES[1] };
            side.status_until(&format!("/api/uid/tsmeta?tsuid={tsuid}"), 200)
                .await?;
        }
    }
    Ok(both)
}

/// Each edit compares what is stored with what the editor would have written: a difference in bytes would fail it.
#[tokio::test]
async fn metadata_written_by_one_is_edited_by_the_other() -> anyhow::Result<()> {
    let both = start("meta").await?;
    let mut random = random::seeded("meta")?;
    let sides = both.sides();
    for round in 0..ROUNDS {
        let (editor, reader) = (&sides[round % 2], &sides[(round + 1) % 2]);
        for place in 0..SERIES.len() + UIDS.len() {
            let (path, mut edit, query) = match SERIES.get(place) {
                Some(tsuid) => (
                    "/api/uid/tsmeta",
                    series_edit(tsuid, &mut random),
                    format!("tsuid={tsuid}"),
                ),
                None => {
                    let (uid, kind) = UIDS[place - SERIES.len()];
                    let edit = json!({"uid": uid, "type": kind});
                    ("/api/uid/uidmeta", edit, format!("uid={uid}&type={kind}"))
                }
            };
            add_common(&mut edit, round, &mut random);
            let edited = if random.random_bool(0.5) {
                editor.post(path, &edit).await?
            } else {
                editor.put(path, &edit).await?
            };
            ensure!(edited["notes"] == edit["notes"], "{edit}: {edited}");
            let read = reader.get(&format!("{path}?{query}")).await?;
            ensure!(
                read == edited,
                "{} reads {read}, {} wrote {edited}",
                reader.name,
                editor.name
            );
        }
    }
    both.check_uids().await
}

fn series_edit(tsuid: &str, random: &mut StdRng) -> Value {
    let mut edit = json!({"tsuid": tsuid});
    if random.random_bool(0.5) {
        edit["units"] = json!(text(random));
        edit["dataType"] = json!(text(random));
    }
    if random.random_bool(0.5) {
        edit["retention"] = json!(random.random_range(-5..400));
        edit["max"] = json!(f64::from(random.random_range(-1000..1000)) / 8.0);
        edit["min"] = json!(10_f64.powi(random.random_range(-8..12)));
    }
    edit
}

/// Random values. The notes differ in each round: nothing stays unchanged.
fn add_common(edit: &mut Value, round: usize, random: &mut StdRng) {
    edit["notes"] = json!(format!("{round}{}", text(random)));
    if random.random_bool(0.5) {
        edit["displayName"] = json!(text(random));
        edit["description"] = json!(text(random));
    }
    if random.random_bool(0.7) {
        edit["custom"] = custom(random);
    }
}

#[tokio::test]
async fn points_of_both_are_counted() -> anyhow::Result<()> {
    let both = start("count").await?;
    let (sides, now) = (both.sides(), now()?);
    for number in 0..POINTS {
        let side = &sides[usize::try_from(number)? % 2];
        side.point("m1", now + number.unsigned_abs() + 1, &json!({"host": "a"}))
            .await?;
    }
    for side in &sides {
        let path = format!("/api/uid/tsmeta?tsuid={}", SERIES[0]);
        side.get_until(&path, |meta| meta["totalDatapoints"] == POINTS + 1)
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn metasync_of_one_leaves_the_other_nothing_to_do() -> anyhow::Result<()> {
    let both = start("metasync").await?;
    let data = ClientBuilder::new([format!("http://{}", both.oxtsdb.data_address())]).data()?;
    let uids = ClientBuilder::new([format!("http://{}", both.oxtsdb.uid_address())]).uid()?;
    let sync = async |plan_only| -> anyhow::Result<SyncedMeta> {
        let synced = data.sync_meta(plan_only).collect().await?;
        Ok(synced.last().cloned().unwrap_or_default())
    };
    let is_clean = |synced: &SyncedMeta| {
        let created = synced.series_created + synced.uids_created;
        created + synced.series_corrected + synced.uids_corrected + synced.failed == 0
    };
    // The metadata that both have written while points came in.
    let before = stored(&both).await?;
    both.rig.uid_manager(&both.opentsdb, &["metasync"]).await?;
    ensure_equal(&before, &stored(&both).await?)?;
    let synced = sync(false).await?;
    ensure!(is_clean(&synced) && synced.series == 2, "{synced:?}");

    // The metadata that OxTSDB creates.
    uids.purge_uid_meta(false).collect().await?;
    data.purge_meta(false).collect().await?;
    for tsuid in SERIES {
        both.sides()[0]
            .status_until(&format!("/api/uid/tsmeta?tsuid={tsuid}"), 404)
            .await?;
    }
    let synced = sync(false).await?;
    ensure!(
        (synced.series_created, synced.uids_created) == (2, 5),
        "{synced:?}"
    );
    let before = stored(&both).await?;
    both.rig.uid_manager(&both.opentsdb, &["metasync"]).await?;
    ensure_equal(&before, &stored(&both).await?)?;

    // The metadata that OpenTSDB creates.
    both.rig.uid_manager(&both.opentsdb, &["metapurge"]).await?;
    both.rig.uid_manager(&both.opentsdb, &["metasync"]).await?;
    let synced = sync(true).await?;
    ensure!(is_clean(&synced) && synced.series == 2, "{synced:?}");
    for tsuid in SERIES {
        let metas = both
            .sides()
            .map(|side| (side, format!("/api/uid/tsmeta?tsuid={tsuid}")));
        let [(first, path), (second, _)] = &metas;
        ensure!(first.get(path).await? == second.get(path).await?, "{path}");
    }
    both.check_uids().await
}

/// The cells of the tables of UIDs and of metadata.
async fn stored(both: &Both) -> anyhow::Result<BTreeMap<Column, Vec<u8>>> {
    let mut cells = both.cells(&both.tables.uid).await?;
    cells.extend(both.cells(&both.tables.meta).await?);
    Ok(cells)
}

fn ensure_equal(before: &BTreeMap<Column, Vec<u8>>, after: &BTreeMap<Column, Vec<u8>>) -> anyhow::Result<()> {
    let changed = after
        .iter()
        .find(|(column, value)| before.get(*column) != Some(*value));
    ensure!(changed.is_none(), "changed: {changed:?}");
    ensure!(
        before.len() == after.len(),
        "{} cells, were {}",
        after.len(),
        before.len()
    );
    Ok(())
}
