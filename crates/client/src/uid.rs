//! The client of the UID service.

mod fsck;
mod in_use;
pub(crate) mod meta;
mod reclaim;
mod types;
mod watch;

use std::sync::Arc;

use oxtsdb_proto::uid::v1::{
    DeleteUidRequest, DropUidCachesRequest, ExportUidsRequest, GetOrCreateUidsRequest, GetUidLayoutRequest,
    GetUidUsageRequest, LookupNamesRequest, LookupUidsRequest, RenameUidRequest, SuggestNamesRequest,
    UidName, UidValue, get_or_create_uids_response, lookup_names_response, lookup_uids_response,
};
use oxtsdb_schema::{AssignedUid, Uid, UidKind};
use tonic::body::Body;
use tonic::codegen::StdError;
use tower::Service;

use crate::call::{CallOptions, Connection, deadline_methods};
use crate::results::Progress;
use crate::transport;
use crate::{Error, Rejection, Results};
pub use in_use::UidUse;
pub use meta::PurgedUidMeta;
pub use reclaim::{ReclaimState, ReclaimedUid};
pub(crate) use types::kind_from_wire;
pub use types::{KindLayout, KindUsage, NewName, QuotaUsage, SuggestPage, UidLayout, UidMapping, UidUsage};
pub use watch::{UidEvent, UidWatch, WatchOptions, WatchUpdate};

/// The most names or UIDs in one call; larger batches are split.
const MAX_BATCH: usize = 4096;

/// Names in one call that may assign UIDs. On HBase each new name costs two requests: larger calls would
/// exceed the deadline.
const ASSIGN_BATCH: usize = 1024;

/// The most names in a page of SuggestNames.
const MAX_PAGE: usize = 3000;

/// A client of the UID service, `oxtsdb.uid.v1.UidService`, over the network or in the same process.
///
/// Batches are split, and calls are retried as the contract's service config says. Cloning is cheap; clones
/// share the connections.
#[derive(Clone, Debug)]
pub struct UidClient {
    connection: Connection,
    /// The UIDs that the caller's series use.
    uid_use: Option<Arc<dyn UidUse>>,
}

impl UidClient {
    /// A client of services in this process, without a socket.
    pub fn in_process<S>(service: S) -> Self
    where
        S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + Sync + 'static,
        S::Error: Into<StdError>,
        S::Future: Send + 'static,
    {
        let transport = transport::in_process(service);
        Self::new(Connection::new(transport, CallOptions::default()))
    }

    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            uid_use: None,
        }
    }

    fn with_connection(&self, connection: Connection) -> Self {
        Self {
            connection,
            uid_use: self.uid_use.clone(),
        }
    }

    deadline_methods!();

    /// Returns the UID of each name, in the order of the names; missing ones are assigned.
    ///
    /// `explicit` is for operators: it also assigns kinds that the deployment does not auto-create, and names that
    /// its rules or quotas reject.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole; a name that fails has its rejection in the result.
    pub async fn get_or_create_uids<N: AsRef<str>>(
        &self,
        names: &[(UidKind, N)],
        explicit: bool,
    ) -> Result<Vec<Result<AssignedUid, Rejection>>, Error> {
        self.assign(names, uid_name, explicit).await
    }

    /// Returns the UID of each name of points to write, in the order of the names; missing ones are assigned as
    /// the rules and quotas of the deployment allow.
    ///
    /// # Errors
    ///
    /// As [`UidClient::get_or_create_uids`].
    pub async fn get_or_create_uids_for_write<N: AsRef<str>>(
        &self,
        names: &[NewName<N>],
    ) -> Result<Vec<Result<AssignedUid, Rejection>>, Error> {
        let message = |name: &NewName<N>| UidName {
            kind: types::to_wire(name.kind),
            name: name.name.as_ref().to_owned(),
            tag_key: name.tag_key.as_ref().map_or("", AsRef::as_ref).to_owned(),
        };
        self.assign(names, message, false).await
    }

    async fn assign<T>(
        &self,
        names: &[T],
        message: impl Fn(&T) -> UidName,
        explicit: bool,
    ) -> Result<Vec<Result<AssignedUid, Rejection>>, Error> {
        use get_or_create_uids_response::result::Outcome;

        let mut assigned = Vec::with_capacity(names.len());
        for names in names.chunks(ASSIGN_BATCH) {
            let names_to_assign: Vec<UidName> = names.iter().map(&message).collect();
            let message = GetOrCreateUidsRequest {
                in_use: self.in_use(&names_to_assign),
                names: names_to_assign,
                explicit,
            };
            let response = self.connection.call(&message).await?;
            same_length(response.results.len(), names.len())?;
            for result in response.results {
                let created = result.created;
                assigned.push(match result.outcome.ok_or_else(no_outcome)? {
                    Outcome::Uid(uid) => Ok(AssignedUid {
                        uid: types::uid(&uid)?,
                        created,
                    }),
                    Outcome::Error(error) => Err(error.into()),
                });
            }
        }
        Ok(assigned)
    }

    /// Returns the UID of each name that has one, in the order of the names.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole; a name without a UID has a rejection with `NAME_NOT_FOUND`.
    pub async fn lookup_uids<N: AsRef<str>>(
        &self,
        names: &[(UidKind, N)],
    ) -> Result<Vec<Result<Uid, Rejection>>, Error> {
        use lookup_uids_response::result::Outcome;

        let mut uids = Vec::with_capacity(names.len());
        for names in names.chunks(MAX_BATCH) {
            let message = LookupUidsRequest {
                names: names.iter().map(uid_name).collect(),
                bypass_cache: false,
                table_id: self.table_id(),
            };
            let response = self.connection.call(&message).await?;
            same_length(response.results.len(), names.len())?;
            for result in response.results {
                uids.push(match result.outcome.ok_or_else(no_outcome)? {
                    Outcome::Uid(uid) => Ok(types::uid(&uid)?),
                    Outcome::Error(error) => Err(error.into()),
                });
            }
        }
        Ok(uids)
    }

    /// Returns the name of each UID that has one, in the order of the UIDs.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole; a UID without a name has a rejection with `UID_NOT_FOUND`.
    pub async fn lookup_names(
        &self,
        uids: &[(UidKind, Uid)],
    ) -> Result<Vec<Result<String, Rejection>>, Error> {
        use lookup_names_response::result::Outcome;

        let mut names = Vec::with_capacity(uids.len());
        for uids in uids.chunks(MAX_BATCH) {
            let message = LookupNamesRequest {
                uids: uids.iter().map(uid_value).collect(),
                bypass_cache: false,
                table_id: self.table_id(),
            };
            let response = self.connection.call(&message).await?;
            same_length(response.results.len(), uids.len())?;
            for result in response.results {
                names.push(match result.outcome.ok_or_else(no_outcome)? {
                    Outcome::Name(name) => Ok(name),
                    Outcome::Error(error) => Err(error.into()),
                });
            }
        }
        Ok(names)
    }

    /// Returns the first `max` names of a kind that start with `prefix`, in byte order.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn suggest_names(
        &self,
        kind: UidKind,
        prefix: &str,
        max: usize,
    ) -> Result<Vec<UidMapping>, Error> {
        let mut mappings = Vec::new();
        let mut next_page = None;
        while mappings.len() < max {
            let page = self
                .suggest_page(kind, prefix, max - mappings.len(), next_page)
                .await?;
            mappings.extend(page.mappings);
            next_page = page.next_page;
            if next_page.is_none() {
                break;
            }
        }
        Ok(mappings)
    }

    /// Returns a page of the names of a kind that start with `prefix`, in byte order: the first one, or that
    /// of [`SuggestPage::next_page`].
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn suggest_page(
        &self,
        kind: UidKind,
        prefix: &str,
        page_size: usize,
        page: Option<String>,
    ) -> Result<SuggestPage, Error> {
        let message = SuggestNamesRequest {
            kind: types::to_wire(kind),
            prefix: prefix.to_owned(),
            page_size: i32::try_from(page_size.clamp(1, MAX_PAGE)).unwrap_or(i32::MAX),
            page_token: page.unwrap_or_default(),
        };
        let response = self.connection.call(&message).await?;
        Ok(SuggestPage {
            mappings: types::mappings(response.mappings)?,
            next_page: Some(response.next_page_token).filter(|token| !token.is_empty()),
        })
    }

    /// Streams all mappings of some kinds (none: of all), by kind and then name, in batches. A stream that
    /// breaks is resumed where it broke.
    pub fn export_uids(&self, kinds: &[UidKind]) -> Results<Vec<UidMapping>> {
        let request = ExportUidsRequest {
            kinds: kinds.iter().map(|kind| types::to_wire(*kind)).collect(),
            start_after: None,
        };
        let batches = Results::resumed(self.connection.clone(), request, |request, batch| {
            if let Some(last) = batch.mappings.last() {
                request.start_after = Some(UidName {
                    kind: last.kind,
                    name: last.name.clone(),
                    tag_key: String::new(),
                });
            }
            Progress::More
        });
        batches.convert(|batch| types::mappings(batch.mappings))
    }

    /// Gives a UID another name, and returns the mapping as it is then. Points move to the new name.
    ///
    /// With `expected`, the UID that `name` must have, a call with an unknown outcome can be sent again. Not retried
    /// by the client.
    ///
    /// # Errors
    ///
    /// If the call fails: `NAME_NOT_FOUND`, `NAME_TAKEN`, `INVALID_NAME`, `UID_MISMATCH`, `OPERATION_IN_PROGRESS`
    /// and others, as the contract says.
    pub async fn rename(
        &self,
        kind: UidKind,
        name: &str,
        new_name: &str,
        expected: Option<Uid>,
    ) -> Result<UidMapping, Error> {
        let message = RenameUidRequest {
            kind: types::to_wire(kind),
            name: name.to_owned(),
            new_name: new_name.to_owned(),
            expected_uid: types::uid_bytes(expected),
        };
        let response = self.connection.call(&message).await?;
        types::mapping(response.mapping)?.ok_or_else(no_outcome)
    }

    /// Deletes a mapping and the UID's metadata, and returns the mapping as it was. Points are kept, but have no
    /// name any more.
    ///
    /// Not retried by the client.
    ///
    /// # Errors
    ///
    /// If the call fails: `NAME_NOT_FOUND`, `UID_MISMATCH`, `OPERATION_IN_PROGRESS` and others, as the contract
    /// says.
    pub async fn delete(
        &self,
        kind: UidKind,
        name: &str,
        expected: Option<Uid>,
    ) -> Result<UidMapping, Error> {
        let message = DeleteUidRequest {
            kind: types::to_wire(kind),
            name: name.to_owned(),
            expected_uid: types::uid_bytes(expected),
            allow_missing: false,
        };
        let response = self.connection.call(&message).await?;
        types::mapping(response.mapping)?.ok_or_else(no_outcome)
    }

    /// Empties the cache of the replica that serves the call; returns the number of entries, about.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn drop_caches(&self) -> Result<u64, Error> {
        let response = self.connection.call(&DropUidCachesRequest {}).await?;
        Ok(response.dropped)
    }

    /// Returns the widths of UIDs and the rules of names.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn get_uid_layout(&self) -> Result<UidLayout, Error> {
        let response = self.connection.call(&GetUidLayoutRequest {}).await?;
        types::layout(response)
    }

    /// Returns how many UIDs are in use and left, by kind, and the use of quotas.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn get_uid_usage(&self) -> Result<UidUsage, Error> {
        let response = self.connection.call(&GetUidUsageRequest {}).await?;
        types::usage(response)
    }
}

fn uid_name<N: AsRef<str>>((kind, name): &(UidKind, N)) -> UidName {
    UidName {
        kind: types::to_wire(*kind),
        name: name.as_ref().to_owned(),
        tag_key: String::new(),
    }
}

fn uid_value((kind, uid): &(UidKind, Uid)) -> UidValue {
    UidValue {
        kind: types::to_wire(*kind),
        uid: uid.as_bytes().to_vec().into(),
    }
}

fn same_length(results: usize, items: usize) -> Result<(), Error> {
    if results == items {
        return Ok(());
    }
    Err(Error::protocol(format!("{results} results for {items} items")))
}

fn no_outcome() -> Error {
    Error::protocol("a result has neither a value nor an error")
}
