//! The UIDs that the tables of a data service reference.

use std::time::SystemTime;

use oxtsdb_proto::common::v1 as common;
use oxtsdb_proto::data::v1::ListReferencedUidsRequest;
use oxtsdb_proto::data::v1::list_referenced_uids_response::Event;
use oxtsdb_schema::UidKind;

use crate::uid_set::UidSet;
use crate::{DataClient, Error, UidLayout};

/// The UIDs that a search found.
#[derive(Debug)]
pub struct ReferencedUids {
    /// When the search started.
    pub search_time: SystemTime,
    /// Rows read.
    pub rows: u64,
    /// Rows and cells of unknown form; what they reference is not among the UIDs.
    pub unknown: u64,
    sets: [UidSet; 3],
}

impl ReferencedUids {
    /// The numbers of a kind.
    pub fn of(&self, kind: UidKind) -> &UidSet {
        let [metric, tagk, tagv] = &self.sets;
        match kind {
            UidKind::Metric => metric,
            UidKind::Tagk => tagk,
            UidKind::Tagv => tagv,
        }
    }
}

impl DataClient {
    /// Searches the tables for UIDs, and further `tables` with row keys of points. Calls `progress` with the rows
    /// read so far. `layout` is that of the UID service.
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
        let mut sets: [UidSet; 3] = Default::default();
        while let Some(message) = messages.next().await? {
            match message.event {
                Some(Event::Progress(now)) => progress(now.rows),
                Some(Event::Uids(uids)) => {
                    let (kind, set) = match common::UidKind::try_from(uids.kind) {
                        Ok(common::UidKind::Metric) => (UidKind::Metric, &mut sets[0]),
                        Ok(common::UidKind::TagKey) => (UidKind::Tagk, &mut sets[1]),
                        Ok(common::UidKind::TagValue) => (UidKind::Tagv, &mut sets[2]),
                        _ => return Err(Error::protocol(format!("UID kind {}", uids.kind))),
                    };
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
