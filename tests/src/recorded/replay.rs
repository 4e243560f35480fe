//! Sends the requests of a section to ours and compares the responses.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::cells;
use super::exchange::{self, Received};
use super::json::{Json, Order, compare, is_text};
use super::record::{Record, Request, Response, Section};
use crate::{Options, Tsdb};

/// Time for what happens in the background, in a section in which something did not happen in time.
const IMPATIENCE: Duration = Duration::from_millis(200);
/// The outermost object of these responses is a hash map of OpenTSDB.
const HASH_ROOTS: [&str; 7] = [
    "/api/config/filters",
    "/api/uid/assign",
    "/api/uid/rename",
    "/api/tree/test",
    "/api/tree/collisions",
    "/api/tree/notmatched",
    "/api/stats/",
];

/// A response or stored cells that differ from OpenTSDB's.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The record; with ` (cells)` behind it, the cells after it.
    pub name: String,
    /// How they differ.
    pub how: String,
}

/// Starts a server with the settings of a section, sends its requests, and returns what differs. `patience`: how long the
/// difference of a name may last, for what happens in the background.
///
/// # Errors
///
/// If the server does not start, or stops to respond.
pub async fn replay(
    section: &Section,
    patience: impl Fn(&str) -> Duration,
) -> anyhow::Result<Vec<Difference>> {
    let folder = TempDir::new()?;
    let conf = folder.path().join("opentsdb.conf");
    let settings: Vec<String> = section
        .settings
        .iter()
        .map(|(key, value)| format!("{key} = {value}\n"))
        .collect();
    fs::write(&conf, settings.concat())?;
    let options = Options::default().flag("--opentsdb-conf", &conf.display().to_string());
    let tsdb = Tsdb::start_with(options).await?;
    let mut differences = Vec::new();
    let mut longest = Duration::MAX;
    for record in &section.records {
        let name = record.name.clone();
        if let Err(how) = replay_record(&tsdb, record, patience(&name).min(longest)).await? {
            if record.settle {
                longest = IMPATIENCE;
            }
            differences.push(Difference { name, how });
        }
        for dump in section.dumps.iter().filter(|dump| dump.after == record.name) {
            let name = format!("{} (cells)", record.name);
            let how = cells::compare(tsdb.data_dir(), dump, patience(&name).min(longest)).await?;
            differences.extend(how.map(|how| Difference { name, how }));
        }
    }
    Ok(differences)
}

/// Sends one request; a record that has to settle, until its response is the recorded one.
async fn replay_record(
    tsdb: &Tsdb,
    record: &Record,
    patience: Duration,
) -> anyhow::Result<Result<(), String>> {
    let address = tsdb.http_address();
    let Some(request) = &record.request else {
        let recorded = record.response.text.as_deref().unwrap_or_default();
        let lines = recorded.matches('\n').count();
        let line = record.telnet.as_deref().unwrap_or_default();
        let received = exchange::telnet(address, line, lines).await?;
        let differs = || Err(format!("`{received}`, OpenTSDB responds `{recorded}`"));
        return Ok(if is_text(recorded, &received) {
            Ok(())
        } else {
            differs()
        });
    };
    let end = Instant::now() + patience;
    loop {
        let received = exchange::send(address, request).await?;
        let outcome = compare_response(request, record, &received);
        if outcome.is_ok() || !record.settle || Instant::now() > end {
            return Ok(outcome);
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn compare_response(request: &Request, record: &Record, received: &Received) -> Result<(), String> {
    let response = &record.response;
    if response.status != received.status {
        return Err(format!(
            "{} {}: status {}, OpenTSDB's is {}: ours `{}`, OpenTSDB's {}",
            request.method,
            request.path,
            received.status,
            response.status,
            received.body,
            body(response)
        ));
    }
    let in_request = |how: String| format!("{} {}: {how}", request.method, request.path);
    compare_headers(response, received).map_err(in_request)?;
    compare_body(request, record, &received.body).map_err(in_request)
}

/// Compares the recorded headers, and looks for headers of CORS that OpenTSDB does not send. A body that is absent has no type.
fn compare_headers(response: &Response, received: &Received) -> Result<(), String> {
    let is_empty = received.body.is_empty();
    for (name, recorded) in &response.headers {
        if is_empty && name == "content-type" {
            continue;
        }
        let actual = received.headers.get(name);
        if actual != Some(recorded) {
            return Err(format!("header {name} is {actual:?}, OpenTSDB's `{recorded}`"));
        }
    }
    let cors =
        |name: &&String| name.starts_with("access-control-") || *name == "location" || *name == "allow";
    match received
        .headers
        .keys()
        .filter(cors)
        .find(|name| !response.headers.contains_key(*name))
    {
        Some(name) => Err(format!("header {name}, which OpenTSDB does not send")),
        None => Ok(()),
    }
}

fn compare_body(request: &Request, record: &Record, received: &str) -> Result<(), String> {
    let Some(recorded) = &record.response.json else {
        let recorded = record.response.text.as_deref().unwrap_or_default();
        if is_text(recorded, received) {
            return Ok(());
        }
        return Err(format!("body `{received}`, OpenTSDB's `{recorded}`"));
    };
    let actual: Json = serde_json::from_str(received)
        .map_err(|error| format!("{error} in `{received}`, OpenTSDB responds {recorded}"))?;
    let order = Order {
        hash_root: HASH_ROOTS.iter().any(|path| request.path.starts_with(path)),
        arrays: record.unordered,
    };
    compare(recorded, &actual, order)
}

fn body(response: &Response) -> String {
    match (&response.json, &response.text) {
        (Some(json), _) => json.to_string(),
        (None, text) => format!("`{}`", text.as_deref().unwrap_or_default()),
    }
}
