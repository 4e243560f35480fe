//! The differences between repairs of rows and of UIDs.

use std::path::Path;

use oxtsdb_client::{Error, Rejection};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The effect of a repair that the server accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Cells were changed.
    Changed,
    /// The cells had the new values already.
    Unchanged,
}

/// A repair as the message to the server: conditional changes of cells.
pub(crate) trait Repair: Clone + 'static {
    /// The command, for errors of calls.
    const COMMAND: &'static str;
    /// The format of plans.
    const PLAN: &'static str;
    /// The format of records.
    const UNDO: &'static str;

    /// The client of the service that makes the repairs.
    type Client;
    /// The repair as a file has it.
    type Stored: From<Self> + Serialize + DeserializeOwned + Send + 'static;
    /// A line of a plan as it is read.
    type PlanLine: DeserializeOwned;

    /// The repairs of a line, in the order in which they are made.
    fn from_line(line: Self::PlanLine) -> Vec<Self::Stored>;

    /// Decodes a repair that was read from a file, and checks whether the server can accept it.
    ///
    /// # Errors
    ///
    /// The line was not read, or its repair is not valid.
    fn checked(read: anyhow::Result<Self::Stored>, file: &Path) -> anyhow::Result<Self>;

    /// The repair that undoes this one.
    fn inverse(&self) -> Self;

    /// The name of the repair in messages.
    fn title(&self) -> String;

    /// The number of changes.
    fn changes(&self) -> usize;

    /// About the bytes of the message.
    fn byte_len(&self) -> usize;

    /// Sends repairs to the server; the results are in their order.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole.
    async fn send(
        client: &Self::Client,
        repairs: Vec<Self>,
    ) -> Result<Vec<Result<Applied, Rejection>>, Error>;
}

/// The bytes of a value in a message.
pub(crate) fn value_bytes(value: Option<&bytes::Bytes>) -> usize {
    value.map_or(0, bytes::Bytes::len)
}
