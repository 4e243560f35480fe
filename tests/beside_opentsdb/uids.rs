//! UIDs that OpenTSDB and OxTSDB assign on one table: a name has one UID and a UID one name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_proto::uid::v1::get_or_create_uids_response::result::Outcome;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName};
use oxtsdb_tests::opentsdb::OpenTsdb;
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::stored::Stored;
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::uid_table::UidTable;
use oxtsdb_tests::{UidProgram, random, sizes, until};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tonic::transport::Channel;

/// Kinds with OpenTSDB's words for them.
const KINDS: [(UidKind, &str); 3] = [
    (UidKind::Metric, "metrics"),
    (UidKind::TagKey, "tagk"),
    (UidKind::TagValue, "tagv"),
];
/// Names of a request.
const BATCH: usize = 50;

/// A name with its kind, by its place in [`KINDS`].
type Name = (usize, String);

/// The responses to each caller: name and UID.
type Responses = Arc<Mutex<Vec<(Name, u64)>>>;

fn names(prefix: &str, count: usize) -> Vec<Name> {
    (0..count)
        .map(|number| (number % KINDS.len(), format!("{prefix}.{number}")))
        .collect()
}

async fn assign_by_oxtsdb(
    client: &mut UidServiceClient<Channel>,
    names: &[Name],
) -> anyhow::Result<Vec<(Name, u64)>> {
    let request = GetOrCreateUidsRequest {
        names: names
            .iter()
            .map(|(kind, name)| UidName {
                kind: KINDS[*kind].0.into(),
                name: name.clone(),
                tag_key: String::new(),
            })
            .collect(),
        explicit: false,
        ..Default::default()
    };
    let results = client.get_or_create_uids(request).await?.into_inner().results;
    ensure!(results.len() == names.len(), "{} responses", results.len());
    let answer = |(name, result): (&Name, _)| match result {
        Some(Outcome::Uid(uid)) => Ok((name.clone(), u64::from_str_radix(&hex::encode(uid), 16)?)),
        other => anyhow::bail!("`{}`: {other:?}", name.1),
    };
    let outcomes = results.into_iter().map(|result| result.outcome);
    names.iter().zip(outcomes).map(answer).collect()
}

async fn assign_by_opentsdb(opentsdb: &OpenTsdb, names: &[Name]) -> anyhow::Result<Vec<(Name, u64)>> {
    let mut responses = Vec::new();
    for (number, (kind, _)) in KINDS.into_iter().enumerate() {
        let of_kind: Vec<&str> = names
            .iter()
            .filter(|(kind, _)| *kind == number)
            .map(|(_, name)| name.as_str())
            .collect();
        if of_kind.is_empty() {
            continue;
        }
        for (name, uid) in opentsdb.assign(kind, &of_kind).await? {
            responses.push(((number, name), u64::from_str_radix(&uid, 16)?));
        }
    }
    Ok(responses)
}

/// Two replicas of the UID service on the same table.
struct Replicas {
    programs: [UidProgram; 2],
    folders: [TempDir; 2],
}

impl Replicas {
    async fn start(rig: &Rig, tables: &Tables) -> anyhow::Result<Self> {
        let folders = [TempDir::new()?, TempDir::new()?];
        let flags = rig.uid_flags(tables);
        let programs = [
            UidProgram::start_with(folders[0].path(), None, &flags).await?,
            UidProgram::start_with(folders[1].path(), None, &flags).await?,
        ];
        Ok(Self { programs, folders })
    }

    fn client(&self, number: usize) -> UidServiceClient<Channel> {
        self.programs[number % self.programs.len()].client()
    }
}

/// 64 callers assign all names, each in its own order: half of them through OpenTSDB, if there is one, the
/// others through the replicas in turn.
async fn race(
    opentsdb: Option<&Arc<OpenTsdb>>,
    replicas: &Replicas,
    names: &[Name],
    random: &mut StdRng,
) -> anyhow::Result<BTreeMap<Name, u64>> {
    let responses = Responses::default();
    let mut callers = JoinSet::new();
    for caller in 0..64 {
        let mut names = names.to_vec();
        names.shuffle(random);
        let responses = Arc::clone(&responses);
        let mut client = replicas.client(caller / 2);
        let opentsdb = opentsdb.filter(|_| caller % 2 == 0).cloned();
        callers.spawn(async move {
            for batch in names.chunks(BATCH) {
                let assigned = match &opentsdb {
                    Some(opentsdb) => assign_by_opentsdb(opentsdb, batch).await?,
                    None => assign_by_oxtsdb(&mut client, batch).await?,
                };
                responses
                    .lock()
                    .expect("no holder of the lock panics")
                    .extend(assigned);
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    let responses = std::mem::take(&mut *responses.lock().expect("no holder of the lock panics"));
    ensure!(
        responses.len() == 64 * names.len(),
        "{} responses",
        responses.len()
    );
    agreed(&responses)
}

/// Checks that all responses for a name are equal.
fn agreed(responses: &[(Name, u64)]) -> anyhow::Result<BTreeMap<Name, u64>> {
    let mut agreed = BTreeMap::new();
    for (name, uid) in responses {
        let first = agreed.entry(name.clone()).or_insert(*uid);
        ensure!(first == uid, "{name:?} has UID {first} and {uid}");
    }
    Ok(agreed)
}

/// Checks that the table is consistent and has exactly the mappings that the callers got.
fn check_table(table: &UidTable, assigned: &BTreeMap<Name, u64>) -> anyhow::Result<()> {
    table.check()?;
    for ((kind, name), uid) in assigned {
        let stored = table.forward.get(&(KINDS[*kind].1.to_owned(), name.clone()));
        ensure!(
            stored == Some(uid),
            "`{name}` was said to have {uid}, it has {stored:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn opentsdb_and_two_replicas_agree_on_new_names() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("uid race")?;
    let tables = rig.create_tables("race").await?;
    let opentsdb = Arc::new(rig.opentsdb(&tables, &[]).await?);
    let replicas = Replicas::start(&rig, &tables).await?;
    let names = names("race", sizes::from_environment("OXTSDB_INTEROP_NAMES", 20_000)?);
    let assigned = race(Some(&opentsdb), &replicas, &names, &mut random).await?;

    let table = UidTable::read(&Stored::connect(&rig).await?, &tables.uid).await?;
    check_table(&table, &assigned)?;
    assert_eq!(table.forward.len(), names.len());
    // OpenTSDB leaves the reverse mapping of a UID that lost a race, and logs it.
    // OxTSDB removes its own.
    let orphans = table.orphans();
    let lost = opentsdb.lost_uids()?;
    println!(
        "{} names, {} numbers leaked, {} races lost by OpenTSDB",
        names.len(),
        table.leaked(),
        lost.len()
    );
    assert_eq!(orphans.difference(&lost).collect::<Vec<_>>(), [] as [&_; 0]);
    let fsck = rig.uid_fsck(&opentsdb).await?;
    assert_eq!(fsck.others, [] as [&str; 0]);
    let strangers: Vec<_> = fsck
        .orphans
        .iter()
        .filter(|orphan| !lost.contains(*orphan))
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_alone_leave_no_orphans() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("replicas")?;
    let tables = rig.create_tables("replicas").await?;
    let replicas = Replicas::start(&rig, &tables).await?;
    let names = names("race", sizes::from_environment("OXTSDB_INTEROP_NAMES", 20_000)?);
    let assigned = race(None, &replicas, &names, &mut random).await?;

    let table = UidTable::read(&Stored::connect(&rig).await?, &tables.uid).await?;
    check_table(&table, &assigned)?;
    assert_eq!(table.forward.len(), names.len());
    println!("{} names, {} numbers leaked", names.len(), table.leaked());
    assert_eq!(table.orphans().len(), 0);
    // OpenTSDB's check finds no error in a table that only OxTSDB wrote to.
    let opentsdb = rig.opentsdb(&tables, &[]).await?;
    let fsck = rig.uid_fsck(&opentsdb).await?;
    assert!(fsck.is_clean(), "{fsck:?}");
    let (of_kind, first) = (KINDS[0].0, names.first().context("there are names")?);
    let known = opentsdb.assign(of_kind, &[&first.1]).await?;
    let known: Vec<u64> = known
        .values()
        .map(|uid| u64::from_str_radix(uid, 16))
        .collect::<Result<_, _>>()?;
    assert_eq!(known, [assigned[first]]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn uids_hold_when_replicas_are_killed() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("killed replicas")?;
    let tables = rig.create_tables("killed").await?;
    let mut replicas = Replicas::start(&rig, &tables).await?;
    let flags = rig.uid_flags(&tables);
    let kills = sizes::from_environment("OXTSDB_INTEROP_KILLS", 50)?;
    let mut assigned = Vec::new();
    for round in 0..kills {
        let names = names(&format!("round{round}"), 300);
        let responses = Responses::default();
        let mut callers = JoinSet::new();
        for caller in 0..8 {
            let mut names = names.clone();
            names.shuffle(&mut StdRng::seed_from_u64(random.random()));
            let (client, responses) = (replicas.client(caller), Arc::clone(&responses));
            callers.spawn(async move {
                for batch in names.chunks(BATCH / 5) {
                    // An interrupted caller retries, as the contract allows.
                    let assigned = until("the replica responds", || {
                        let mut client = client.clone();
                        async move { assign_by_oxtsdb(&mut client, batch).await }
                    })
                    .await?;
                    responses
                        .lock()
                        .expect("no holder of the lock panics")
                        .extend(assigned);
                }
                anyhow::Ok(())
            });
        }
        let enough = random.random_range(0..2000);
        until("some names are assigned", || async {
            let count = responses.lock().expect("no holder of the lock panics").len();
            ensure!(count >= enough, "{count} of {enough}");
            Ok(())
        })
        .await?;
        let killed = round % replicas.programs.len();
        let replica = &mut replicas.programs[killed];
        replica.process().kill9()?;
        let address = replica.address();
        let folder = replicas.folders[killed].path();
        *replica = UidProgram::start_with(folder, Some(address), &flags).await?;
        while let Some(caller) = callers.join_next().await {
            caller??;
        }
        assigned.append(&mut *responses.lock().expect("no holder of the lock panics"));
    }
    let assigned = agreed(&assigned)?;
    let table = UidTable::read(&Stored::connect(&rig).await?, &tables.uid).await?;
    check_table(&table, &assigned)?;
    assert_eq!(table.forward.len(), assigned.len());
    println!(
        "{kills} kills, {} names: {} numbers leaked, {} of them with a reverse mapping left behind",
        assigned.len(),
        table.leaked(),
        table.orphans().len()
    );
    Ok(())
}
