//! The names of series, from their TSUIDs.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use oxtsdb_client::{Error, UidClient, UidLayout};
use oxtsdb_schema::{Tsuid, Uid, UidKind, UidWidth, UidWidths};

/// The cache is cleared at this size, which bounds the memory of long scans.
const MAX_NAMES: usize = 1_000_000;

/// Names that were looked up.
#[derive(Debug)]
pub(super) struct Names {
    client: UidClient,
    widths: UidWidths,
    names: BTreeMap<(UidKind, Uid), Option<String>>,
}

/// The names of a series. A UID without a name is in hex, in brackets: `[000001]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeriesName {
    /// Metric.
    pub(super) metric: String,
    /// Tags, in the order of the row key.
    pub(super) tags: Vec<(String, String)>,
    /// Whether all UIDs have names.
    pub(super) complete: bool,
}

impl Names {
    /// Reads the layout of UIDs from the UID service.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub(super) async fn connect(client: UidClient) -> Result<Self, Error> {
        let layout = client.get_uid_layout().await?;
        let widths = widths(&layout).map_err(|error| Error::Protocol {
            message: format!("{error:#}"),
        })?;
        Ok(Self {
            client,
            widths,
            names: BTreeMap::new(),
        })
    }

    /// Looks up the unknown names of some series in one call.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole.
    pub(super) async fn learn<'a>(&mut self, tsuids: impl Iterator<Item = &'a [u8]>) -> Result<(), Error> {
        if self.names.len() > MAX_NAMES {
            self.names.clear();
        }
        let unknown: BTreeSet<(UidKind, Uid)> = tsuids
            .filter_map(|tsuid| Tsuid::from_bytes(tsuid, &self.widths).ok())
            .flat_map(|tsuid| self.uids(&tsuid))
            .filter(|key| !self.names.contains_key(key))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let unknown: Vec<(UidKind, Uid)> = unknown.into_iter().collect();
        let results = self.client.lookup_names(&unknown).await?;
        let names = results.into_iter().map(Result::ok);
        self.names.extend(unknown.into_iter().zip(names));
        Ok(())
    }

    /// The names of a series after [`Names::learn`]; `None` if the bytes are not a TSUID.
    pub(super) fn series(&self, tsuid: &[u8]) -> Option<SeriesName> {
        let tsuid = Tsuid::from_bytes(tsuid, &self.widths).ok()?;
        let mut complete = true;
        let mut names = self.uids(&tsuid).into_iter().map(|(kind, uid)| {
            self.names
                .get(&(kind, uid))
                .cloned()
                .flatten()
                .unwrap_or_else(|| {
                    complete = false;
                    format!("[{uid}]")
                })
        });
        let metric = names.next()?;
        let mut tags = Vec::new();
        while let (Some(key), Some(value)) = (names.next(), names.next()) {
            tags.push((key, value));
        }
        drop(names);
        Some(SeriesName {
            metric,
            tags,
            complete,
        })
    }

    /// Metric, tagk, tagv, tagk, tagv, ...
    fn uids(&self, tsuid: &Tsuid) -> Vec<(UidKind, Uid)> {
        let uid = |bytes: &[u8]| Uid::from_bytes(bytes).ok();
        let metric = uid(tsuid.metric(&self.widths).as_bytes()).map(|uid| (UidKind::Metric, uid));
        let tags = tsuid.tags(&self.widths).flat_map(|(key, value)| {
            let key = uid(key.as_bytes()).map(|uid| (UidKind::Tagk, uid));
            let value = uid(value.as_bytes()).map(|uid| (UidKind::Tagv, uid));
            [key, value]
        });
        std::iter::once(metric).chain(tags).flatten().collect()
    }
}

fn widths(layout: &UidLayout) -> anyhow::Result<UidWidths> {
    let width = |kind: UidKind| -> anyhow::Result<UidWidth> {
        let layout = layout.kind(kind);
        let layout = layout.with_context(|| format!("the UID service returned no width of {kind}"))?;
        Ok(UidWidth::new(layout.width)?)
    };
    Ok(UidWidths {
        metric: width(UidKind::Metric)?,
        tagk: width(UidKind::Tagk)?,
        tagv: width(UidKind::Tagv)?,
    })
}
