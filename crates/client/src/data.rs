//! The client of the data service.

mod annotation;
mod fsck;

use bytes::Bytes;
use oxtsdb_proto::data::v1::{
    BuildRollupsRequest, BuildRollupsResponse, CancelQueryRequest, CompactRowsRequest, CompactRowsResponse,
    DeletePointsRequest, DeletePointsResponse, ExplainRequest, ListQueriesRequest, QueryExpressionsRequest,
    QueryLastRequest, QueryPlan, QueryRequest, RunningQuery, ScanRowsRequest, ScanTableRequest, StoredRow,
};

use crate::call::{Connection, deadline_methods};
use crate::results::Progress;
use crate::write;
use crate::{
    Error, ExpressionFrame, LastPointOutcome, Point, QueryFrame, Results, Rollup, StreamOptions,
    StreamWriter, WriteReport,
};

/// A client of the data service, `oxtsdb.data.v1.DataService`. Cloning is cheap; clones share the
/// connections.
#[derive(Clone, Debug)]
pub struct DataClient {
    connection: Connection,
}

impl DataClient {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    const fn with_connection(&self, connection: Connection) -> Self {
        Self { connection }
    }

    deadline_methods!();

    /// Writes points, in as many requests as they need, one after the other. Returns how many are stored, and
    /// each point that is not. Write [`retryable`](crate::FailedPoint::retryable) ones again after a pause.
    ///
    /// For a steady flow, [`stream_writer`](Self::stream_writer) is cheaper.
    ///
    /// # Errors
    ///
    /// If a request fails as a whole. Points of the requests before it are stored; if a retry is safe, write
    /// all points again.
    pub async fn write(&self, points: impl IntoIterator<Item = Point>) -> Result<WriteReport, Error> {
        write::write(&self.connection, points).await
    }

    /// Writes rollups and pre-aggregates, in as many requests as they need, one after the other. Returns how many are
    /// stored, and each that is not.
    ///
    /// # Errors
    ///
    /// If a request fails as a whole. Rollups of the requests before it are stored; writing all of them again is safe.
    pub async fn write_rollups(
        &self,
        rollups: impl IntoIterator<Item = Rollup>,
    ) -> Result<WriteReport, Error> {
        write::write_rollups(&self.connection, rollups).await
    }

    /// Opens a stream for points.
    ///
    /// # Errors
    ///
    /// If the service rejects it or cannot be reached.
    pub async fn stream_writer(&self, options: StreamOptions) -> Result<StreamWriter, Error> {
        StreamWriter::open(self.connection.clone(), options).await
    }

    /// Runs sub-queries and streams their results. Timestamps are requested as differences, which are fewer
    /// bytes, and returned absolute.
    ///
    /// # Errors
    ///
    /// If the service rejects the query before it runs; later errors come in the stream.
    pub async fn query(&self, request: impl Into<QueryRequest>) -> Result<Results<QueryFrame>, Error> {
        let request = QueryRequest {
            delta_timestamps: true,
            ..request.into()
        };
        let messages = self.connection.stream(&request).await?;
        Ok(Results::from_messages(messages, QueryFrame::from_message).ending_with(QueryFrame::is_last))
    }

    /// Computes expressions over sub-queries and streams their results.
    ///
    /// # Errors
    ///
    /// As [`query`](Self::query).
    pub async fn query_expressions(
        &self,
        request: QueryExpressionsRequest,
    ) -> Result<Results<ExpressionFrame>, Error> {
        let request = QueryExpressionsRequest {
            delta_timestamps: true,
            ..request
        };
        let messages = self.connection.stream(&request).await?;
        Ok(Results::from_messages(messages, ExpressionFrame::from_message)
            .ending_with(ExpressionFrame::is_last))
    }

    /// Returns the plan of a query without running it.
    ///
    /// # Errors
    ///
    /// As a query, as far as errors arise before it reads rows.
    pub async fn explain(&self, query: impl Into<QueryRequest>) -> Result<Vec<QueryPlan>, Error> {
        let request = ExplainRequest {
            query: Some(query.into()),
        };
        Ok(self.connection.call(&request).await?.plans)
    }

    /// Streams the last point of each series, and the targets that failed.
    ///
    /// # Errors
    ///
    /// If the service rejects the request before it runs; later errors come in the stream.
    pub async fn query_last(&self, request: QueryLastRequest) -> Result<Results<LastPointOutcome>, Error> {
        let messages = self.connection.stream(&request).await?;
        Ok(Results::from_messages(messages, LastPointOutcome::from_message))
    }

    /// Streams the stored rows of some series in batches, in the order of the table. A stream that breaks is
    /// resumed behind its last row.
    pub fn scan_rows(&self, request: ScanRowsRequest) -> Results<Vec<StoredRow>> {
        let batches = Results::resumed(self.connection.clone(), request, |request, batch| {
            advance(&mut request.start_after_row_key, &mut request.limit, &batch.rows)
        });
        batches.convert(|batch| Ok(batch.rows))
    }

    /// Streams all stored rows of the table in batches, in its order. A stream that breaks is resumed behind its
    /// last row.
    pub fn scan_table(&self, request: ScanTableRequest) -> Results<Vec<StoredRow>> {
        let batches = Results::resumed(self.connection.clone(), request, |request, batch| {
            advance(&mut request.start_after_row_key, &mut request.limit, &batch.rows)
        });
        batches.convert(|batch| Ok(batch.rows))
    }

    /// Builds rollups from points, and streams progress. A stream that breaks is resumed where the build goes on. Long
    /// builds need [`DataClient::without_deadline`].
    pub fn build_rollups(&self, request: BuildRollupsRequest) -> Results<BuildRollupsResponse> {
        let progress = Results::resumed(
            self.connection.clone(),
            request,
            |request, progress: &BuildRollupsResponse| {
                if !progress.resume_token.is_empty() {
                    request.resume_token.clone_from(&progress.resume_token);
                }
                match progress.done {
                    true => Progress::Complete,
                    false => Progress::More,
                }
            },
        );
        progress.ending_with(|progress| progress.done)
    }

    /// Compacts rows of HBase, and streams progress; its counts add up. A stream that breaks is resumed behind the
    /// last row that was reported.
    pub fn compact_rows(&self, request: CompactRowsRequest) -> Results<CompactRowsResponse> {
        let reports = Results::resumed(
            self.connection.clone(),
            request,
            |request, report: &CompactRowsResponse| {
                if !report.last_row_key.is_empty() {
                    request.start_after_row_key.clone_from(&report.last_row_key);
                }
                if report.done {
                    Progress::Complete
                } else {
                    Progress::More
                }
            },
        );
        reports.ending_with(|report| report.done)
    }

    /// Deletes points and streams progress; a stream that breaks is opened again, which completes the delete. Counts are
    /// of the last stream only.
    pub fn delete_points(&self, request: DeletePointsRequest) -> Results<DeletePointsResponse> {
        let reports = Results::resumed(
            self.connection.clone(),
            request,
            |_, report: &DeletePointsResponse| {
                if report.done {
                    Progress::Complete
                } else {
                    Progress::More
                }
            },
        );
        reports.ending_with(|report| report.done)
    }

    /// Returns the queries that run on the server; other servers have their own.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn list_queries(&self) -> Result<Vec<RunningQuery>, Error> {
        let response = self.connection.call(&ListQueriesRequest {}).await?;
        Ok(response.queries)
    }

    /// Cancels a query of the server; its caller gets ABORTED.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` if it does not run, also after a retry of a call that succeeded.
    pub async fn cancel_query(&self, id: u64) -> Result<(), Error> {
        self.connection.call(&CancelQueryRequest { id }).await?;
        Ok(())
    }
}

/// Moves a scan behind the rows that were received.
fn advance(start_after_row_key: &mut Bytes, limit: &mut u64, rows: &[StoredRow]) -> Progress {
    let Some(last) = rows.last() else {
        return Progress::More;
    };
    start_after_row_key.clone_from(&last.row_key);
    if *limit == 0 {
        return Progress::More;
    }
    *limit = limit.saturating_sub(rows.len() as u64);
    // A limit of 0 would be none.
    if *limit == 0 {
        Progress::Complete
    } else {
        Progress::More
    }
}
