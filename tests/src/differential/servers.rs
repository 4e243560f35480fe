//! Starts OpenTSDB and OxTSDB on the same tables, with random data that both have written, and another OxTSDB with all of
//! it on its embedded store.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::UidKind;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde_json::{Value, json};

use super::Run;
use super::data::{DCS, Data, HOSTS, METRICS, RARE_TAGS, metric_names};
use crate::comparison::{check_opentsdb, check_oxtsdb};
use crate::format::Format;
use crate::opentsdb::{OpenTsdb, assign};
use crate::random_points::Sent;
use crate::rig::Rig;
use crate::{Options, Tsdb, until, writers};

/// The last of several values at one timestamp applies, instead of an error.
const FIX_DUPLICATES: &str = "tsd.storage.fix_duplicates=true";
/// OpenTSDB does not compact while data is written: compacting a row in which a value is being corrected may keep the
/// old value.
const NO_COMPACTION: &str = "tsd.storage.enable_compaction=false";

/// The servers; dropping this value stops them.
#[derive(Debug)]
pub struct Servers {
    /// OpenTSDB.
    pub opentsdb: OpenTsdb,
    /// OxTSDB on OpenTSDB's tables: rows.
    pub rows: Tsdb,
    /// OxTSDB on its embedded store: parts.
    pub parts: Tsdb,
    /// The TSUIDs of each metric's series, in the order of [`METRICS`].
    pub tsuids: Vec<Vec<String>>,
}

impl Servers {
    /// Starts both on new tables of a format, which are named after `test`, and writes the data of a run.
    ///
    /// # Errors
    ///
    /// If a server does not start or does not store the data, or if OpenTSDB's `fsck` finds an error.
    pub async fn start(rig: &Rig, run: &Run, test: &str, format: &Format) -> anyhow::Result<Self> {
        let mut random = run.random_of_data();
        let data = Data::new(&mut random);
        let tables = rig.create_tables_of_opentsdb(test).await?;
        let settings = [format.settings, &[FIX_DUPLICATES]].concat();
        let opentsdb = rig
            .opentsdb(&tables, &[&settings[..], &[NO_COMPACTION]].concat())
            .await?;
        let flags = rig.flags(&tables).into_iter().chain(format.flags());
        let options = Options::default().flags(flags).flag("--fix-duplicates", "true");
        let oxtsdb = Tsdb::start_with(options).await?;
        let parts = Tsdb::start_with(Options::default().flags(format.layout())).await?;

        assign_uids(&opentsdb, &parts, &mut random).await?;
        for (points, expected, is_first) in [
            (data.points.clone(), data.expected(), true),
            (data.corrections.clone(), data.expected_at_last(), false),
        ] {
            writers::write_to_oxtsdb(&parts, &mut random, &points).await?;
            write_by_both(&opentsdb, &oxtsdb, &mut random, points).await?;
            // OpenTSDB stores points of its telnet listener a second later.
            until("all read the written points", async || {
                check_opentsdb(&opentsdb, &expected, &metric_names()).await?;
                check_oxtsdb(&oxtsdb, &expected, &metric_names()).await?;
                check_oxtsdb(&parts, &expected, &metric_names()).await
            })
            .await?;
            // Corrections leave several values of an instant, which are errors to it.
            if is_first {
                let points = expected.values().map(BTreeMap::len).sum();
                let fsck = rig.data_fsck(&opentsdb).await?;
                fsck.check(format.counted(points))?;
            }
        }
        // This OpenTSDB compacts the rows that it reads, so that both servers read rows in either form.
        let opentsdb = rig.opentsdb(&tables, &settings).await?;
        let tsuids = tsuids(&opentsdb).await?;
        Ok(Self {
            opentsdb,
            rows: oxtsdb,
            parts,
            tsuids,
        })
    }
}

/// Assigns the same UIDs on both stores, in an order that follows from the seed, since they determine the order of series
/// and groups.
async fn assign_uids(opentsdb: &OpenTsdb, parts: &Tsdb, random: &mut StdRng) -> anyhow::Result<()> {
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
            let theirs = opentsdb.assign(kind, &[name]).await?;
            let ours = assign(&parts.http(), kind, &[name]).await?;
            ensure!(ours == theirs, "{name}: {ours:?}, OpenTSDB assigned {theirs:?}");
        }
    }
    Ok(())
}

/// Writes half of the points through each server, one after the other, so that the stored bytes follow from the
/// seed.
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

/// Queries the TSUIDs of each metric's series.
async fn tsuids(opentsdb: &OpenTsdb) -> anyhow::Result<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for metric in METRICS {
        let query = json!({
            "start": metric.start,
            "end": metric.start + metric.length,
            "showTSUIDs": true,
            "queries": [{"aggregator": "none", "metric": metric.name}],
        });
        let response = opentsdb.http().post("/api/query", &query).await?.json()?;
        let elements = response.as_array().with_context(|| response.to_string())?;
        let tsuid = |element: &Value| Some(element["tsuids"][0].as_str()?.to_owned());
        let tsuids: Vec<String> = elements.iter().filter_map(tsuid).collect();
        ensure!(tsuids.len() > 1, "{}: {response}", metric.name);
        all.push(tsuids);
    }
    Ok(all)
}
