//! The UIDs that the tables of a data service reference.

use std::time::SystemTime;

use oxtsdb_proto::data::v1::ListReferencedUidsRequest;
use oxtsdb_proto::data::v1::list_referenced_uids_response::Event;
use oxtsdb_schema::{PerKind, UidKind, UidSet};

use crate::uid::kind_from_wire;
use crate::{DataClient, Error, UidLayout};

/// The UIDs that a search found.
#[derive(Debug)]
pub struct ReferencedUids {
    /// When the search started.
    pub search_time: SystemTime,
    /// Rows read.
    pub rows: u64,
    /// Rows and cells of unknown form; their references are not among the UIDs.
    pub unknown: u64,
    sets: PerKind<UidSet>,
}

impl ReferencedUids {
    /// The numbers of a kind.
    pub fn get(&self, kind: UidKind) -> &UidSet {
        self.sets.get(kind)
    }
}

impl DataClient {
    /// Searches the tables for UIDs, and further `tables` with row keys of points. Calls `progress` with the rows
    /// read so far. `layout` is the UID service's.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn list_referenced_uids(
        &self,
        layout: &UidLayout,
        tables: &[String],
        mut progress: impl FnMut(u64),
    ) -> Result<ReferencedUids, Error> {
        let request = ListReferencedUidsRequest {
            tables: tables.to_vec(),
        };
        let mut messages = self.connection().stream(&request).await?;
        let mut sets = PerKind::<UidSet>::default();
        while let Some(message) = messages.next().await? {
            match message.event {
                Some(Event::Progress(now)) => progress(now.rows),
                Some(Event::Uids(uids)) => {
                    let kind = kind_from_wire(uids.kind)?;
                    let set = sets.get_mut(kind);
                    let width = layout.kind(kind).map_or(0, |layout| layout.width);
                    if !(1..=8).contains(&width) || uids.uids.len() % width != 0 {
                        return Err(Error::protocol(format!(
                            "{} bytes of UIDs of {width}",
                            uids.uids.len()
                        )));
                    }
                    for uid in uids.uids.chunks_exact(width) {
                        set.insert(uid.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
                    }
                }
                Some(Event::Summary(summary)) => {
                    let time = summary.start_time.and_then(|time| time.try_into().ok());
                    return Ok(ReferencedUids {
                        search_time: time.ok_or_else(|| Error::protocol("a search without a start"))?,
                        rows: summary.rows,
                        unknown: summary.unknown,
                        sets,
                    });
                }
                // Of a newer server.
                None => {}
            }
        }
        Err(Error::protocol("the stream ended before its summary"))
    }
}
