//! The generated traits, call by call.

use bytes::Bytes;
use oxtsdb_proto::data::v1::data_admin_service_server::DataAdminService;
use oxtsdb_proto::data::v1::data_service_server::DataService;
use oxtsdb_proto::data::v1::series_service_server::SeriesService;
use oxtsdb_proto::data::v1::{
    BuildRollupsRequest, BuildRollupsResponse, CancelQueryRequest, CancelQueryResponse, CompactRowsRequest,
    CompactRowsResponse, CountSeriesRequest, CountSeriesResponse, DeletePointsRequest, DeletePointsResponse,
    ExplainRequest, ExplainResponse, ExportSeriesRequest, ExportSeriesResponse, FsckRowsRequest,
    FsckRowsResponse, ListQueriesRequest, ListQueriesResponse, LookupSeriesRequest, LookupSeriesResponse,
    QueryExpressionsRequest, QueryExpressionsResponse, QueryLastRequest, QueryLastResponse, QueryRequest,
    QueryResponse, RepairRowsRequest, RepairRowsResponse, ScanRowsRequest, ScanRowsResponse,
    ScanTableRequest, ScanTableResponse, WriteColumnsRequest, WriteColumnsResponse, WriteHistogramsRequest,
    WriteHistogramsResponse, WriteResponse, WriteRollupsRequest, WriteRollupsResponse, WriteStreamRequest,
    WriteStreamResponse,
};
use oxtsdb_proto::serve::MessageStream;
use tonic::{Request, Response, Status, Streaming};

use super::{
    DataServiceHandler, compaction, delete, explain, expressions, fsck, histograms, last, query,
    rollup_writes, rollups, running, scan, series, write, write_stream,
};

#[tonic::async_trait]
impl DataService for DataServiceHandler {
    async fn write(&self, request: Request<Bytes>) -> Result<Response<WriteResponse>, Status> {
        let service = self.for_caller(request.extensions());
        write::write(&service, request).await
    }

    async fn write_columns(
        &self,
        request: Request<WriteColumnsRequest>,
    ) -> Result<Response<WriteColumnsResponse>, Status> {
        let service = self.for_caller(request.extensions()).into_owned();
        write::write_columns(&service, request).await
    }

    async fn write_histograms(
        &self,
        request: Request<WriteHistogramsRequest>,
    ) -> Result<Response<WriteHistogramsResponse>, Status> {
        let service = self.for_caller(request.extensions()).into_owned();
        histograms::write_histograms(&service, request).await
    }

    async fn write_rollups(
        &self,
        request: Request<WriteRollupsRequest>,
    ) -> Result<Response<WriteRollupsResponse>, Status> {
        let service = self.for_caller(request.extensions()).into_owned();
        rollup_writes::write_rollups(&service, request).await
    }

    async fn write_stream(
        &self,
        request: Request<Streaming<WriteStreamRequest>>,
    ) -> Result<Response<MessageStream<WriteStreamResponse>>, Status> {
        let service = self.for_caller(request.extensions()).into_owned();
        write_stream::write_stream(&service, request)
    }

    async fn query(
        &self,
        request: Request<QueryRequest>,
    ) -> Result<Response<MessageStream<QueryResponse>>, Status> {
        let engine = self.for_caller(request.extensions()).engine.clone();
        query::query(&engine, request).await
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Result<Response<ExplainResponse>, Status> {
        let engine = self.for_caller(request.extensions()).engine.clone();
        explain::explain(&engine, request).await
    }

    async fn query_expressions(
        &self,
        request: Request<QueryExpressionsRequest>,
    ) -> Result<Response<MessageStream<QueryExpressionsResponse>>, Status> {
        let engine = self.for_caller(request.extensions()).engine.clone();
        expressions::query_expressions(&engine, request).await
    }

    async fn query_last(
        &self,
        request: Request<QueryLastRequest>,
    ) -> Result<Response<MessageStream<QueryLastResponse>>, Status> {
        let engine = self.for_caller(request.extensions()).engine.clone();
        last::query_last(&engine, request).await
    }

    async fn scan_rows(
        &self,
        request: Request<ScanRowsRequest>,
    ) -> Result<Response<MessageStream<ScanRowsResponse>>, Status> {
        scan::scan_rows(&self.engine, request)
    }
}

#[tonic::async_trait]
impl DataAdminService for DataServiceHandler {
    async fn list_queries(
        &self,
        request: Request<ListQueriesRequest>,
    ) -> Result<Response<ListQueriesResponse>, Status> {
        let service = self.for_caller(request.extensions());
        Ok(Response::new(running::list(&service.engine)))
    }

    async fn cancel_query(
        &self,
        request: Request<CancelQueryRequest>,
    ) -> Result<Response<CancelQueryResponse>, Status> {
        running::cancel(&self.engine, &request.into_inner()).map(Response::new)
    }

    async fn scan_table(
        &self,
        request: Request<ScanTableRequest>,
    ) -> Result<Response<MessageStream<ScanTableResponse>>, Status> {
        scan::scan_table(&self.engine, request)
    }

    async fn build_rollups(
        &self,
        request: Request<BuildRollupsRequest>,
    ) -> Result<Response<MessageStream<BuildRollupsResponse>>, Status> {
        rollups::build_rollups(self, request)
    }

    async fn compact_rows(
        &self,
        request: Request<CompactRowsRequest>,
    ) -> Result<Response<MessageStream<CompactRowsResponse>>, Status> {
        compaction::compact_rows(self, request).await
    }

    async fn delete_points(
        &self,
        request: Request<DeletePointsRequest>,
    ) -> Result<Response<MessageStream<DeletePointsResponse>>, Status> {
        delete::delete_points(&self.engine, request).await
    }

    async fn fsck_rows(
        &self,
        request: Request<FsckRowsRequest>,
    ) -> Result<Response<MessageStream<FsckRowsResponse>>, Status> {
        fsck::fsck_rows(self, request).await
    }

    async fn repair_rows(
        &self,
        request: Request<RepairRowsRequest>,
    ) -> Result<Response<RepairRowsResponse>, Status> {
        fsck::repair_rows(self, request).await
    }
}

#[tonic::async_trait]
impl SeriesService for DataServiceHandler {
    async fn lookup_series(
        &self,
        request: Request<LookupSeriesRequest>,
    ) -> Result<Response<LookupSeriesResponse>, Status> {
        series::lookup_series(&self.engine, request).await
    }

    async fn export_series(
        &self,
        request: Request<ExportSeriesRequest>,
    ) -> Result<Response<MessageStream<ExportSeriesResponse>>, Status> {
        series::export_series(&self.engine, request)
    }

    async fn count_series(
        &self,
        request: Request<CountSeriesRequest>,
    ) -> Result<Response<CountSeriesResponse>, Status> {
        series::count_series(&self.engine, request).await
    }
}
