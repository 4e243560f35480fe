//! A collector of traces, and checks of the traces that it received.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_stream::wrappers::TcpListenerStream;

use crate::until;

/// A span, and the service that sent it.
pub type Received = (String, Span);

/// A collector of OTLP, which keeps all spans that it receives.
#[derive(Clone, Debug, Default)]
pub struct Collector(Arc<Mutex<Vec<Received>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let mut received = self.0.lock().await;
        for spans in request.into_inner().resource_spans {
            let attributes = spans.resource.unwrap_or_default().attributes;
            let service = attributes.into_iter().find(|key| key.key == "service.name");
            let service = service.and_then(|key| match key.value?.value? {
                any_value::Value::StringValue(text) => Some(text),
                _ => None,
            });
            let service = service.unwrap_or_default();
            let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.extend(spans.map(|span| (service.clone(), span)));
        }
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts one on a free port.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start() -> anyhow::Result<(Self, SocketAddr)> {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server =
            tonic::transport::Server::builder().add_service(TraceServiceServer::new(collector.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok((collector, address))
    }

    /// All spans so far, with the services that sent them.
    pub async fn spans(&self) -> Vec<Received> {
        self.0.lock().await.clone()
    }

    /// The spans of a trace, when these are among them, as `SERVICE NAME`.
    ///
    /// # Errors
    ///
    /// If they are not received in time.
    pub async fn trace(&self, trace: u128, expected: &[&str]) -> anyhow::Result<Trace> {
        until("the spans of the trace are received", || async {
            let received = self.0.lock().await;
            let spans = received
                .iter()
                .filter(|(_, span)| span.trace_id == trace.to_be_bytes());
            let trace = Trace(spans.cloned().collect());
            let names = trace.names();
            for name in expected {
                ensure!(names.contains(*name), "no `{name}` in {names:?}");
            }
            Ok(trace)
        })
        .await
    }
}

/// The spans of a trace.
#[derive(Debug)]
pub struct Trace(Vec<Received>);

impl Trace {
    /// The names of the spans, as `SERVICE NAME`.
    pub fn names(&self) -> HashSet<String> {
        self.0
            .iter()
            .map(|(service, span)| format!("{service} {}", span.name))
            .collect()
    }

    /// The span of this name, as `SERVICE NAME`.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn span(&self, name: &str) -> anyhow::Result<&Span> {
        let named = self
            .0
            .iter()
            .find(|(service, span)| format!("{service} {}", span.name) == name);
        Ok(&named.with_context(|| name.to_owned())?.1)
    }

    /// Checks that each span has the caller's, or another one of the trace, above it.
    ///
    /// # Errors
    ///
    /// If one has not.
    pub fn check_connected(&self, caller: u64) -> anyhow::Result<()> {
        let ids: HashMap<&[u8], &str> = self
            .0
            .iter()
            .map(|(_, span)| (span.span_id.as_slice(), span.name.as_str()))
            .collect();
        for (service, span) in &self.0 {
            let parent = span.parent_span_id.as_slice();
            ensure!(
                parent == caller.to_be_bytes() || ids.contains_key(parent),
                "{service} {} has no parent",
                span.name
            );
            ensure!(span.end_time_unix_nano >= span.start_time_unix_nano);
        }
        Ok(())
    }
}

/// The name of the span above another one.
pub fn parent<'a>(trace: &'a Trace, span: &Span) -> Option<&'a str> {
    let above = trace
        .0
        .iter()
        .find(|(_, other)| other.span_id == span.parent_span_id);
    above.map(|(_, span)| span.name.as_str())
}

/// The W3C header `traceparent` of a caller's span in a trace.
pub fn traceparent(trace: u128, caller: u64, sampled: bool) -> String {
    format!("00-{trace:032x}-{caller:016x}-0{}", u8::from(sampled))
}

/// A gRPC request with this `traceparent`.
///
/// # Errors
///
/// If it is no value of a header.
pub fn with_trace<M>(message: M, traceparent: &str) -> anyhow::Result<tonic::Request<M>> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("traceparent", traceparent.parse()?);
    Ok(request)
}
