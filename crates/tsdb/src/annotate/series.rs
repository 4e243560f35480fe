//! The series of an annotation, by names or TSUID.

use anyhow::{Context as _, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use oxtsdb_client::{UidClient, UidKind};
use oxtsdb_command::target::Server;
use oxtsdb_query::language::parse_series;

/// One series, or global annotations.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct SeriesArgs {
    /// METRIC{TAGK=TAGV,...}
    #[arg(value_name = "SERIES")]
    series: Option<String>,

    /// The series by TSUID, in hex
    #[arg(long, value_name = "HEX")]
    tsuid: Option<String>,

    /// Global annotations
    #[arg(long)]
    global: bool,
}

impl SeriesArgs {
    /// The TSUID; empty: global. Names are looked up in the UID service.
    ///
    /// # Errors
    ///
    /// If a name is unknown, or the text is no series.
    pub(super) async fn tsuid(&self, uids: &Server<UidClient>) -> anyhow::Result<Bytes> {
        match (&self.series, &self.tsuid) {
            (Some(text), _) => named(text, uids).await,
            (None, Some(text)) => match hex::decode(text) {
                Ok(bytes) if !bytes.is_empty() => Ok(bytes.into()),
                _ => bail!("`{text}` is not a TSUID in hex"),
            },
            (None, None) => Ok(Bytes::new()),
        }
    }
}

/// The TSUID of a series by its names.
async fn named(text: &str, uids: &Server<UidClient>) -> anyhow::Result<Bytes> {
    let (metric, tags) = parse_series(text).with_context(|| format!("series `{text}`"))?;
    if tags.is_empty() {
        bail!("series `{text}` has no tags, expected METRIC{{TAGK=TAGV,...}}");
    }
    let mut names = vec![(UidKind::Metric, metric)];
    for (key, value) in tags {
        names.push((UidKind::Tagk, key));
        names.push((UidKind::Tagv, value));
    }
    let results = uids.client.lookup_uids(&names).await;
    let results = results.map_err(|error| uids.error("look up names", &error))?;
    let mut bytes = Vec::with_capacity(results.len());
    for ((kind, name), uid) in names.iter().zip(results) {
        let uid = uid.map_err(|rejection| anyhow!("{kind} `{name}`: {rejection}"))?;
        bytes.push(uid.as_bytes().to_vec());
    }
    let (metric, tags) = bytes.split_first().context("no UID of the metric")?;
    let mut tags: Vec<Vec<u8>> = tags.chunks(2).map(<[Vec<u8>]>::concat).collect();
    tags.sort_unstable();
    Ok([metric.clone(), tags.concat()].concat().into())
}
