//! The service without its wire: what the gRPC calls mean, in terms of names and UIDs.

use std::time::SystemTime;

use futures::stream::BoxStream;
use oxtsdb_schema::{Name, Uid, UidKind};

use crate::assign::{Assigned, Assigner};
use crate::cache::{CacheLimits, UidCache};
use crate::error::UidServiceError;
use crate::layout::UidLayout;
use crate::lookup::{Absence, Lookup};
use crate::suggest::{self, Mapping, Page};
use crate::table::{KindName, KindUid, UidTable};
use crate::usage::{KindUsage, Usage};

/// Assigns and resolves the UIDs of one table.
#[derive(Debug)]
pub struct Uids {
    table: UidTable,
    lookup: Lookup,
    assigner: Assigner,
    usage: Usage,
}

/// Why UIDs are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A point is being written: kinds that are not created on first use are refused.
    Write,
    /// An operator or a tool assigns on purpose.
    Explicit,
}

/// Where answers may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The cache, else the store.
    Cached,
    /// The store.
    Store,
}

impl Uids {
    /// The UIDs of `table`.
    pub fn new(table: UidTable, cache: CacheLimits) -> Self {
        let cache = UidCache::new(cache);
        Self {
            lookup: Lookup::new(table.clone(), cache.clone()),
            assigner: Assigner::new(table.clone(), cache),
            usage: Usage::new(table.clone()),
            table,
        }
    }

    /// How the UIDs look.
    pub fn layout(&self) -> &UidLayout {
        self.table.layout()
    }

    /// The UID of each name, in their order, assigned in that order where there is none.
    ///
    /// Names are independent: an error of one says nothing of the others. New names of one call and
    /// kind get consecutive numbers (unless they are random or in use already).
    pub async fn get_or_create(
        &self,
        names: &[KindName],
        purpose: Purpose,
    ) -> Vec<Result<Assigned, UidServiceError>> {
        let may_create =
            |kind: UidKind| purpose == Purpose::Explicit || self.layout().kinds.get(kind).auto_create;
        // An assignment looks again, a refusal does not.
        let absence = if names.iter().all(|(kind, _)| may_create(*kind)) {
            Absence::Provisional
        } else {
            Absence::Certain
        };
        let mut unknown = Vec::new();
        let mut outcomes: Vec<_> = self
            .lookup
            .uids(names, absence)
            .await
            .into_iter()
            .zip(names)
            .enumerate()
            .map(|(place, (found, (kind, name)))| match found? {
                Some(uid) => Ok(Assigned { uid, created: false }),
                None if may_create(*kind) => {
                    unknown.push(place);
                    Err(UidServiceError::Interrupted)
                }
                None => Err(UidServiceError::AutoCreateDisabled {
                    kind: *kind,
                    name: name.clone(),
                }),
            })
            .collect();
        if !unknown.is_empty() {
            let wanted = unknown.iter().map(|place| names[*place].clone()).collect();
            for (place, outcome) in unknown.into_iter().zip(self.assigner.assign(wanted).await) {
                outcomes[place] = outcome;
            }
        }
        outcomes
    }

    /// The UID of each name, in their order; [`UidServiceError::NameNotFound`] if it has none.
    pub async fn lookup_uids(
        &self,
        names: &[KindName],
        freshness: Freshness,
    ) -> Vec<Result<Uid, UidServiceError>> {
        let found = match freshness {
            Freshness::Cached => self.lookup.uids(names, Absence::Certain).await,
            Freshness::Store => self.lookup.read_uids(names).await,
        };
        found
            .into_iter()
            .zip(names)
            .map(|(found, (kind, name))| {
                found?.ok_or_else(|| UidServiceError::NameNotFound {
                    kind: *kind,
                    name: name.clone(),
                })
            })
            .collect()
    }

    /// The name of each UID, in their order; [`UidServiceError::UidNotFound`] if it has none.
    pub async fn lookup_names(
        &self,
        uids: &[KindUid],
        freshness: Freshness,
    ) -> Vec<Result<Name, UidServiceError>> {
        let found = match freshness {
            Freshness::Cached => self.lookup.names(uids).await,
            Freshness::Store => self.lookup.read_names(uids).await,
        };
        found
            .into_iter()
            .zip(uids)
            .map(|(found, (kind, uid))| {
                let expected = self.layout().width(*kind);
                if uid.width() != expected {
                    return Err(UidServiceError::UidWidth {
                        kind: *kind,
                        uid: *uid,
                        expected,
                    });
                }
                found?.ok_or(UidServiceError::UidNotFound {
                    kind: *kind,
                    uid: *uid,
                })
            })
            .collect()
    }

    /// At most `size` names that begin with `prefix` and come after `after`, in byte order; fewer
    /// when they are long.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn suggest(
        &self,
        kind: UidKind,
        prefix: &[u8],
        after: Option<&[u8]>,
        size: usize,
    ) -> Result<Page, UidServiceError> {
        suggest::page(&self.table, kind, prefix, after, size).await
    }

    /// All mappings of the kinds, by kind in the order given, then in byte order of their names;
    /// `after` leaves out names of the first kind up to that one.
    pub fn export(
        &self,
        kinds: Vec<UidKind>,
        after: Option<Name>,
    ) -> BoxStream<'static, Result<Vec<Mapping>, UidServiceError>> {
        suggest::export(self.table.clone(), kinds, after)
    }

    /// How much of each number space is in use. `now` is the time of the answer.
    ///
    /// # Errors
    ///
    /// A counter cannot be read.
    pub async fn usage(&self, now: SystemTime) -> Result<Vec<KindUsage>, UidServiceError> {
        self.usage.read(now).await
    }
}
