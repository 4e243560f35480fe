//! `ReferenceService`.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use oxtsdb_metadata::references::{Found, Search, SearchError, Tables};
use oxtsdb_proto::common::v1::{self as common, ErrorReason};
use oxtsdb_proto::data::v1::list_referenced_uids_response::{Event, Progress, Summary, Uids};
use oxtsdb_proto::data::v1::reference_service_server::ReferenceService;
use oxtsdb_proto::data::v1::{ListReferencedUidsRequest, ListReferencedUidsResponse};
use oxtsdb_proto::error::{invalid_field, status};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::{Admitted, Engine, QueryDescription, QueryError};
use oxtsdb_row_store::TableNameError;
use oxtsdb_schema::{RowKeyLayout, UidKind};
use oxtsdb_server::code_of_store_error;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::query::query_status;
use super::results::context_of;

/// Bytes of UIDs in a message.
const MESSAGE_BYTES: usize = 1 << 20;

/// How often a search reports its progress.
const PROGRESS: Duration = Duration::from_secs(2);

/// Messages that wait for the client.
const QUEUED: usize = 2;

/// Serves `oxtsdb.data.v1.ReferenceService`. A search is admitted as a query and can be cancelled as one, but has no
/// time limit: one that is interrupted proves nothing. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct ReferenceServiceHandler {
    engine: Engine,
    tables: Tables,
}

type Sender = mpsc::Sender<Result<ListReferencedUidsResponse, Status>>;

impl ReferenceServiceHandler {
    pub(crate) fn new(engine: Engine, tables: Tables) -> Self {
        Self { engine, tables }
    }
}

#[tonic::async_trait]
impl ReferenceService for ReferenceServiceHandler {
    async fn list_referenced_uids(
        &self,
        request: Request<ListReferencedUidsRequest>,
    ) -> Result<Response<MessageStream<ListReferencedUidsResponse>>, Status> {
        let mut tables = self.tables.clone();
        let context = context_of(&request);
        for (index, name) in request.into_inner().tables.iter().enumerate() {
            let table = name.parse().map_err(|error: TableNameError| {
                invalid_field(&format!("tables[{index}]"), error.to_string())
            })?;
            if !tables.data.contains(&table) {
                tables.data.push(table);
            }
        }
        let description = QueryDescription::without_range("references");
        let storage = self.engine.storage();
        let admitted = self.engine.admit(context, description, None).await;
        let admitted = admitted.map_err(|error| query_status(&error, "", &storage.table.to_string()))?;
        let memory = self.engine.resources().memory.clone();
        let search = Search::from_storage(storage, memory);
        let (sender, receiver) = mpsc::channel(QUEUED);
        tokio::spawn(run(search, tables, storage.layout, sender, admitted));
        Ok(Response::new(ReceiverStream::new(receiver).boxed()))
    }
}

/// Runs a search and sends its messages, until the client is gone or an operator cancels it.
async fn run(search: Search, tables: Tables, layout: RowKeyLayout, sender: Sender, admitted: Admitted) {
    let mut running = Box::pin(search.run(&tables));
    let mut ticks = tokio::time::interval(PROGRESS);
    let references = loop {
        tokio::select! {
            references = &mut running => break references,
            () = sender.closed() => {
                search.cancel();
                return;
            }
            () = admitted.context().cancellation().cancelled() => {
                search.cancel();
                let cancelled = query_status(&QueryError::Cancelled, "", "");
                return drop(sender.send(Err(cancelled)).await);
            }
            _ = ticks.tick() => {
                // A client that does not read has enough of them.
                let progress = Event::Progress(Progress { rows: search.rows() });
                drop(sender.try_send(Ok(message(progress))));
            }
        }
    };
    // Its results are sent without the permit.
    drop(admitted);
    match references {
        Ok(references) => drop(send_all(&references, &layout, &sender).await),
        Err(error) => drop(sender.send(Err(search_status(&error))).await),
    }
}

async fn send_all(
    references: &Found,
    layout: &RowKeyLayout,
    sender: &Sender,
) -> Result<(), mpsc::error::SendError<Result<ListReferencedUidsResponse, Status>>> {
    for kind in UidKind::ALL {
        let width = layout.widths.get(kind).bytes();
        let mut uids: Vec<u8> = Vec::new();
        for number in references.numbers(kind) {
            if uids.len() + width > MESSAGE_BYTES {
                sender
                    .send(Ok(uids_response(kind, std::mem::take(&mut uids))))
                    .await?;
            }
            uids.extend_from_slice(number.to_be_bytes().get(8 - width..).unwrap_or_default());
        }
        if !uids.is_empty() {
            sender.send(Ok(uids_response(kind, uids))).await?;
        }
    }
    let summary = Event::Summary(Summary {
        start_time: Some(references.started.into()),
        rows: references.rows,
        unknown: references.unknown,
    });
    sender.send(Ok(message(summary))).await
}

fn uids_response(kind: UidKind, uids: Vec<u8>) -> ListReferencedUidsResponse {
    message(Event::Uids(Uids {
        kind: common::UidKind::from(kind).into(),
        uids: Bytes::from(uids),
    }))
}

fn message(event: Event) -> ListReferencedUidsResponse {
    ListReferencedUidsResponse { event: Some(event) }
}

fn search_status(error: &SearchError) -> Status {
    let (code, reason) = match error {
        SearchError::Store(error) => code_of_store_error(error),
        SearchError::Memory(_) => (Code::ResourceExhausted, ErrorReason::QueryTooLarge),
    };
    status(code, reason, error.to_string(), &[])
}
