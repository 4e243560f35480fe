//! OpenTSDB and OxTSDB give the same answers to random questions about the same tables.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use oxtsdb_tests::Tsdb;
use oxtsdb_tests::differential::question::Question;
use oxtsdb_tests::differential::servers::Servers;
use oxtsdb_tests::differential::{Run, answer, known};
use oxtsdb_tests::opentsdb::OpenTsdb;
use oxtsdb_tests::rig::Rig;

/// Questions under way.
const IN_FLIGHT: usize = 4;
/// So many differences are shown.
const SHOWN: usize = 20;

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
    let Servers {
        opentsdb,
        oxtsdb,
        tsuids,
    } = Servers::start(&rig, &run, "differential").await?;

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
