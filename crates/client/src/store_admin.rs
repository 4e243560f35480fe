//! Operations on the embedded store of a data service.

use oxtsdb_proto::data::v1::check_store_response::{Event as CheckEvent, Finding};
use oxtsdb_proto::data::v1::create_snapshot_response::{Event as SnapshotEvent, Snapshot};
use oxtsdb_proto::data::v1::{
    CheckStoreRequest, CreateSnapshotRequest, GetStoreStatsRequest, GetStoreStatsResponse,
};

use crate::{DataClient, Error};

/// The result of a check of the store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckedStore {
    /// Files that were checked.
    pub files: u64,
    /// Bytes of files of points.
    pub bytes: u64,
    /// Damaged files, also those that were known before.
    pub findings: Vec<Finding>,
}

impl DataClient {
    /// Makes a snapshot of the embedded store in a folder of the server, absent or empty and below its snapshot
    /// folder. Calls `progress` with each store that is being copied. Large stores need
    /// [`DataClient::without_deadline`].
    ///
    /// # Errors
    ///
    /// If the call fails; the snapshot may be completed nevertheless if the connection was lost.
    pub async fn create_snapshot(
        &self,
        folder: &str,
        mut progress: impl FnMut(&str),
    ) -> Result<Snapshot, Error> {
        let request = CreateSnapshotRequest {
            folder: folder.to_owned(),
        };
        let mut messages = self.connection().stream(&request).await?;
        while let Some(message) = messages.next().await? {
            match message.event {
                Some(SnapshotEvent::Progress(now)) => progress(&now.store),
                Some(SnapshotEvent::Snapshot(snapshot)) => return Ok(snapshot),
                // Of a newer server.
                None => {}
            }
        }
        Err(Error::protocol(
            "the stream ended before the snapshot was complete",
        ))
    }

    /// Checks all files of points of the embedded store, at a rate of bytes per second: 0 for no limit, `None` for
    /// the server's. Calls `progress` with the bytes read so far and the bytes of all files. Large stores need
    /// [`DataClient::without_deadline`].
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn check_store(
        &self,
        bytes_per_second: Option<u64>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<CheckedStore, Error> {
        let request = CheckStoreRequest { bytes_per_second };
        let mut messages = self.connection().stream(&request).await?;
        let mut findings = Vec::new();
        while let Some(message) = messages.next().await? {
            match message.event {
                Some(CheckEvent::Progress(now)) => progress(now.bytes, now.total_bytes),
                Some(CheckEvent::Finding(finding)) => findings.push(finding),
                Some(CheckEvent::Summary(summary)) => {
                    return Ok(CheckedStore {
                        files: summary.files,
                        bytes: summary.bytes,
                        findings,
                    });
                }
                // Of a newer server.
                None => {}
            }
        }
        Err(Error::protocol("the stream ended before its summary"))
    }

    /// Returns figures of the embedded store, with the `top_metrics` that have the most series, at most 1,000.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn store_stats(&self, top_metrics: u32) -> Result<GetStoreStatsResponse, Error> {
        let request = GetStoreStatsRequest { top_metrics };
        self.connection().call(&request).await
    }
}
