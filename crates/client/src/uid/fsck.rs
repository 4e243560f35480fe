//! Checks and repairs: `oxtsdb.uid.v1.UidAdminService`.

use std::time::Duration;

use oxtsdb_proto::uid::v1::fsck_uids_response::Event;
use oxtsdb_proto::uid::v1::repair_uids_response::{Effect, result::Outcome};
use oxtsdb_proto::uid::v1::{FsckUidsRequest, RaiseUidCounterRequest, RepairUidsRequest, UidRepair};
use oxtsdb_schema::UidKind;

use super::{UidClient, no_outcome, same_length, types};
use crate::{Error, Rejection, Results};

impl UidClient {
    /// Checks the table of UIDs and streams what is wrong in it; the last event is the summary. `kinds` none: all
    /// kinds. `grace` none: the server's default.
    ///
    /// # Errors
    ///
    /// If the call is rejected; later errors come in the stream.
    pub async fn fsck_uids(
        &self,
        kinds: &[UidKind],
        grace: Option<Duration>,
    ) -> Result<Results<Event>, Error> {
        let grace_period = grace
            .map(prost_types::Duration::try_from)
            .transpose()
            .map_err(|_| Error::invalid("the grace period is too long"))?;
        let message = FsckUidsRequest {
            kinds: kinds.iter().map(|kind| types::to_wire(*kind)).collect(),
            grace_period,
        };
        let messages = self.connection.stream(&message).await?;
        let no_event = || Error::protocol("a message of a check has no event");
        let events = Results::from_messages(messages, move |message| {
            Ok([message.event.ok_or_else(no_event)?])
        });
        Ok(events.ending_with(|event| matches!(event, Event::Summary(_))))
    }

    /// Applies repairs in their order: at most 1024, with 16384 changes together. Returns one result for each.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole; the same repairs can be sent again.
    pub async fn repair_uids(
        &self,
        repairs: Vec<UidRepair>,
    ) -> Result<Vec<Result<Effect, Rejection>>, Error> {
        let count = repairs.len();
        let message = RepairUidsRequest { repairs };
        let response = self.connection.call(&message).await?;
        same_length(response.results.len(), count)?;
        let results = response.results.into_iter();
        results
            .map(|result| match result.outcome.ok_or_else(no_outcome)? {
                Outcome::Effect(effect) => Effect::try_from(effect)
                    .map(Ok)
                    .map_err(|_| Error::protocol(format!("{effect} is not the effect of a repair"))),
                Outcome::Error(error) => Ok(Err(error.into())),
            })
            .collect()
    }

    /// Raises the counter of a kind to `minimum`, if it is lower. Returns the counter.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn raise_uid_counter(&self, kind: UidKind, minimum: u64) -> Result<u64, Error> {
        let message = RaiseUidCounterRequest {
            kind: types::to_wire(kind),
            minimum,
        };
        Ok(self.connection.call(&message).await?.value)
    }
}
