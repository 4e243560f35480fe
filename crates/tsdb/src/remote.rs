//! Calls to servers, and their errors in one line.

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use oxtsdb_client::UidClient;
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Where a server is, and how to reach it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    url: String,
    endpoint: Endpoint,
}

/// Frames of answers can be larger than tonic's default of 4 MiB.
const MAX_MESSAGE: usize = 64 << 20;

impl Target {
    /// A server at a URL such as `http://127.0.0.1:4243`.
    ///
    /// # Errors
    ///
    /// If it is no such URL.
    pub(crate) fn new(url: &str) -> anyhow::Result<Self> {
        let plain = url.strip_prefix("http://").filter(|rest| !rest.is_empty());
        if plain.is_none() {
            anyhow::bail!("`{url}` is not an address of a server, expected http://HOST:PORT");
        }
        let endpoint = Endpoint::from_shared(url.to_owned())
            .with_context(|| format!("`{url}` is not an address of a server, expected http://HOST:PORT"))?
            .connect_timeout(Duration::from_secs(5))
            .tcp_nodelay(true)
            // A server that vanished without a word is noticed.
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20);
        let url = url.to_owned();
        Ok(Self { url, endpoint })
    }

    /// A connection, made with the first call.
    pub(crate) fn channel(&self) -> Channel {
        self.endpoint.connect_lazy()
    }

    /// A client of the data service.
    pub(crate) fn data(&self) -> DataServiceClient<Channel> {
        DataServiceClient::new(self.channel())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }

    /// A client of the UID service.
    pub(crate) fn uids(&self) -> UidClient {
        UidClient::connect_lazy(&self.endpoint)
    }

    /// The error of a call: what was tried, where, the status and its fields, in one line.
    pub(crate) fn error(&self, tried: &str, status: &Status) -> anyhow::Error {
        anyhow!(
            "{tried} at {}: {}{}",
            self.url,
            describe(status),
            wrong_port(status)
        )
    }

    /// The URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// What a port that is another one's answers, and a hint that it may be.
fn wrong_port(status: &Status) -> &'static str {
    match status.code() {
        Code::Unimplemented if status.message().is_empty() => {
            "the server has no such call, is this the port of another service?"
        }
        // The HTTP and telnet port closes what begins like gRPC; tonic sees a broken connection.
        Code::Unknown | Code::Cancelled if std::error::Error::source(status).is_some() => {
            "; is this a gRPC port? HTTP and telnet have another"
        }
        _ => "",
    }
}

/// A status in one line: its name, message, cause and fields.
pub(crate) fn describe(status: &Status) -> String {
    let mut text = format!("{}: {}", code_name(status.code()), status.message());
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // hyper and tonic repeat what stands below them.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    let violations = status
        .get_details_bad_request()
        .map(|details| details.field_violations)
        .unwrap_or_default();
    for violation in violations {
        let field = format!("{}: {}", violation.field, violation.description);
        if !text.contains(&field) {
            text = format!("{text}; {field}");
        }
    }
    text.lines().collect::<Vec<_>>().join(" ")
}

/// Whether the failure is of the connection or the server's state, so that the same call may
/// succeed later.
pub(crate) fn may_pass(status: &Status) -> bool {
    // tonic reports a connection that broke as UNKNOWN or INTERNAL with a cause; what a server
    // sent has no cause.
    status.code() == Code::Unavailable || std::error::Error::source(status).is_some()
}

/// gRPC's name of a code: `NOT_FOUND`.
pub(crate) fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::error::invalid_field;
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;

    #[test]
    fn an_error_says_what_where_status_and_message() {
        let target = Target::new("http://127.0.0.1:4243").unwrap();
        let status = invalid_field("queries[0].metric", "is empty");
        assert_eq!(
            target.error("query", &status).to_string(),
            "query at http://127.0.0.1:4243: INVALID_ARGUMENT: queries[0].metric: is empty"
        );
    }

    #[test]
    fn fields_that_the_message_does_not_name_are_added() {
        let details = ErrorDetails::with_bad_request_violation("range.end_ms", "is before the start");
        let status = Status::with_error_details(Code::InvalidArgument, "bad\nrequest", details);
        assert_eq!(
            describe(&status),
            "INVALID_ARGUMENT: bad request; range.end_ms: is before the start"
        );
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_told_with_the_cause() {
        // Port 1 is reserved, and nothing listens on it.
        let target = Target::new("http://127.0.0.1:1").unwrap();
        let error = target
            .uids()
            .get_uid_layout(Some(std::time::Instant::now() + Duration::from_secs(5)))
            .await
            .unwrap_err();
        let text = describe(&error);
        assert!(text.starts_with("UNAVAILABLE: "), "{text}");
        assert!(text.contains("refused"), "{text}");
        assert!(may_pass(&error));
    }

    #[tokio::test]
    async fn a_port_that_is_not_grpc_is_told() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let close = tokio::spawn(async move {
            // As the HTTP and telnet port does.
            while let Ok((connection, _)) = listener.accept().await {
                drop(connection);
            }
        });
        let error = target
            .data()
            .query_last(oxtsdb_proto::data::v1::QueryLastRequest::default())
            .await
            .unwrap_err();
        let text = target.error("query", &error).to_string();
        close.abort();
        assert!(text.contains("is this a gRPC port?"), "{text}");
    }

    #[test]
    fn a_call_that_the_server_does_not_have_is_told() {
        let target = Target::new("http://127.0.0.1:4244").unwrap();
        assert_eq!(
            target.error("query", &Status::unimplemented("")).to_string(),
            "query at http://127.0.0.1:4244: UNIMPLEMENTED: the server has no such call, is this the port of \
             another service?"
        );
    }

    #[test]
    fn a_target_is_a_url() {
        for text in [
            "localhost:4243",
            "https://localhost:4243",
            "http://",
            "http://a b",
        ] {
            let error = Target::new(text).unwrap_err().to_string();
            assert!(
                error.contains(text) && error.contains("http://HOST:PORT"),
                "{error}"
            );
        }
    }
}
