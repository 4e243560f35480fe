//! OpenTSDB and OxTSDB give the same answers to random questions about the same tables.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail, ensure};
use futures::{StreamExt as _, stream};
use oxtsdb_proto::common::v1::UidKind;
use oxtsdb_tests::comparison::{check_opentsdb, check_oxtsdb};
use oxtsdb_tests::differential::data::{DCS, Data, HOSTS, METRICS, RARE_TAGS, metric_names};
use oxtsdb_tests::differential::question::Question;
use oxtsdb_tests::differential::{Run, answer, known};
use oxtsdb_tests::opentsdb::OpenTsdb;
use oxtsdb_tests::random_points::Sent;
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::{Options, Tsdb, until, writers};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde_json::json;

/// Of several values for one instant the last one counts, in place of an error.
const FIX_DUPLICATES: &str = "tsd.storage.fix_duplicates=true";
/// It only writes what it is told to. When it compacts a row in which a value is just being corrected, the old one
/// may win.
const NO_COMPACTION: &str = "tsd.storage.enable_compaction=false";
/// Questions under way.
const IN_FLIGHT: usize = 4;
/// So many differences are shown.
const SHOWN: usize = 20;

/// UIDs in the same order in each run, since they decide on the order of series and groups.
async fn assign_uids(opentsdb: &OpenTsdb, random: &mut StdRng) -> anyhow::Result<()> {
    let rare_keys = RARE_TAGS.map(|(key, _)| key);
    let rare_values = RARE_TAGS.map(|(_, value)| value);
    let metrics = METRICS.map(|metric| metric.name);
    for (kind, mut names) in [
        (UidKind::Metric, metrics.to_vec()),
        (UidKind::TagKey, [&["host", "dc"], &rare_keys[..]].concat()),
        (UidKind::TagValue, [&HOSTS[..], &DCS, &rare_values].concat()),
    ] {
        names.shuffle(random);
        for name in names {
            opentsdb.assign(kind, &[name]).await?;
        }
    }
    Ok(())
}

/// Half of the points through each, one after the other, so that what is stored follows from the seed.
async fn write_by_both(
    opentsdb: &OpenTsdb,
    oxtsdb: &Tsdb,
    random: &mut StdRng,
    points: Vec<Sent>,
) -> anyhow::Result<()> {
    let (ours, theirs) = writers::halves(random, points);
    writers::write_to_opentsdb(opentsdb, random, &theirs).await?;
    writers::write_to_oxtsdb(oxtsdb, random, &ours).await
}

/// The TSUIDs of each metric's series.
async fn tsuids(opentsdb: &OpenTsdb) -> anyhow::Result<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for metric in METRICS {
        let question = json!({
            "start": metric.start,
            "end": metric.start + metric.length,
            "showTSUIDs": true,
            "queries": [{"aggregator": "none", "metric": metric.name}],
        });
        let answer = opentsdb.http().post("/api/query", &question).await?.json()?;
        let elements = answer.as_array().with_context(|| answer.to_string())?;
        let tsuid = |element: &serde_json::Value| Some(element["tsuids"][0].as_str()?.to_owned());
        let tsuids: Vec<String> = elements.iter().filter_map(tsuid).collect();
        ensure!(tsuids.len() > 1, "{}: {answer}", metric.name);
        all.push(tsuids);
    }
    Ok(all)
}

/// What came of the questions.
#[derive(Default)]
struct Tally {
    answered: AtomicUsize,
    refused: AtomicUsize,
}

impl Tally {
    fn count(&self, status: u16) {
        let counter = if status == 200 {
            &self.answered
        } else {
            &self.refused
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What differs in the answers to a question, and why, if that is known. With `shows` both are printed then.
///
/// # Errors
///
/// If there is no answer of one of them within a minute.
async fn differs(
    opentsdb: &OpenTsdb,
    oxtsdb: &Tsdb,
    question: &Question,
    tally: &Tally,
    shows: bool,
) -> anyhow::Result<Option<Result<&'static known::Known, String>>> {
    let (theirs, ours) = (opentsdb.http(), oxtsdb.http());
    let (theirs, ours) = tokio::join!(question.ask(&theirs), question.ask(&ours));
    let theirs = theirs.context("no answer of OpenTSDB")?;
    let ours = ours.context("no answer of OxTSDB")?;
    tally.count(theirs.status);
    let Some(difference) = answer::difference(&theirs, &ours) else {
        return Ok(None);
    };
    if shows {
        println!(
            "{}\nOpenTSDB {}\nOxTSDB {}",
            question.to_curl(),
            theirs.body,
            ours.body
        );
    }
    Ok(Some(known::of(question, &theirs, &ours).ok_or(difference)))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answers_are_those_of_opentsdb() -> anyhow::Result<()> {
    let Some(rig) = Rig::find("differential")? else {
        return Ok(());
    };
    let run = Run::of_environment()?;
    println!("differential: OXTSDB_DIFFERENTIAL_SEED={}", run.seed);
    let mut random = run.random_of_data();
    let data = Data::new(&mut random);
    let tables = rig.create_tables("differential").await?;
    let opentsdb = rig.opentsdb(&tables, &[FIX_DUPLICATES, NO_COMPACTION]).await?;
    let flags = rig.flags(&tables);
    let oxtsdb = Tsdb::start_with(Options::default().flags(flags).flag("--fix-duplicates", "true")).await?;

    assign_uids(&opentsdb, &mut random).await?;
    for (points, expected) in [
        (data.points.clone(), data.expected()),
        (data.corrections.clone(), data.expected_at_last()),
    ] {
        write_by_both(&opentsdb, &oxtsdb, &mut random, points).await?;
        // OpenTSDB stores what came by telnet a second later.
        until("both read what was written", async || {
            check_opentsdb(&opentsdb, &expected, &metric_names()).await?;
            check_oxtsdb(&oxtsdb, &expected, &metric_names()).await
        })
        .await?;
    }
    // It compacts the rows as it comes across them, so that both read them in either form.
    let opentsdb = rig.opentsdb(&tables, &[FIX_DUPLICATES]).await?;
    let tsuids = tsuids(&opentsdb).await?;

    let tally = Tally::default();
    let all: Vec<_> = stream::iter(run.first..run.first + run.count)
        .map(|number| {
            let question = Question::new(&mut run.random_of(number), &tsuids);
            let (opentsdb, oxtsdb, tally) = (&opentsdb, &oxtsdb, &tally);
            async move {
                let differs = differs(opentsdb, oxtsdb, &question, tally, run.count == 1).await;
                // One that is not answered must not hide what differs in others.
                let differs = differs.unwrap_or_else(|error| Some(Err(format!("{error:#}"))));
                differs.map(|why| (number, question, why))
            }
        })
        .buffer_unordered(IN_FLIGHT)
        .filter_map(async |difference| difference)
        .collect()
        .await;

    let mut known = BTreeMap::<&str, Vec<usize>>::new();
    let mut unknown = Vec::new();
    for (number, question, why) in all {
        match why {
            Ok(why) => known.entry(why.reason).or_default().push(number),
            Err(what) => unknown.push((number, format!("{what}\n  {}", question.to_curl()))),
        }
    }
    unknown.sort();
    let Tally { answered, refused } = tally;
    println!("differential: {answered:?} questions answered, {refused:?} refused");
    for (reason, numbers) in known {
        println!("known, {} answers: {reason}: {numbers:?}", numbers.len());
    }
    if !unknown.is_empty() {
        let shown: Vec<String> = unknown
            .iter()
            .take(SHOWN)
            .map(|(number, what)| format!("{}\n  {what}", run.replay(*number)))
            .collect();
        bail!(
            "{} of {} answers differ:\n{}",
            unknown.len(),
            run.count,
            shown.join("\n")
        );
    }
    Ok(())
}
