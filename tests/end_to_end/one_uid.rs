//! A name has one UID and a UID one name, whatever races and crashes there are.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::uid::v1::get_or_create_uids_response::result::Outcome;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use oxtsdb_proto::uid::v1::{
    ExportUidsRequest, GetOrCreateUidsRequest, LookupNamesRequest, UidName, UidValue, lookup_names_response,
};
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Tsdb, random, until};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use tokio::task::JoinSet;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;

const KINDS: [UidKind; 3] = [UidKind::Metric, UidKind::TagKey, UidKind::TagValue];

/// UIDs by kind and name.
type Mappings = BTreeMap<(i32, String), Vec<u8>>;

/// Every response that any caller got.
type Answers = Arc<Mutex<Vec<(UidName, Vec<u8>)>>>;

fn names(prefix: &str, count: usize) -> Vec<UidName> {
    (0..count)
        .map(|number| UidName {
            kind: KINDS[number % KINDS.len()].into(),
            name: format!("{prefix}.{number}"),
            tag_key: String::new(),
        })
        .collect()
}

/// Assigns all names in batches, and records each response immediately.
async fn assign(
    mut client: UidServiceClient<Channel>,
    names: Vec<UidName>,
    answered: Answers,
) -> anyhow::Result<()> {
    for batch in names.chunks(40) {
        let request = GetOrCreateUidsRequest {
            names: batch.to_vec(),
            explicit: false,
            ..Default::default()
        };
        let results = client.get_or_create_uids(request).await?.into_inner().results;
        ensure!(results.len() == batch.len(), "{} responses", results.len());
        let mut answered = answered.lock().expect("no holder of the lock panics");
        for (name, result) in batch.iter().zip(results) {
            match result.outcome.context("no outcome")? {
                Outcome::Uid(uid) => answered.push((name.clone(), uid.to_vec())),
                Outcome::Error(error) => anyhow::bail!("`{}`: {error:?}", name.name),
            }
        }
    }
    Ok(())
}

/// All responses for one name are the same.
fn agreed(responses: &[(UidName, Vec<u8>)]) -> anyhow::Result<Mappings> {
    let mut mappings = Mappings::new();
    for (name, uid) in responses {
        let first = mappings
            .entry((name.kind, name.name.clone()))
            .or_insert_with(|| uid.clone());
        ensure!(first == uid, "`{}` has {first:?} and {uid:?}", name.name);
    }
    Ok(mappings)
}

/// The forward mappings of the store; fails if two names share a UID, or a reverse mapping differs.
async fn stored(tsdb: &Tsdb) -> anyhow::Result<Mappings> {
    let mut export = tsdb
        .uids()
        .export_uids(ExportUidsRequest::default())
        .await?
        .into_inner();
    let mut forward = Mappings::new();
    let mut reverse: HashMap<(i32, Vec<u8>), String> = HashMap::new();
    while let Some(batch) = export.next().await {
        for mapping in batch?.mappings {
            let uid = mapping.uid.to_vec();
            if let Some(other) = reverse.insert((mapping.kind, uid.clone()), mapping.name.clone()) {
                anyhow::bail!("`{other}` and `{}` have one UID {uid:?}", mapping.name);
            }
            forward.insert((mapping.kind, mapping.name), uid);
        }
    }
    let all: Vec<(&(i32, String), &Vec<u8>)> = forward.iter().collect();
    for batch in all.chunks(4096) {
        let request = LookupNamesRequest {
            uids: batch
                .iter()
                .map(|((kind, _), uid)| UidValue {
                    kind: *kind,
                    uid: (*uid).clone().into(),
                })
                .collect(),
            bypass_cache: true,
            ..Default::default()
        };
        let results = tsdb.uids().lookup_names(request).await?.into_inner().results;
        for (((_, name), uid), result) in batch.iter().zip(results) {
            let expected = lookup_names_response::result::Outcome::Name(name.clone());
            ensure!(
                result.outcome == Some(expected),
                "{uid:?} of `{name}` leads to {result:?}"
            );
        }
    }
    Ok(forward)
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_callers_get_the_same_uids() -> anyhow::Result<()> {
    let mut random = random::seeded("one_uid")?;
    let tsdb = Tsdb::start().await?;
    let answered = Answers::default();
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let mut names = names("race", 1500);
        names.shuffle(&mut random);
        callers.spawn(assign(tsdb.uids(), names, answered.clone()));
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    let responses = std::mem::take(&mut *answered.lock().expect("no holder of the lock panics"));
    assert_eq!(responses.len(), 16 * 1500);
    assert_eq!(agreed(&responses)?, stored(&tsdb).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_writers_of_new_series_agree() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let mut writers = JoinSet::new();
    for writer in 0..8_i64 {
        let mut client = tsdb.data();
        writers.spawn(async move {
            for series in 0..40_i64 {
                let host = format!("host{series}");
                let metric = format!("metric{}", series % 10);
                let tags = [("host", host.as_str()), ("dc", "lga")];
                let points: Vec<Sample> = (0..5)
                    .map(|n| Sample::int(&metric, &tags, 1_500_000_000_000 + (writer * 5 + n) * 1000, n))
                    .collect();
                let response = client.write(write_request(&points)).await?.into_inner();
                ensure!(response.written == 5, "{response:?}");
            }
            Ok(())
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    let stored = stored(&tsdb).await?;
    let count = |kind: UidKind| stored.keys().filter(|(of, _)| *of == i32::from(kind)).count();
    assert_eq!(KINDS.map(count), [10, 2, 41]);
    // Had a name got two UIDs, its points would lie in two series.
    for metric in 0..10 {
        let series = oxtsdb_tests::read_back::series_of(&mut tsdb.data(), &format!("metric{metric}")).await?;
        assert_eq!(series.len(), 4, "metric{metric}");
        assert!(series.values().all(|points| points.len() == 40), "metric{metric}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_assigned_uid_survives_kill_9() -> anyhow::Result<()> {
    let mut random = random::seeded("one_uid over kill -9")?;
    let mut tsdb = Tsdb::start().await?;
    let answered = Answers::default();
    for round in 0..4_usize {
        let before = answered.lock().expect("no holder of the lock panics").len();
        let mut callers = JoinSet::new();
        for caller in 0..8 {
            let mut names = names(&format!("crash{round}"), 3000);
            names.shuffle(&mut StdRng::seed_from_u64(caller));
            let call = assign(tsdb.uids(), names, answered.clone());
            callers.spawn(async move {
                // The kill breaks it off; the responses before it count.
                let _broken_off = call.await;
            });
        }
        let enough = before + rand::RngExt::random_range(&mut random, 200..2000);
        until("some names are answered", || async {
            let count = answered.lock().expect("no holder of the lock panics").len();
            ensure!(count >= enough, "{count} of {enough}");
            Ok(())
        })
        .await?;
        tsdb.kill9()?;
        while let Some(ended) = callers.join_next().await {
            ended?;
        }
        tsdb.restart().await?;

        let responses = answered.lock().expect("no holder of the lock panics").clone();
        let acknowledged = agreed(&responses)?;
        let stored = stored(&tsdb).await?;
        for (name, uid) in &acknowledged {
            assert_eq!(stored.get(name), Some(uid), "{name:?} after round {round}");
        }
        println!(
            "round {round}: {} acknowledged, {} stored",
            acknowledged.len(),
            stored.len()
        );
    }
    Ok(())
}
