//! OpenTelemetry's service of metrics over gRPC, on the data service's listener.

use bytes::Bytes;
use oxtsdb_access::{Access, Identity};
use oxtsdb_ingest::Caller;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error;
use oxtsdb_proto::serve::{Answer, Call, Methods, Server};
use oxtsdb_resources::ClientId;
use oxtsdb_server::metrics::Protocol;
use tonic::{Code, Request, Response, Status};

use super::export;
use super::message::ExportMetricsServiceResponse;
use crate::http::HttpApi;
use crate::http::error::HttpError;
use crate::http::request_body::RequestBody;

/// The metadata of a call that names the attributes of resources that are tags.
const RESOURCE: &str = "oxtsdb-resource";

/// `opentelemetry.proto.collector.metrics.v1.MetricsService`.
pub type MetricsServiceServer = Server<MetricsService>;

/// Its methods.
#[derive(Debug)]
pub struct MetricsService(HttpApi);

impl Methods for MetricsService {
    type Handler = HttpApi;

    const SERVICE: &'static str = "opentelemetry.proto.collector.metrics.v1.MetricsService";

    fn new(handler: HttpApi) -> Self {
        Self(handler)
    }

    fn call(&self, method: &str, call: Call) -> Answer {
        if method != "Export" {
            return call.unimplemented();
        }
        let api = self.0.clone();
        call.unary_encoded(move |request| export_metrics(api.clone(), request))
    }
}

async fn export_metrics(
    api: HttpApi,
    request: Request<Bytes>,
) -> Result<Response<ExportMetricsServiceResponse>, Status> {
    let caller = caller(&request);
    let parts = api.parts_for(request.extensions().get::<Access>());
    let resource = request.metadata().get(RESOURCE);
    let resource = resource
        .map(|value| value.to_str())
        .transpose()
        .map_err(|_| error::invalid_field(RESOURCE, "is metadata that is not ASCII"))?
        .map(str::to_owned);
    // The server has charged the message already.
    let memory = parts.writer.memory_of(caller.client);
    let body = RequestBody::charged_before(request.into_inner(), &memory);
    let response = export(&parts, &caller, body, resource.as_deref()).await;
    response.map(Response::new).map_err(|error| status(&error))
}

/// The error of an export as gRPC has it; `Unavailable` is the code that exporters repeat an export for.
fn status(error: &HttpError) -> Status {
    let (code, reason) = match error.status.as_u16() {
        413 => (Code::ResourceExhausted, ErrorReason::MessageTooLarge),
        503 if error.retry_after.is_some() => (Code::Unavailable, ErrorReason::Overloaded),
        503 => (Code::Unavailable, ErrorReason::StoreUnavailable),
        400..=499 => (Code::InvalidArgument, ErrorReason::MalformedMessage),
        _ => (Code::Internal, ErrorReason::Internal),
    };
    let details = error.details.as_deref().map(|details| format!(": {details}"));
    let message = format!("{}{}", error.message, details.unwrap_or_default());
    error::status(code, reason, message, &[])
}

fn caller(request: &Request<Bytes>) -> Caller {
    let identity = request.extensions().get::<Identity>();
    let address = request.remote_addr().map_or(ClientId::Local, ClientId::of);
    Caller::new(Protocol::Grpc, identity, address)
}
