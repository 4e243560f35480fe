//! Look-ups: from the cache, the rest with one request.

use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;
use hashbrown::HashMap;
use oxtsdb_client::NewName;
use oxtsdb_schema::{Uid, UidKind};

use super::{UidRejection, Uids, UidsError};

/// UIDs of a call, which takes about a millisecond of a thread of the runtime.
const NAMES: usize = 1024;

impl Uids {
    /// The UID of a name; `None` if it has none.
    ///
    /// # Errors
    ///
    /// If the call fails.
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

    /// The UIDs of names, in their order; `None` for each that has none. Names that are
    /// not cached are looked up with one call.
    ///
    /// # Errors
    ///
    /// If the call fails, or the service rejects one of the names.
    pub async fn uids(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, UidsError> {
        let mut resolved = Vec::with_capacity(names.len());
        let mut missing = Vec::new();
        for (kind, name) in names {
            let uid = self.0.cache.uid(*kind, name);
            if uid.is_none() && !self.0.cache.is_absent(*kind, name) {
                missing.push(resolved.len());
            }
            resolved.push(uid);
        }
        if missing.is_empty() {
            return Ok(resolved);
        }
        let requested: Vec<(UidKind, &str)> = missing.iter().map(|index| names[*index]).collect();
        let uids = self.request_existing_uids(&requested, deadline).await?;
        for (index, uid) in missing.into_iter().zip(uids) {
            resolved[index] = uid;
        }
        Ok(resolved)
    }

    /// The names of UIDs of one kind, in their order; `None` for each that has none. UIDs that
    /// are not cached are looked up with one call for `NAMES` of them; other tasks run between the calls.
    ///
    /// # Errors
    ///
    /// If a call fails, or the service rejects one of the UIDs.
    pub async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, UidsError> {
        let mut all = Vec::with_capacity(uids.len());
        for uids in uids.chunks(NAMES) {
            if !all.is_empty() {
                tokio::task::yield_now().await;
            }
            let (mut resolved, missing) = self.cached_names(kind, uids);
            if !missing.is_empty() {
                let requested: Vec<Uid> = missing.iter().map(|index| uids[*index]).collect();
                let names = self.request_names(kind, &requested, deadline).await?;
                fill(&mut resolved, missing, names);
            }
            all.extend(resolved);
        }
        Ok(all)
    }

    /// As [`Uids::names`], for a write: fails at once during an outage of the service; see `outage`.
    ///
    /// # Errors
    ///
    /// As [`Uids::names`].
    pub async fn names_for_write(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, UidsError> {
        let (mut resolved, missing) = self.cached_names(kind, uids);
        if !missing.is_empty() {
            let requested: Arc<[Uid]> = missing.iter().map(|index| uids[*index]).collect();
            let this = self.clone();
            let attempt = move || {
                let (this, requested) = (this.clone(), Arc::clone(&requested));
                async move { this.request_names(kind, &requested, None).await }.boxed()
            };
            let names = self.0.outage.call(missing.len(), deadline, attempt).await?;
            fill(&mut resolved, missing, names);
        }
        Ok(resolved)
    }

    /// The UIDs of names, in their order. Missing UIDs are assigned in the order of the names' first occurrence,
    /// with one call. `tag_key` returns the tag key of the tag value at an index.
    ///
    /// # Errors
    ///
    /// If the service is unavailable, at once during an outage; see `outage`. If it rejects a name, that
    /// name's result is the rejection.
    pub async fn assign_for<'a>(
        &self,
        names: &[(UidKind, &'a str)],
        tag_key: impl Fn(usize) -> Option<&'a str>,
        deadline: Option<Instant>,
    ) -> Result<Vec<Result<Uid, UidRejection>>, UidsError> {
        /// The UID of a name, or its position in the request.
        enum Source {
            Cached(Uid),
            Requested(usize),
        }

        let mut requested: Vec<NewName<&str>> = Vec::new();
        let mut positions: HashMap<(UidKind, &str), usize> = HashMap::new();
        let mut sources = Vec::with_capacity(names.len());
        for (index, (kind, name)) in names.iter().enumerate() {
            sources.push(match self.0.cache.uid(*kind, name) {
                Some(uid) => Source::Cached(uid),
                None => Source::Requested(*positions.entry((*kind, *name)).or_insert_with(|| {
                    requested.push(NewName {
                        kind: *kind,
                        name: *name,
                        tag_key: tag_key(index),
                    });
                    requested.len() - 1
                })),
            });
        }
        let mut responses = Vec::with_capacity(requested.len());
        if !requested.is_empty() {
            let owned = |name: &NewName<&str>| NewName {
                kind: name.kind,
                name: name.name.to_owned(),
                tag_key: name.tag_key.map(str::to_owned),
            };
            let request: Arc<[NewName<String>]> = requested.iter().map(owned).collect();
            let this = self.clone();
            let attempt = move || {
                let (this, request) = (this.clone(), Arc::clone(&request));
                async move { this.request_uids(&request).await }.boxed()
            };
            responses = self.0.outage.call(requested.len(), deadline, attempt).await?;
        }
        let uid_of = |source| match source {
            Source::Cached(uid) => Ok(uid),
            Source::Requested(index) => responses[index].clone(),
        };
        Ok(sources.into_iter().map(uid_of).collect())
    }

    /// The UID of a name, if it is cached.
    pub fn cached(&self, kind: UidKind, name: &str) -> Option<Uid> {
        self.0.cache.uid(kind, name)
    }

    /// The cached names, and the positions of those that are not cached.
    fn cached_names(&self, kind: UidKind, uids: &[Uid]) -> (Vec<Option<Arc<str>>>, Vec<usize>) {
        let resolved: Vec<_> = uids.iter().map(|uid| self.0.cache.name(kind, uid)).collect();
        let missing = (0..resolved.len())
            .filter(|index| resolved[*index].is_none())
            .collect();
        (resolved, missing)
    }
}

/// Puts the requested names into their positions.
fn fill(resolved: &mut [Option<Arc<str>>], missing: Vec<usize>, names: Vec<Option<Arc<str>>>) {
    for (index, name) in missing.into_iter().zip(names) {
        resolved[index] = name;
    }
}
