//! OpenTSDB and OxTSDB give the same answers to random expressions over the same tables.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use oxtsdb_tests::differential::Run;
use oxtsdb_tests::differential::expressions::{self, Question, calls, formulas};
use oxtsdb_tests::differential::servers::Servers;
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::sizes;
use rand::rngs::StdRng;

/// Questions under way.
const IN_FLIGHT: usize = 4;
/// So many differences are shown.
const SHOWN: usize = 20;

/// What both told.
enum Told {
    /// The same, with this status.
    Same(u16),
    /// Something else, for this reason.
    Known(&'static str),
    /// Something else.
    Differs(String),
}

/// Asks both. With `shows` both answers are printed if they differ.
async fn ask(servers: &Servers, question: &Question, shows: bool) -> anyhow::Result<Told> {
    let (theirs, ours) = (servers.opentsdb.http(), servers.oxtsdb.http());
    let (theirs, ours) = tokio::join!(question.ask(&theirs), question.ask(&ours));
    let theirs = theirs.context("no answer of OpenTSDB")?;
    let ours = ours.context("no answer of OxTSDB")?;
    let Some(difference) = expressions::difference(question, &theirs, &ours) else {
        return Ok(Told::Same(theirs.status));
    };
    if shows {
        println!(
            "{}\nOpenTSDB {}\nOxTSDB {}",
            question.to_curl(),
            theirs.body,
            ours.body
        );
    }
    let known = expressions::of(question, &theirs, &ours);
    Ok(known.map_or(Told::Differs(difference), |known| Told::Known(known.reason)))
}

/// Asks both all questions of one kind. What differs and is not known is returned.
async fn compare(
    servers: &Servers,
    run: &Run,
    (kind, new): (&str, fn(&mut StdRng) -> Question),
) -> Vec<String> {
    let numbers = run.first..run.first + run.count;
    let all: Vec<_> = stream::iter(numbers)
        .map(|number| async move {
            let question = new(&mut run.random_of(number));
            let told = ask(servers, &question, run.count == 1).await;
            // One that is not answered must not hide what differs in others.
            let told = told.unwrap_or_else(|error| Told::Differs(format!("{error:#}")));
            (number, question, told)
        })
        .buffer_unordered(IN_FLIGHT)
        .collect()
        .await;
    let (mut answered, mut refused) = (0, 0);
    let mut known = BTreeMap::<&str, Vec<usize>>::new();
    let mut unknown = BTreeMap::new();
    for (number, question, told) in all {
        match told {
            Told::Same(200) => answered += 1,
            Told::Same(_) => refused += 1,
            Told::Known(reason) => known.entry(reason).or_default().push(number),
            Told::Differs(what) => {
                let replay = run.replay(number).replace("_QUERIES", "_EXPRESSIONS");
                unknown.insert(
                    number,
                    format!("{kind}: {replay}\n  {what}\n  {}", question.to_curl()),
                );
            }
        }
    }
    println!("{kind}: {answered} questions answered alike, {refused} refused alike");
    for (reason, numbers) in known {
        println!("known, {} answers: {reason}: {numbers:?}", numbers.len());
    }
    unknown.into_values().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answers_to_expressions_are_those_of_opentsdb() -> anyhow::Result<()> {
    let Some(rig) = Rig::find("differential_expressions")? else {
        return Ok(());
    };
    let mut run = Run::of_environment()?;
    run.count = sizes::of("OXTSDB_DIFFERENTIAL_EXPRESSIONS", 1000)?;
    println!("differential_expressions: OXTSDB_DIFFERENTIAL_SEED={}", run.seed);
    let servers = Servers::start(&rig, &run, "expressions").await?;
    let mut unknown = compare(&servers, &run, ("gexp", calls::question)).await;
    unknown.extend(compare(&servers, &run, ("exp", formulas::question)).await);
    if !unknown.is_empty() {
        let shown = &unknown[..unknown.len().min(SHOWN)];
        bail!("{} answers differ:\n{}", unknown.len(), shown.join("\n"));
    }
    Ok(())
}
