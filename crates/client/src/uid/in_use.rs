//! UIDs in use: the UIDs that a caller's series have, which the service does not assign again.

use std::fmt;
use std::sync::Arc;

use oxtsdb_proto::uid::v1::{ReportUidsInUseRequest, UidName, UidsInUse};
use oxtsdb_schema::{KindState, UidKind};

use super::{UidClient, types};
use crate::Error;

/// Knows which UIDs the caller's series use.
pub trait UidUse: fmt::Debug + Send + Sync {
    /// The table that the series were written with, [`UidLayout::table_id`](crate::UidLayout::table_id); 0: any. The
    /// service rejects calls for another one.
    fn table_id(&self) -> u64;

    /// The UIDs of these kinds; `None`: they are not known, and none is sent.
    fn in_use(&self, kinds: &[UidKind]) -> Option<UidsInUse>;
}

impl UidClient {
    /// The same client, which names the table of the caller's series in look-ups, and the UIDs that they use in
    /// requests that may assign.
    #[must_use]
    pub fn with_uid_use(&self, uid_use: Arc<dyn UidUse>) -> Self {
        Self {
            uid_use: Some(uid_use),
            ..self.clone()
        }
    }

    /// Reports the UIDs of [`UidClient::with_uid_use`]. Returns the state of each kind with sequential UIDs.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn report_uids_in_use(&self) -> Result<Vec<KindState>, Error> {
        let in_use = self.uid_use.as_ref().and_then(|uses| uses.in_use(&UidKind::ALL));
        let message = ReportUidsInUseRequest { in_use };
        let response = self.connection.call(&message).await?;
        let states = response.kinds.into_iter().map(|state| {
            Ok(KindState {
                kind: types::kind_from_wire(state.kind)?,
                counter: state.counter,
                highest_in_use: state.highest_in_use,
            })
        });
        states.collect()
    }

    pub(super) fn table_id(&self) -> u64 {
        self.uid_use.as_ref().map_or(0, |uses| uses.table_id())
    }

    /// The UIDs in use of the kinds of some names.
    pub(super) fn in_use(&self, names: &[UidName]) -> Option<UidsInUse> {
        let uses = self.uid_use.as_ref()?;
        let has = |kind: &UidKind| names.iter().any(|name| name.kind == types::to_wire(*kind));
        let kinds: Vec<UidKind> = UidKind::ALL.into_iter().filter(has).collect();
        uses.in_use(&kinds)
    }
}
