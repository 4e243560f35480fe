//! A real OpenTSDB: writes, queries and UIDs through its own HTTP and telnet interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::UidKind;
use serde_json::{Value, json};

use crate::http::Http;
use crate::rig::Part;
use crate::sample::Number;
use crate::telnet::Telnet;

/// The last second that OpenTSDB can query: it computes the end of the scan in 32 bits.
const LAST_SECOND: i64 = 4_294_000_000;

/// Tags of a series.
pub type Tags = BTreeMap<String, String>;

/// A running OpenTSDB; dropping it kills the process.
#[derive(Debug)]
pub struct OpenTsdb {
    part: Part,
    address: SocketAddr,
}

impl OpenTsdb {
    pub(crate) fn new(part: Part) -> anyhow::Result<Self> {
        let address = part.address()?;
        Ok(Self { part, address })
    }

    /// The process.
    pub fn part(&self) -> &Part {
        &self.part
    }

    /// Client of HTTP.
    pub fn http(&self) -> Http {
        Http::new(self.address)
    }

    /// A new telnet connection.
    ///
    /// # Errors
    ///
    /// If it does not accept.
    pub async fn telnet(&self) -> anyhow::Result<Telnet> {
        Telnet::connect(self.address).await
    }

    /// Writes points, given as `/api/put` takes them, and waits until they are stored.
    ///
    /// # Errors
    ///
    /// If one is rejected.
    pub async fn put(&self, points: &[Value]) -> anyhow::Result<()> {
        let points = Value::Array(points.to_vec());
        let response = self.http().post("/api/put?details&sync", &points).await?;
        ensure!(
            response.status == 200,
            "/api/put: {} {}",
            response.status,
            response.body
        );
        Ok(())
    }

    /// Returns the series of a metric, one by one, in full resolution.
    ///
    /// An integer becomes a floating point number if one follows it in its series; see
    /// [`as_opentsdb_returns`](crate::comparison::as_opentsdb_returns).
    ///
    /// # Errors
    ///
    /// OpenTSDB's.
    pub async fn series_of(&self, metric: &str) -> anyhow::Result<BTreeMap<Tags, Vec<(i64, Number)>>> {
        let request = json!({
            "start": 1,
            "end": LAST_SECOND,
            "msResolution": true,
            "queries": [{"aggregator": "none", "metric": metric}],
        });
        let response = self.http().post("/api/query", &request).await?;
        ensure!(
            response.status == 200,
            "query of `{metric}`: {} {}",
            response.status,
            response.body
        );
        let response = response.json()?;
        let groups = response.as_array().context("no array")?;
        groups.iter().map(series).collect()
    }

    /// Returns the last point of a series with one tag, of the current hour or the two before, as
    /// `/api/query/last` reports it; none if there is none.
    ///
    /// # Errors
    ///
    /// OpenTSDB's.
    pub async fn last(&self, metric: &str, tag: (&str, &str)) -> anyhow::Result<Option<(i64, Number)>> {
        let request = json!({
            "queries": [{"metric": metric, "tags": {tag.0: tag.1}}],
            "backScan": 2,
        });
        let response = self.http().post("/api/query/last", &request).await?;
        ensure!(response.status == 200, "last of `{metric}`: {response:?}");
        let response = response.json()?;
        let Some(point) = response.as_array().context("no array")?.first() else {
            return Ok(None);
        };
        let timestamp_ms = point["timestamp"].as_i64().context("timestamp")?;
        let text = point["value"].as_str().context("value")?;
        Ok(Some((timestamp_ms, number(&serde_json::from_str(text)?)?)))
    }

    /// Returns the UIDs of names in hex, and assigns missing ones; one request.
    ///
    /// # Errors
    ///
    /// If a name has none afterwards.
    pub async fn assign(&self, kind: UidKind, names: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
        assign(&self.http(), kind, names).await
    }

    /// Returns the UIDs that lost a race; each one leaves an orphaned reverse mapping: OpenTSDB's word for
    /// the kind (`metrics`, `tagk`, `tagv`), and the UID.
    ///
    /// # Errors
    ///
    /// If its log cannot be read.
    pub fn lost_uids(&self) -> anyhow::Result<BTreeSet<(String, u64)>> {
        let log = self.part.log()?;
        let lost = |line: &str| {
            let (_, rest) = line.split_once("Race condition: tried to assign ID ")?;
            let (id, rest) = rest.split_once(" to ")?;
            let (kind, _) = rest.split_once(':')?;
            Some((kind.to_owned(), id.parse().ok()?))
        };
        Ok(log.lines().filter_map(lost).collect())
    }
}

fn series(group: &Value) -> anyhow::Result<(Tags, Vec<(i64, Number)>)> {
    let tags = group["tags"].as_object().context("no tags")?;
    let tags = tags
        .iter()
        .map(|(key, value)| Ok((key.clone(), value.as_str().context("tag")?.to_owned())))
        .collect::<anyhow::Result<_>>()?;
    let points = group["dps"].as_object().context("no dps")?;
    let mut points = points
        .iter()
        .map(|(instant, value)| Ok((instant.parse()?, number(value)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    points.sort_by_key(|(instant, _)| *instant);
    Ok((tags, points))
}

fn number(value: &Value) -> anyhow::Result<Number> {
    let int = value.as_i64().map(Number::Int);
    int.or_else(|| value.as_f64().map(Number::Double))
        .with_context(|| format!("`{value}` is no number"))
}

/// Returns the UIDs of names in hex, and assigns missing ones; one request to a server with OpenTSDB's HTTP API.
///
/// # Errors
///
/// If a name has none afterwards.
pub async fn assign(http: &Http, kind: UidKind, names: &[&str]) -> anyhow::Result<BTreeMap<String, String>> {
    let (word, errors) = match kind {
        UidKind::Metric => ("metric", "metric_errors"),
        UidKind::TagKey => ("tagk", "tagk_errors"),
        UidKind::TagValue => ("tagv", "tagv_errors"),
        UidKind::Unspecified => anyhow::bail!("no kind"),
    };
    let response = http
        .post("/api/uid/assign", &json!({ word: names }))
        .await?
        .json()?;
    let uid = |name: &&str| {
        let assigned = response[word][name].as_str();
        // OpenTSDB reports an error if there is a UID already.
        let known = response[errors][name]
            .as_str()
            .and_then(|error| error.strip_prefix("Name already exists with UID: "));
        let uid = assigned
            .or(known)
            .with_context(|| format!("`{name}`: {response}"))?;
        Ok(((*name).to_owned(), uid.to_owned()))
    };
    names.iter().map(uid).collect()
}
