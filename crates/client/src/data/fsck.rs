//! Checks and repairs of rows: `oxtsdb.data.v1.DataAdminService`.

use oxtsdb_proto::data::v1::fsck_rows_response::Event;
use oxtsdb_proto::data::v1::repair_rows_response::{Effect, result::Outcome};
use oxtsdb_proto::data::v1::{FsckRowsRequest, RepairRowsRequest, RowRepair};

use super::DataClient;
use crate::{Error, Rejection, Results};

impl DataClient {
    /// Checks rows of table `tsdb` and streams what is wrong in them; the last event is the summary. A stream that breaks
    /// can be opened again behind the last row that was reported.
    ///
    /// # Errors
    ///
    /// If the call is rejected; later errors come in the stream.
    pub async fn fsck_rows(&self, request: FsckRowsRequest) -> Result<Results<Event>, Error> {
        let messages = self.connection.stream(&request).await?;
        let no_event = || Error::protocol("a message of a check has no event");
        let events = Results::from_messages(messages, move |message| {
            Ok([message.event.ok_or_else(no_event)?])
        });
        Ok(events.ending_with(|event| matches!(event, Event::Summary(_))))
    }

    /// Applies repairs of rows in their order: at most 1024, with 65536 changes together. Returns one result for each.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole; the same repairs can be sent again.
    pub async fn repair_rows(
        &self,
        repairs: Vec<RowRepair>,
    ) -> Result<Vec<Result<Effect, Rejection>>, Error> {
        let count = repairs.len();
        let message = RepairRowsRequest { repairs };
        let response = self.connection.call(&message).await?;
        if response.results.len() != count {
            let results = response.results.len();
            return Err(Error::protocol(format!("{results} results for {count} repairs")));
        }
        let no_outcome = || Error::protocol("a result has neither an effect nor an error");
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
}
