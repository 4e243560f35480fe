//! A service in this process, over a store with atomicity and failures that the test controls.
#![allow(unreachable_pub, missing_docs, reason = "the tests are one program")]

use std::time::Duration;

use oxtsdb_client::{AssignedUid, Rejection, UidClient};
use oxtsdb_proto::common::v1::UidKind as PbKind;
use oxtsdb_proto::error::reason_name;
use oxtsdb_proto::uid::v1::UidName;
use oxtsdb_schema::UidKind;
use oxtsdb_server::Shutdown;
pub use oxtsdb_uids::testing::{Cell, Failure, Wrapped, cell, cells, check_invariants, counter, table};
use uid_service::{UidService, UidSettings};

/// A service and its client.
#[derive(Clone, Debug)]
pub struct Service {
    pub client: UidClient,
    pub store: Wrapped,
}

pub fn pb_kind(kind: UidKind) -> PbKind {
    match kind {
        UidKind::Metric => PbKind::Metric,
        UidKind::Tagk => PbKind::TagKey,
        UidKind::Tagv => PbKind::TagValue,
    }
}

pub fn uid_name(kind: UidKind, name: &str) -> UidName {
    UidName {
        kind: pb_kind(kind).into(),
        name: name.to_owned(),
        tag_key: String::new(),
    }
}

/// The UID as hex, or the reason why there is none.
pub fn outcome(result: &Result<AssignedUid, Rejection>) -> String {
    match result {
        Ok(assigned) => hex::encode(assigned.uid.as_bytes()),
        Err(rejection) => reason_name(rejection.reason.expect("items have reasons")).to_owned(),
    }
}

/// Assembles the service over a store and creates missing tables.
pub async fn assemble(store: &Wrapped, settings: &UidSettings) -> anyhow::Result<UidService> {
    let part = uid_service::store_part(settings)?;
    part.make_tables(&store.inner).await?;
    let shutdown = Shutdown::new(Duration::ZERO).0;
    uid_service::assemble(store.row_store(), store.writers(), settings, shutdown).await
}

impl Service {
    pub async fn start(store: Wrapped, settings: &UidSettings) -> Self {
        let server = assemble(&store, settings).await.unwrap();
        Self {
            client: UidClient::in_process(server.routes()),
            store,
        }
    }

    /// Requests UIDs; returns them as [`outcome`].
    pub async fn assign(&self, kind: UidKind, names: &[&str]) -> Vec<String> {
        let names: Vec<_> = names.iter().map(|name| (kind, *name)).collect();
        let results = self.client.get_or_create_uids(&names, false).await.unwrap();
        results.iter().map(outcome).collect()
    }

    /// Puts a counter, as another writer would.
    pub async fn preset(&self, kind: UidKind, value: &[u8]) {
        self.put(&[0], "id", kind, value).await;
    }

    pub async fn put(&self, row: &[u8], family: &str, kind: UidKind, value: &[u8]) {
        self.store.put(row, family, kind, value).await;
    }

    pub async fn cells(&self) -> Vec<Cell> {
        cells(&self.store.inner).await
    }
}
