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

/// What each caller was told: name and UID.
type Answers = Arc<Mutex<Vec<(Name, u64)>>>;

fn names(prefix: &str, count: usize) -> Vec<Name> {
    (0..count)
        .map(|number| (number % KINDS.len(), format!("{prefix}.{number}")))
        .collect()
}

async fn ask_oxtsdb(
    client: &mut UidServiceClient<Channel>,
    names: &[Name],
) -> anyhow::Result<Vec<(Name, u64)>> {
    let request = GetOrCreateUidsRequest {
        names: names
            .iter()
            .map(|(kind, name)| UidName {
                kind: KINDS[*kind].0.into(),
                name: name.clone(),
            })
            .collect(),
        explicit: false,
    };
    let results = client.get_or_create_uids(request).await?.into_inner().results;
    ensure!(results.len() == names.len(), "{} answers", results.len());
    let answer = |(name, result): (&Name, _)| match result {
        Some(Outcome::Uid(uid)) => Ok((name.clone(), u64::from_str_radix(&hex::encode(uid), 16)?)),
        other => anyhow::bail!("`{}`: {other:?}", name.1),
    };
    let outcomes = results.into_iter().map(|result| result.outcome);
    names.iter().zip(outcomes).map(answer).collect()
}

async fn ask_opentsdb(opentsdb: &OpenTsdb, names: &[Name]) -> anyhow::Result<Vec<(Name, u64)>> {
    let mut answers = Vec::new();
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
            answers.push(((number, name), u64::from_str_radix(&uid, 16)?));
        }
    }
    Ok(answers)
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

/// 64 callers ask for all names, each in an order of its own: half of them OpenTSDB, if there is one, the
/// others the replicas in turn.
async fn race(
    opentsdb: Option<&Arc<OpenTsdb>>,
    replicas: &Replicas,
    names: &[Name],
    random: &mut StdRng,
) -> anyhow::Result<BTreeMap<Name, u64>> {
    let answers = Answers::default();
    let mut callers = JoinSet::new();
    for caller in 0..64 {
        let mut names = names.to_vec();
        names.shuffle(random);
        let answers = Arc::clone(&answers);
        let mut client = replicas.client(caller / 2);
        let opentsdb = opentsdb.filter(|_| caller % 2 == 0).cloned();
        callers.spawn(async move {
            for batch in names.chunks(BATCH) {
                let told = match &opentsdb {
                    Some(opentsdb) => ask_opentsdb(opentsdb, batch).await?,
                    None => ask_oxtsdb(&mut client, batch).await?,
                };
                answers.lock().expect("no holder of the lock panics").extend(told);
            }
            anyhow::Ok(())
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller??;
    }
    let answers = std::mem::take(&mut *answers.lock().expect("no holder of the lock panics"));
    ensure!(answers.len() == 64 * names.len(), "{} answers", answers.len());
    agreed(&answers)
}

/// All answers for one name are the same.
fn agreed(answers: &[(Name, u64)]) -> anyhow::Result<BTreeMap<Name, u64>> {
    let mut agreed = BTreeMap::new();
    for (name, uid) in answers {
        let first = agreed.entry(name.clone()).or_insert(*uid);
        ensure!(first == uid, "{name:?} has UID {first} and {uid}");
    }
    Ok(agreed)
}

/// The table holds together, and has just what the callers were told.
fn check_table(table: &UidTable, told: &BTreeMap<Name, u64>) -> anyhow::Result<()> {
    table.check()?;
    for ((kind, name), uid) in told {
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
    let Some(rig) = Rig::find("uid race")? else {
        return Ok(());
    };
    let mut random = random::seeded("uid race")?;
    let tables = rig.create_tables("race").await?;
    let opentsdb = Arc::new(rig.opentsdb(&tables, &[]).await?);
    let replicas = Replicas::start(&rig, &tables).await?;
    let names = names("race", sizes::of("OXTSDB_INTEROP_NAMES", 20_000)?);
    let told = race(Some(&opentsdb), &replicas, &names, &mut random).await?;

    let table = UidTable::read(&Stored::connect(&rig).await?, &tables.uid).await?;
    check_table(&table, &told)?;
    assert_eq!(table.forward.len(), names.len());
    // OpenTSDB leaves the reverse mapping of a UID with which it lost a race, and says so in its log.
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
    let found = rig.uid_fsck(&opentsdb).await?;
    assert_eq!(found.others, [] as [&str; 0]);
    let strangers: Vec<_> = found
        .orphans
        .iter()
        .filter(|orphan| !lost.contains(*orphan))
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_alone_leave_nothing_behind() -> anyhow::Result<()> {
    let Some(rig) = Rig::find("replicas")? else {
        return Ok(());
    };
    let mut random = random::seeded("replicas")?;
    let tables = rig.create_tables("replicas").await?;
    let replicas = Replicas::start(&rig, &tables).await?;
    let names = names("race", sizes::of("OXTSDB_INTEROP_NAMES", 20_000)?);
    let told = race(None, &replicas, &names, &mut random).await?;

    let table = UidTable::read(&Stored::connect(&rig).await?, &tables.uid).await?;
    check_table(&table, &told)?;
    assert_eq!(table.forward.len(), names.len());
    println!("{} names, {} numbers leaked", names.len(), table.leaked());
    assert_eq!(table.orphans().len(), 0);
    // OpenTSDB comes to a table that only OxTSDB wrote to, and finds nothing wrong.
    let opentsdb = rig.opentsdb(&tables, &[]).await?;
    let found = rig.uid_fsck(&opentsdb).await?;
    assert!(found.is_clean(), "{found:?}");
    let (of_kind, first) = (KINDS[0].0, names.first().context("there are names")?);
    let known = opentsdb.assign(of_kind, &[&first.1]).await?;
    let known: Vec<u64> = known
        .values()
        .map(|uid| u64::from_str_radix(uid, 16))
        .collect::<Result<_, _>>()?;
    assert_eq!(known, [told[first]]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn uids_hold_when_replicas_are_killed() -> anyhow::Result<()> {
    let Some(rig) = Rig::find("killed replicas")? else {
        return Ok(());
    };
    let mut random = random::seeded("killed replicas")?;
    let tables = rig.create_tables("killed").await?;
    let mut replicas = Replicas::start(&rig, &tables).await?;
    let flags = rig.uid_flags(&tables);
    let kills = sizes::of("OXTSDB_INTEROP_KILLS", 50)?;
    let mut told = Vec::new();
    for round in 0..kills {
        let names = names(&format!("round{round}"), 300);
        let answers = Answers::default();
        let mut callers = JoinSet::new();
        for caller in 0..8 {
            let mut names = names.clone();
            names.shuffle(&mut StdRng::seed_from_u64(random.random()));
            let (client, answers) = (replicas.client(caller), Arc::clone(&answers));
            callers.spawn(async move {
                for batch in names.chunks(BATCH / 5) {
                    // Whoever is broken off asks again, as the contract allows.
                    let told = until("the replica answers", || {
                        let mut client = client.clone();
                        async move { ask_oxtsdb(&mut client, batch).await }
                    })
                    .await?;
                    answers.lock().expect("no holder of the lock panics").extend(told);
                }
                anyhow::Ok(())
            });
        }
        let enough = random.random_range(0..2000);
        until("some names are answered", || async {
            let count = answers.lock().expect("no holder of the lock panics").len();
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
        told.append(&mut *answers.lock().expect("no holder of the lock panics"));
    }
    let told = agreed(&told)?;
    let table = UidTable::read(&Stored::connect(&rig).await?, &tables.uid).await?;
    check_table(&table, &told)?;
    assert_eq!(table.forward.len(), told.len());
    println!(
        "{kills} kills, {} names: {} numbers leaked, {} of them with a reverse mapping left behind",
        told.len(),
        table.leaked(),
        table.orphans().len()
    );
    Ok(())
}
