//! Names and points that a server acknowledged, and a comparison with what it stores later.
//!
//! Each metric has one series, with one tag, and values that no other metric has: a point that is read
//! under another metric or tag than its own is recognized, whatever UIDs the store gave them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context as _, ensure};
use futures::StreamExt as _;
use oxtsdb_proto::common::v1::{ItemError, UidKind};
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use oxtsdb_proto::uid::v1::{
    ExportUidsRequest, LookupNamesRequest, LookupUidsRequest, UidName, UidValue, lookup_names_response,
    lookup_uids_response,
};
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::Tsdb;
use crate::http::{Http, HttpResponse};
use crate::read_back;
use crate::sample::{Number, Sample};

/// 2023-11-14T22:13:20Z.
const START_MS: i64 = 1_700_000_000_000;

/// Values of a metric are its number times this, and up.
const VALUES: i64 = 1_000_000;

/// The key of the tag that each series has.
const TAG_KEY: &str = "host";

/// Acknowledged names and points.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// UIDs by kind and name.
    uids: BTreeMap<(UidKind, String), Vec<u8>>,
    /// The points of each metric.
    points: BTreeMap<Metric, BTreeSet<i64>>,
    /// Numbers of annotations, which are cells of the data service, not points.
    annotations: BTreeSet<i64>,
    /// Names that were acknowledged with another UID before.
    changed: Vec<String>,
}

/// A metric with its series: `NAME{host=hNUMBER}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// A number that no other metric has.
    pub number: i64,
}

impl Metric {
    /// A metric of this number.
    pub fn new(name: impl Into<String>, number: i64) -> Self {
        let name = name.into();
        Self { name, number }
    }

    /// A point, from 0: the later ones are on later days, some on each.
    pub fn point(&self, number: i64) -> Sample {
        let timestamp_ms = START_MS + number * 20_000_000;
        let host = self.host();
        Sample::int(
            &self.name,
            &[(TAG_KEY, &host)],
            timestamp_ms,
            self.number * VALUES + number,
        )
    }

    fn host(&self) -> String {
        format!("h{}", self.number)
    }
}

/// Assigns a UID over HTTP; of a name that has one, returns it.
///
/// # Errors
///
/// The response, if there is no UID; or that there is none.
pub async fn assign(http: &Http, name: &str) -> anyhow::Result<Result<Vec<u8>, HttpResponse>> {
    let response = http.post("/api/uid/assign", &json!({"metric": [name]})).await?;
    let Ok(body) = response.json() else {
        return Ok(Err(response));
    };
    let existing = || {
        let error = body["metric_errors"][name].as_str()?;
        error.strip_prefix("Name already exists with UID: ")
    };
    let uid = body["metric"][name].as_str().or_else(existing);
    match uid {
        Some(uid) => Ok(Ok(hex::decode(uid)?)),
        None => Ok(Err(response)),
    }
}

/// Writes points of one metric over HTTP.
///
/// # Errors
///
/// The response, if not all points are acknowledged; or that there is none.
pub async fn put(http: &Http, metric: &Metric, points: &[i64]) -> anyhow::Result<Result<(), HttpResponse>> {
    let samples: Vec<Value> = points
        .iter()
        .map(|point| metric.point(*point).to_json())
        .collect();
    let response = http.post("/api/put?details", &Value::from(samples)).await?;
    if response.status == 200 {
        ensure!(response.json()?["failed"] == 0, "{response:?}");
        return Ok(Ok(()));
    }
    Ok(Err(response))
}

/// Stores an annotation over HTTP.
///
/// # Errors
///
/// The response, if it is not acknowledged; or that there is none.
pub async fn annotate(http: &Http, number: i64) -> anyhow::Result<Result<(), HttpResponse>> {
    let body = json!({
        "startTime": annotation_seconds(number),
        "description": annotation_text(number),
    });
    let response = http.post("/api/annotation", &body).await?;
    Ok(match response.status {
        200 => Ok(()),
        _ => Err(response),
    })
}

fn annotation_seconds(number: i64) -> i64 {
    START_MS / 1000 + number
}

fn annotation_text(number: i64) -> String {
    format!("annotation {number}")
}

impl Ledger {
    /// A metric got this UID.
    ///
    /// # Errors
    ///
    /// If it was acknowledged with another one.
    pub fn assigned(&mut self, name: &str, uid: Vec<u8>) -> anyhow::Result<()> {
        let key = (UidKind::Metric, name.to_owned());
        let first = self.uids.entry(key).or_insert_with(|| uid.clone());
        ensure!(*first == uid, "`{name}` has UID {first:02x?}, and now {uid:02x?}");
        Ok(())
    }

    /// As [`Ledger::assigned`]; another UID is a difference of the next comparison.
    pub fn assigned_again(&mut self, name: &str, uid: Vec<u8>) {
        if let Err(error) = self.assigned(name, uid) {
            self.changed.push(error.to_string());
        }
    }

    /// An annotation was acknowledged.
    pub fn annotated(&mut self, number: i64) {
        self.annotations.insert(number);
    }

    /// Points of a metric were acknowledged.
    pub fn written(&mut self, metric: &Metric, points: &[i64]) {
        self.points.entry(metric.clone()).or_default().extend(points);
    }

    /// Takes what another one has.
    ///
    /// # Errors
    ///
    /// If they differ about a name.
    pub fn extend(&mut self, other: Self) -> anyhow::Result<()> {
        for ((_, name), uid) in other.uids {
            self.assigned(&name, uid)?;
        }
        for (metric, points) in other.points {
            self.points.entry(metric).or_default().extend(points);
        }
        self.annotations.extend(other.annotations);
        Ok(())
    }

    /// Names with an acknowledged UID.
    pub fn names(&self) -> usize {
        self.uids.len()
    }

    /// Acknowledged points.
    pub fn points(&self) -> usize {
        self.points.values().map(BTreeSet::len).sum()
    }

    /// Compares it with what the server stores. Series that the server does not read are a difference too.
    ///
    /// # Errors
    ///
    /// If the server responds against the contract.
    pub async fn compare(&self, tsdb: &Tsdb) -> anyhow::Result<Differences> {
        let mut differences = Differences {
            wrong: self.changed.clone(),
            ..Differences::default()
        };
        self.compare_names(&mut tsdb.uids(), &mut differences).await?;
        self.compare_points(tsdb, &mut differences).await?;
        self.compare_annotations(&tsdb.http(), &mut differences).await?;
        Ok(differences)
    }

    async fn compare_names(
        &self,
        client: &mut UidServiceClient<Channel>,
        differences: &mut Differences,
    ) -> anyhow::Result<()> {
        // All names, acknowledged ones and stored ones, by their UIDs.
        let mut names: BTreeMap<(UidKind, Vec<u8>), BTreeSet<String>> = BTreeMap::new();
        for ((kind, name), uid) in &self.uids {
            names
                .entry((*kind, uid.clone()))
                .or_default()
                .insert(name.clone());
        }
        match stored(client).await {
            Ok(mappings) => {
                for (kind, name, uid) in mappings {
                    names.entry((kind, uid)).or_default().insert(name);
                }
            }
            Err(status) => differences.unreadable("export of names", &status),
        }
        for ((kind, uid), names) in names {
            if names.len() > 1 {
                let what = format!("{kind:?} {}: {names:?}", hex::encode(uid));
                differences.doubles.push(what);
            }
        }
        let acknowledged: Vec<_> = self.uids.iter().collect();
        for batch in acknowledged.chunks(1000) {
            compare_batch(client, batch, differences).await?;
        }
        Ok(())
    }

    async fn compare_annotations(&self, http: &Http, differences: &mut Differences) -> anyhow::Result<()> {
        for number in &self.annotations {
            let seconds = annotation_seconds(*number);
            let response = http.get(&format!("/api/annotation?start_time={seconds}")).await?;
            let what = format!("annotation {number}");
            match response.status {
                200 if response.json()?["description"] == annotation_text(*number) => {}
                200 => differences.wrong.push(format!("{what} is {}", response.body)),
                404 => differences.lost.push(what),
                status => {
                    let what = format!("{what}: {status}: {}", response.body);
                    differences.unreadable.push(what);
                }
            }
        }
        Ok(())
    }

    async fn compare_points(&self, tsdb: &Tsdb, differences: &mut Differences) -> anyhow::Result<()> {
        for (metric, acknowledged) in &self.points {
            let series = match read_back::series_of_or_none(&mut tsdb.data(), &metric.name).await {
                Ok(series) => series,
                Err(error) => match error.downcast::<Status>() {
                    Ok(status) => {
                        differences.unreadable(&metric.name, &status);
                        continue;
                    }
                    Err(error) => return Err(error.context(metric.name.clone())),
                },
            };
            let mut own = BTreeSet::new();
            for (tags, points) in &series {
                let is_own_series = tags.len() == 1 && tags.get(TAG_KEY) == Some(&metric.host());
                for (timestamp_ms, value) in points {
                    let number = (timestamp_ms - START_MS) / 20_000_000;
                    let is_own = is_own_series && *value == Number::Int(metric.number * VALUES + number);
                    if is_own {
                        own.insert(number);
                    } else {
                        let what = format!("`{}` has {value} at {timestamp_ms} of {tags:?}", metric.name);
                        differences.foreign.push(what);
                    }
                }
            }
            let lost = acknowledged.difference(&own).count();
            if lost > 0 {
                let what = format!("{lost} of {} points of `{}`", acknowledged.len(), metric.name);
                differences.lost.push(what);
            }
        }
        Ok(())
    }
}

/// All mappings, from names to UIDs.
async fn stored(client: &mut UidServiceClient<Channel>) -> Result<Vec<(UidKind, String, Vec<u8>)>, Status> {
    let export = client.export_uids(ExportUidsRequest::default()).await?;
    let mut export = export.into_inner();
    let mut stored = Vec::new();
    while let Some(batch) = export.next().await {
        let mappings = batch?.mappings.into_iter();
        stored.extend(mappings.map(|mapping| {
            let kind = mapping.kind();
            (kind, mapping.name, mapping.uid.to_vec())
        }));
    }
    Ok(stored)
}

/// Looks names up, and their UIDs.
async fn compare_batch(
    client: &mut UidServiceClient<Channel>,
    batch: &[(&(UidKind, String), &Vec<u8>)],
    differences: &mut Differences,
) -> anyhow::Result<()> {
    use lookup_names_response::result::Outcome as NameOutcome;
    use lookup_uids_response::result::Outcome as UidOutcome;

    let names = batch.iter().map(|((kind, name), _)| UidName {
        kind: (*kind).into(),
        name: name.clone(),
        tag_key: String::new(),
    });
    let request = LookupUidsRequest {
        names: names.collect(),
        bypass_cache: true,
        ..LookupUidsRequest::default()
    };
    match client.lookup_uids(request).await {
        Ok(response) => {
            let results = response.into_inner().results;
            ensure!(results.len() == batch.len(), "{} results", results.len());
            for (((_, name), uid), result) in batch.iter().zip(results) {
                match result.outcome.context("no outcome")? {
                    UidOutcome::Uid(stored) if stored == **uid => {}
                    UidOutcome::Uid(stored) => differences.wrong.push(format!(
                        "`{name}` has UID {}, acknowledged was {}",
                        hex::encode(stored),
                        hex::encode(uid)
                    )),
                    UidOutcome::Error(error) => {
                        differences.unresolved(&format!("name `{name}`"), &error);
                    }
                }
            }
        }
        Err(status) => differences.unreadable("look-up of names", &status),
    }
    let uids = batch.iter().map(|((kind, _), uid)| UidValue {
        kind: (*kind).into(),
        uid: (*uid).clone().into(),
    });
    let request = LookupNamesRequest {
        uids: uids.collect(),
        bypass_cache: true,
        ..LookupNamesRequest::default()
    };
    match client.lookup_names(request).await {
        Ok(response) => {
            let results = response.into_inner().results;
            ensure!(results.len() == batch.len(), "{} results", results.len());
            for (((_, name), uid), result) in batch.iter().zip(results) {
                let uid = hex::encode(uid);
                match result.outcome.context("no outcome")? {
                    NameOutcome::Name(stored) if stored == *name => {}
                    NameOutcome::Name(stored) => {
                        let what = format!("UID {uid} of `{name}` maps to `{stored}`");
                        differences.wrong.push(what);
                    }
                    NameOutcome::Error(error) => {
                        differences.unresolved(&format!("UID {uid} of `{name}`"), &error);
                    }
                }
            }
        }
        Err(status) => differences.unreadable("look-up of UIDs", &status),
    }
    Ok(())
}

/// How a store differs from what was acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// UIDs that two names have.
    pub doubles: Vec<String>,
    /// Names with another UID, and UIDs with another name.
    pub wrong: Vec<String>,
    /// Points under a metric or tag that is not theirs.
    pub foreign: Vec<String>,
    /// Names and points that are missing.
    pub lost: Vec<String>,
    /// Series that the server does not read, with its error.
    pub unreadable: Vec<String>,
}

impl Differences {
    /// No difference.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Nothing that is served is wrong: something may be missing.
    pub fn is_only_loss(&self) -> bool {
        self.doubles.is_empty() && self.wrong.is_empty() && self.foreign.is_empty()
    }

    fn unreadable(&mut self, what: &str, status: &Status) {
        self.unreadable
            .push(format!("{what}: {:?}: {}", status.code(), status.message()));
    }

    /// A look-up without a result: the store does not have it, or cannot read it.
    fn unresolved(&mut self, what: &str, error: &ItemError) {
        let list = match Code::from(error.code) {
            Code::NotFound => &mut self.lost,
            _ => &mut self.unreadable,
        };
        list.push(format!("{what}: {}", error.message));
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (count, what, first) in [
            (self.doubles.len(), "doubles", self.doubles.first()),
            (self.wrong.len(), "wrong", self.wrong.first()),
            (self.foreign.len(), "foreign points", self.foreign.first()),
            (self.lost.len(), "lost", self.lost.first()),
            (self.unreadable.len(), "unreadable", self.unreadable.first()),
        ] {
            write!(f, "{separator}{count} {what}")?;
            if let Some(first) = first {
                write!(f, " ({first})")?;
            }
            separator = ", ";
        }
        Ok(())
    }
}
