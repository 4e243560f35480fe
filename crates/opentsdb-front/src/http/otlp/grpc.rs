//! OpenTelemetry's service of metrics over gRPC, on the data service's listener.

use bytes::Bytes;
use oxtsdb_access::Access;
use oxtsdb_ingest::Caller;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error;
use oxtsdb_proto::serve::{Answer, Call, Methods, Server};
use tonic::{Code, Request, Response, Status};

use super::message::ExportMetricsServiceResponse;
use super::{Settings, export};
use crate::http::HttpApi;
use crate::http::error::HttpError;
use crate::http::error_form::grpc_code;
use crate::http::request_body::RequestBody;
use crate::http::setting_headers::{HISTOGRAMS, RESOURCE};

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
    let caller = Caller::from_call(request.extensions(), request.remote_addr());
    let parts = api.parts_for(request.extensions().get::<Access>());
    let text = |name: &'static str| {
        let value = request.metadata().get(name);
        let text = value.map(|value| value.to_str().map(str::to_owned)).transpose();
        text.map_err(|_| error::invalid_field(name, "is metadata that is not ASCII"))
    };
    let (resource, histograms) = (text(RESOURCE)?, text(HISTOGRAMS)?);
    let settings = Settings {
        resource: resource.as_deref(),
        histograms: histograms.as_deref(),
    };
    // The server has charged the message already.
    let memory = parts.writer.memory_of(caller.client);
    let body = RequestBody::charged_before(request.into_inner(), &memory);
    let response = export(&parts, &caller, body, settings).await;
    response.map(Response::new).map_err(|error| status(&error))
}

/// The error of an export as gRPC has it; `Unavailable` is the code that exporters repeat an export for.
fn status(error: &HttpError) -> Status {
    let code = grpc_code(error.status);
    let reason = match code {
        Code::ResourceExhausted => ErrorReason::MessageTooLarge,
        Code::Unavailable if error.retry_after.is_some() => ErrorReason::Overloaded,
        Code::Unavailable => ErrorReason::StoreUnavailable,
        Code::Internal => ErrorReason::Internal,
        _ => ErrorReason::MalformedMessage,
    };
    let details = error.details.as_deref().map(|details| format!(": {details}"));
    let message = format!("{}{}", error.message, details.unwrap_or_default());
    error::status(code, reason, message, &[])
}
