//! Sends the requests of a run to OpenTSDB and to OxTSDB on either store, and reports the differences.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use rand::rngs::StdRng;

use super::Run;
use super::known::{self, KnownDifference};
use super::request::Request;
use super::servers::Servers;
use crate::http::HttpResponse;

/// Requests in flight.
const IN_FLIGHT: usize = 4;
/// Most differences that are printed.
const SHOWN: usize = 20;

/// A kind of requests.
#[expect(missing_debug_implementations, reason = "has a function")]
pub struct Kind<'a> {
    /// The name in messages.
    pub name: &'static str,
    /// Generates a random request.
    pub request: &'a (dyn Fn(&mut StdRng) -> Request + Sync),
    /// The first difference between OpenTSDB's response and ours.
    pub difference: fn(&Request, &HttpResponse, &HttpResponse) -> Option<String>,
    /// Accepted differences.
    pub known: &'static [KnownDifference],
}

/// The comparison of two responses.
enum Comparison {
    /// Equal, with this status.
    Equal(u16),
    /// An accepted difference, with its reason.
    Known(&'static str),
    /// Any other difference.
    Differs(String),
}

impl Kind<'_> {
    /// Sends a request to all servers. With `shows` it prints OpenTSDB's response and those that differ from it.
    async fn send(&self, servers: &Servers, request: &Request, shows: bool) -> anyhow::Result<Comparison> {
        let [theirs, rows, parts] = [servers.opentsdb.http(), servers.rows.http(), servers.parts.http()];
        let (theirs, rows, parts) =
            tokio::join!(request.send(&theirs), request.send(&rows), request.send(&parts));
        let theirs = theirs.context("no response from OpenTSDB")?;
        let mut compared = Comparison::Equal(theirs.status);
        for (store, ours) in [("rows", rows), ("parts", parts)] {
            let ours = ours.with_context(|| format!("no response from OxTSDB on {store}"))?;
            let Some(difference) = (self.difference)(request, &theirs, &ours) else {
                continue;
            };
            if shows {
                println!(
                    "{}\nOpenTSDB {}\nOxTSDB on {store} {}",
                    request.to_curl(),
                    theirs.body,
                    ours.body
                );
            }
            match known::find(self.known, request, &theirs, &ours) {
                Some(known) => compared = Comparison::Known(known.reason),
                None => return Ok(Comparison::Differs(format!("on {store}: {difference}"))),
            }
        }
        Ok(compared)
    }

    /// Sends all requests of a run to all servers. Returns the differences that are not accepted, with the variables that
    /// repeat each request.
    pub async fn compare(&self, servers: &Servers, run: &Run) -> Vec<String> {
        let all: Vec<_> = stream::iter(run.first..run.first + run.count)
            .map(|number| async move {
                let request = (self.request)(&mut run.random_of(number));
                let compared = self.send(servers, &request, run.count == 1).await;
                // A request without a response must not hide the differences of others.
                let compared = compared.unwrap_or_else(|error| Comparison::Differs(format!("{error:#}")));
                (number, request, compared)
            })
            .buffer_unordered(IN_FLIGHT)
            .collect()
            .await;
        let name = self.name;
        let (mut succeeded, mut rejected) = (0, 0);
        let mut known = BTreeMap::<&str, Vec<usize>>::new();
        let mut unknown = BTreeMap::new();
        for (number, request, compared) in all {
            match compared {
                Comparison::Equal(200) => succeeded += 1,
                Comparison::Equal(_) => rejected += 1,
                Comparison::Known(reason) => known.entry(reason).or_default().push(number),
                Comparison::Differs(what) => {
                    let (replay, curl) = (run.replay(number), request.to_curl());
                    unknown.insert(number, format!("{name}: {replay}\n  {what}\n  {curl}"));
                }
            }
        }
        println!("{name}: {succeeded} equal results, {rejected} equal rejections");
        for (reason, numbers) in known {
            println!("known, {} responses: {reason}: {numbers:?}", numbers.len());
        }
        unknown.into_values().collect()
    }
}

/// Fails if there are differences that are not accepted, and shows the first ones.
///
/// # Errors
///
/// The differences.
pub fn check(unknown: &[String]) -> anyhow::Result<()> {
    if !unknown.is_empty() {
        let shown = &unknown[..unknown.len().min(SHOWN)];
        bail!("{} responses differ:\n{}", unknown.len(), shown.join("\n"));
    }
    Ok(())
}
