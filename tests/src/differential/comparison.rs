//! Asks OpenTSDB and OxTSDB the questions of a run, and tells what came of it.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use rand::rngs::StdRng;

use super::Run;
use super::known::{self, Known};
use super::question::Question;
use super::servers::Servers;
use crate::http::Answer;

/// Questions under way.
const IN_FLIGHT: usize = 4;
/// So many differences are shown.
const SHOWN: usize = 20;

/// A kind of questions.
#[expect(missing_debug_implementations, reason = "it has a function")]
pub struct Kind<'a> {
    /// For messages.
    pub name: &'static str,
    /// Makes one by chance.
    pub question: &'a (dyn Fn(&mut StdRng) -> Question + Sync),
    /// What differs first between OpenTSDB's answer to one and ours; `None` if nothing does.
    pub difference: fn(&Question, &Answer, &Answer) -> Option<String>,
    /// Differences that are let pass.
    pub known: &'static [Known],
}

/// What both told.
enum Told {
    /// The same, with this status.
    Same(u16),
    /// Something else, for this reason.
    Known(&'static str),
    /// Something else.
    Differs(String),
}

impl Kind<'_> {
    /// Asks both. With `shows` both answers are printed if they differ.
    async fn ask(&self, servers: &Servers, question: &Question, shows: bool) -> anyhow::Result<Told> {
        let (theirs, ours) = (servers.opentsdb.http(), servers.oxtsdb.http());
        let (theirs, ours) = tokio::join!(question.ask(&theirs), question.ask(&ours));
        let theirs = theirs.context("no answer of OpenTSDB")?;
        let ours = ours.context("no answer of OxTSDB")?;
        let Some(difference) = (self.difference)(question, &theirs, &ours) else {
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
        let known = known::of(self.known, question, &theirs, &ours);
        Ok(known.map_or(Told::Differs(difference), |known| Told::Known(known.reason)))
    }

    /// Asks both all questions of a run. What differs and is not known is returned, with the variables that ask it
    /// again.
    pub async fn compare(&self, servers: &Servers, run: &Run) -> Vec<String> {
        let all: Vec<_> = stream::iter(run.first..run.first + run.count)
            .map(|number| async move {
                let question = (self.question)(&mut run.random_of(number));
                let told = self.ask(servers, &question, run.count == 1).await;
                // One that is not answered must not hide what differs in others.
                let told = told.unwrap_or_else(|error| Told::Differs(format!("{error:#}")));
                (number, question, told)
            })
            .buffer_unordered(IN_FLIGHT)
            .collect()
            .await;
        let name = self.name;
        let (mut answered, mut refused) = (0, 0);
        let mut known = BTreeMap::<&str, Vec<usize>>::new();
        let mut unknown = BTreeMap::new();
        for (number, question, told) in all {
            match told {
                Told::Same(200) => answered += 1,
                Told::Same(_) => refused += 1,
                Told::Known(reason) => known.entry(reason).or_default().push(number),
                Told::Differs(what) => {
                    let (replay, curl) = (run.replay(number), question.to_curl());
                    unknown.insert(number, format!("{name}: {replay}\n  {what}\n  {curl}"));
                }
            }
        }
        println!("{name}: {answered} questions answered alike, {refused} refused alike");
        for (reason, numbers) in known {
            println!("known, {} answers: {reason}: {numbers:?}", numbers.len());
        }
        unknown.into_values().collect()
    }
}

/// Fails if something differs that is not known, and shows the first of it.
///
/// # Errors
///
/// What differs.
pub fn check(unknown: &[String]) -> anyhow::Result<()> {
    if !unknown.is_empty() {
        let shown = &unknown[..unknown.len().min(SHOWN)];
        bail!("{} answers differ:\n{}", unknown.len(), shown.join("\n"));
    }
    Ok(())
}
