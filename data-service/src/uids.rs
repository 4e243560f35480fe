//! Names to UIDs and back, from the UID service, remembered.
//!
//! A mapping, once assigned, stays unless an operator renames or deletes it, and nobody tells us of
//! that: so a found answer is kept for a set time at most, counted from when it came. "Not found" is
//! kept for a second at most: somebody may be assigning the name right now. Concurrent questions for
//! one name may each reach the service, which answers them as one.

mod directory;
mod outage;
mod refusal;
pub(crate) mod series;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use hashbrown::HashMap;
use moka::sync::Cache;
use oxtsdb_client::{ErrorReason, Rejection, UidClient, UidLayout};
use oxtsdb_schema::{NameRules, RowKeyLayout, Uid, UidKind, UidWidth, UidWidths};
use oxtsdb_server::settings::SettingError;

pub use refusal::{UidRefusal, UidsError};

use crate::settings::DataSettings;
use outage::Outage;

/// How long an unknown name is remembered as unknown.
const ABSENT_FOR: Duration = Duration::from_secs(1);

/// Entries of the cache of unknown names.
const ABSENT_ENTRIES: u64 = 100_000;

/// What an entry of a cache costs beside its text, in bytes; an estimate.
const ENTRY_BYTES: usize = 128;

/// The UID service as the data service sees it. Cloning is cheap, clones share the caches.
#[derive(Clone, Debug)]
pub struct Uids(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: UidClient,
    layout: RowKeyLayout,
    name_rules: NameRules,
    auto_create: [bool; 3],
    /// As calls of writes see the service.
    outage: Outage,
    uids: [Cache<Arc<str>, Uid>; 3],
    names: [Cache<Uid, Arc<str>>; 3],
    absent: [Cache<Arc<str>, ()>; 3],
}

/// The position of a kind in the arrays of [`Inner`].
fn slot(kind: UidKind) -> usize {
    match kind {
        UidKind::Metric => 0,
        UidKind::Tagk => 1,
        UidKind::Tagv => 2,
    }
}

impl Uids {
    /// Asks the service once for its layout and starts with empty caches.
    ///
    /// # Errors
    ///
    /// [`UidsError::Unavailable`] and [`UidsError::DeadlineExceeded`] may pass;
    /// [`UidsError::Layout`] says that the service does not fit the settings.
    pub async fn connect(
        client: UidClient,
        settings: &DataSettings,
        deadline: Option<Instant>,
    ) -> Result<Uids, UidsError> {
        let layout = by(&client, deadline)
            .get_uid_layout()
            .await
            .map_err(UidsError::from_client)?;
        let widths = widths(&layout)?;
        let mismatch = |error: SettingError| UidsError::Layout {
            detail: error.to_string(),
        };
        if let Some(expected) = settings
            .tables
            .expected_widths()
            .map_err(mismatch)?
            .filter(|expected| *expected != widths)
        {
            let shown = |widths: UidWidths| format!("{}/{}/{}", widths.metric, widths.tagk, widths.tagv);
            let detail = format!(
                "it has the UID widths {}, --expected-uid-widths says {}",
                shown(widths),
                shown(expected)
            );
            return Err(UidsError::Layout { detail });
        }
        let ttl = settings.naming.cache_ttl();
        let weight = u64::try_from(settings.memory.name_cache_mib << 20).unwrap_or(u64::MAX) / 6;
        Ok(Uids(Arc::new(Inner {
            client,
            layout: settings.tables.row_key_layout(widths).map_err(mismatch)?,
            name_rules: name_rules(&layout),
            auto_create: UidKind::ALL.map(|kind| layout.kind(kind).is_some_and(|layout| layout.auto_create)),
            outage: Outage::default(),
            uids: UidKind::ALL.map(|_| {
                let cache = Cache::builder()
                    .max_capacity(weight)
                    .weigher(|name: &Arc<str>, _| entry_bytes(name));
                match ttl {
                    Some(ttl) => cache.time_to_live(ttl).build(),
                    None => cache.build(),
                }
            }),
            names: UidKind::ALL.map(|_| {
                let cache = Cache::builder()
                    .max_capacity(weight)
                    .weigher(|_, name: &Arc<str>| entry_bytes(name));
                match ttl {
                    Some(ttl) => cache.time_to_live(ttl).build(),
                    None => cache.build(),
                }
            }),
            absent: UidKind::ALL.map(|_| {
                Cache::builder()
                    .max_capacity(ABSENT_ENTRIES)
                    .time_to_live(ABSENT_FOR)
                    .build()
            }),
        })))
    }

    /// The layout of row keys: UID widths as the service has them, salt as set.
    pub fn layout(&self) -> &RowKeyLayout {
        &self.0.layout
    }

    /// The UID widths of the deployment.
    pub fn widths(&self) -> &UidWidths {
        &self.0.layout.widths
    }

    /// Which names the deployment takes.
    pub fn name_rules(&self) -> &NameRules {
        &self.0.name_rules
    }

    /// Whether a write may have UIDs of this kind assigned.
    pub fn auto_creates(&self, kind: UidKind) -> bool {
        self.0.auto_create[slot(kind)]
    }

    /// The UID of a name; `None` if it has none.
    ///
    /// # Errors
    ///
    /// When the service cannot be asked.
    pub async fn uid(
        &self,
        kind: UidKind,
        name: &str,
        deadline: Option<Instant>,
    ) -> Result<Option<Uid>, UidsError> {
        Ok(self
            .uids(&[(kind, name)], deadline)
            .await?
            .into_iter()
            .next()
            .flatten())
    }

    /// The UIDs of names, in their order; `None` for each that has none. One call for all that are
    /// not remembered.
    ///
    /// # Errors
    ///
    /// When the service cannot be asked, or fails for one of the names.
    pub async fn uids(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, UidsError> {
        let mut found = Vec::with_capacity(names.len());
        let mut missing = Vec::new();
        for (kind, name) in names {
            let uid = self.0.uids[slot(*kind)].get(*name);
            if uid.is_none() && !self.0.absent[slot(*kind)].contains_key(*name) {
                missing.push(found.len());
            }
            found.push(uid);
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let request: Vec<(UidKind, &str)> = missing.iter().map(|index| names[*index]).collect();
        let results = by(&self.0.client, deadline).lookup_uids(&request).await;
        let results = results.map_err(UidsError::from_client)?;
        for (index, result) in missing.into_iter().zip(results) {
            let (kind, name) = names[index];
            match result {
                Ok(uid) => {
                    let uid = self.checked(kind, uid)?;
                    self.remember(kind, name.into(), uid);
                    found[index] = Some(uid);
                }
                Err(rejection) if not_found(&rejection) => {
                    self.0.absent[slot(kind)].insert(name.into(), ());
                }
                Err(rejection) => return Err(UidsError::of_item(kind, name, rejection)),
            }
        }
        Ok(found)
    }

    /// The names of UIDs of one kind, in their order; `None` for each that has none. One call for
    /// all that are not remembered.
    ///
    /// # Errors
    ///
    /// When the service cannot be asked, or fails for one of the UIDs.
    pub async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, UidsError> {
        let (mut found, missing) = self.cached_names(kind, uids);
        if !missing.is_empty() {
            let requested: Vec<Uid> = missing.iter().map(|index| uids[*index]).collect();
            let names = self.request_names(kind, &requested, deadline).await?;
            fill(&mut found, missing, names);
        }
        Ok(found)
    }

    /// As [`Uids::names`], for a write: it fails at once while the service is known to be away, and
    /// waits no longer than an absent service deserves.
    ///
    /// # Errors
    ///
    /// As [`Uids::names`].
    pub(crate) async fn names_for_write(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, UidsError> {
        let (mut found, missing) = self.cached_names(kind, uids);
        if !missing.is_empty() {
            let requested: Arc<[Uid]> = missing.iter().map(|index| uids[*index]).collect();
            let this = self.clone();
            let attempt = move || {
                let (this, requested) = (this.clone(), Arc::clone(&requested));
                async move { this.request_names(kind, &requested, None).await }.boxed()
            };
            let names = self.0.outage.call(missing.len(), deadline, attempt).await?;
            fill(&mut found, missing, names);
        }
        Ok(found)
    }

    /// The names that are remembered, and the places of those that are not.
    fn cached_names(&self, kind: UidKind, uids: &[Uid]) -> (Vec<Option<Arc<str>>>, Vec<usize>) {
        let cache = &self.0.names[slot(kind)];
        let found: Vec<_> = uids.iter().map(|uid| cache.get(uid)).collect();
        let missing = (0..found.len()).filter(|index| found[*index].is_none()).collect();
        (found, missing)
    }

    async fn request_names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, UidsError> {
        let request: Vec<(UidKind, Uid)> = uids.iter().map(|uid| (kind, *uid)).collect();
        let results = by(&self.0.client, deadline).lookup_names(&request).await;
        let results = results.map_err(UidsError::from_client)?;
        let mut names = Vec::with_capacity(uids.len());
        for (uid, result) in uids.iter().zip(results) {
            names.push(match result {
                Ok(name) => {
                    let name: Arc<str> = name.into();
                    self.0.names[slot(kind)].insert(*uid, Arc::clone(&name));
                    Some(name)
                }
                Err(rejection) if not_found(&rejection) => None,
                Err(rejection) => return Err(UidsError::of_item(kind, &uid.to_string(), rejection)),
            });
        }
        Ok(names)
    }

    /// The first `max` names of a kind that start with `prefix`, in byte order.
    ///
    /// # Errors
    ///
    /// When the service cannot be asked.
    pub async fn suggest(
        &self,
        kind: UidKind,
        prefix: &str,
        max: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<String>, UidsError> {
        let client = by(&self.0.client, deadline);
        let mappings = client.suggest_names(kind, prefix, max).await;
        let mappings = mappings.map_err(UidsError::from_client)?;
        Ok(mappings.into_iter().map(|mapping| mapping.name).collect())
    }

    /// The UIDs of names, in their order; those that have none are assigned in the order of their
    /// first occurrence, with one call.
    ///
    /// # Errors
    ///
    /// When the service is unavailable, at once if that is known; see [`outage`]. A name that it refuses
    /// has its refusal in the result.
    pub(crate) async fn assign(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Result<Uid, UidRefusal>>, UidsError> {
        /// Where the UID of a name comes from.
        enum Source {
            Known(Uid),
            Asked(usize),
        }

        let mut asked: Vec<(UidKind, &str)> = Vec::new();
        let mut positions: HashMap<(UidKind, &str), usize> = HashMap::new();
        let mut sources = Vec::with_capacity(names.len());
        for (kind, name) in names {
            sources.push(match self.0.uids[slot(*kind)].get(*name) {
                Some(uid) => Source::Known(uid),
                None => Source::Asked(*positions.entry((*kind, *name)).or_insert_with(|| {
                    asked.push((*kind, *name));
                    asked.len() - 1
                })),
            });
        }
        let mut answers = Vec::with_capacity(asked.len());
        if !asked.is_empty() {
            let request: Arc<[(UidKind, String)]> = asked
                .iter()
                .map(|(kind, name)| (*kind, (*name).to_owned()))
                .collect();
            let this = self.clone();
            let attempt = move || {
                let (this, request) = (this.clone(), Arc::clone(&request));
                async move { this.request_uids(&request).await }.boxed()
            };
            answers = self.0.outage.call(asked.len(), deadline, attempt).await?;
        }
        let uid_of = |source| match source {
            Source::Known(uid) => Ok(uid),
            Source::Asked(index) => answers[index].clone(),
        };
        Ok(sources.into_iter().map(uid_of).collect())
    }

    /// The UID of a name, if it is remembered.
    pub(crate) fn cached(&self, kind: UidKind, name: &str) -> Option<Uid> {
        self.0.uids[slot(kind)].get(name)
    }

    /// One attempt of [`Uids::assign`]. What it finds is remembered, whether a caller waits for it or not.
    async fn request_uids(
        &self,
        names: &[(UidKind, String)],
    ) -> Result<Vec<Result<Uid, UidRefusal>>, UidsError> {
        let results = self.0.client.get_or_create_uids(names, false).await;
        let results = results.map_err(UidsError::from_client)?;
        let mut answers = Vec::with_capacity(names.len());
        for ((kind, name), result) in names.iter().zip(results) {
            answers.push(match result {
                Ok(assigned) => {
                    let uid = self.checked(*kind, assigned.uid)?;
                    self.remember(*kind, name.as_str().into(), uid);
                    Ok(uid)
                }
                Err(rejection) => Err(UidRefusal::of_item(rejection)),
            });
        }
        Ok(answers)
    }

    fn remember(&self, kind: UidKind, name: Arc<str>, uid: Uid) {
        self.0.absent[slot(kind)].invalidate(&name);
        self.0.names[slot(kind)].insert(uid, Arc::clone(&name));
        self.0.uids[slot(kind)].insert(name, uid);
    }

    /// A UID of another width would make row keys that nobody can read.
    fn checked(&self, kind: UidKind, uid: Uid) -> Result<Uid, UidsError> {
        let width = self.widths().get(kind);
        if uid.width() == width {
            return Ok(uid);
        }
        Err(UidsError::BadAnswer {
            detail: format!(
                "a UID of kind {kind} has {} bytes, its layout says {width}",
                uid.as_bytes().len()
            ),
        })
    }
}

/// The client, whose calls have to be complete at the deadline, if there is one.
fn by(client: &UidClient, deadline: Option<Instant>) -> UidClient {
    match deadline {
        Some(deadline) => client.with_deadline(deadline),
        None => client.clone(),
    }
}

/// Puts what was requested in its places.
fn fill(found: &mut [Option<Arc<str>>], missing: Vec<usize>, names: Vec<Option<Arc<str>>>) {
    for (index, name) in missing.into_iter().zip(names) {
        found[index] = name;
    }
}

fn entry_bytes(name: &Arc<str>) -> u32 {
    u32::try_from(name.len() + ENTRY_BYTES).unwrap_or(u32::MAX)
}

fn not_found(rejection: &Rejection) -> bool {
    // A name that cannot be stored is no name of anything.
    matches!(
        rejection.reason,
        Some(ErrorReason::NameNotFound | ErrorReason::UidNotFound | ErrorReason::InvalidName)
    )
}

fn widths(layout: &UidLayout) -> Result<UidWidths, UidsError> {
    let width = |kind| {
        let layout = layout.kind(kind).ok_or_else(|| UidsError::Layout {
            detail: format!("its layout has no kind {kind}"),
        })?;
        UidWidth::new(layout.width).map_err(|error| UidsError::Layout {
            detail: format!("{kind}: {error}"),
        })
    };
    Ok(UidWidths {
        metric: width(UidKind::Metric)?,
        tagk: width(UidKind::Tagk)?,
        tagv: width(UidKind::Tagv)?,
    })
}

fn name_rules(layout: &UidLayout) -> NameRules {
    let max_length = Some(layout.max_name_length).filter(|length| *length > 0);
    NameRules {
        extra_characters: layout.extra_name_characters.clone(),
        max_length: max_length.unwrap_or(NameRules::default().max_length),
    }
}
