//! For tests: a [`TestStack`] behind a real HTTP and telnet port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_opentsdb_front::http::otlp::grpc::MetricsServiceServer;
use oxtsdb_opentsdb_front::listener::HttpTelnetServer;
use oxtsdb_row_store::RowStore;
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_schema::data_table;
use oxtsdb_server::ShutdownTrigger;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use uid_service::UidSettings;

use crate::{Gate, TestStack};

/// A service that listens for HTTP and telnet on a free port of localhost.
#[derive(Debug)]
pub struct Service {
    /// The address of the listener, for both protocols.
    pub address: SocketAddr,
    /// Holds all tables.
    pub store: MemoryStore,
    /// The tables as the service sees them.
    pub data_store: Arc<dyn RowStore>,
    /// OpenTelemetry's gRPC service of its points.
    pub metrics_service: MetricsServiceServer,
    trigger: Option<ShutdownTrigger>,
    serving: JoinHandle<()>,
    _points_folder: Option<TempDir>,
}

/// An HTTP response.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, as it came; compressed bodies are not decompressed.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// The body as text. Panics if it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The body as JSON. Panics if it is something else.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The value of the first header with this lower-case name; `None` if there is none.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

impl Service {
    /// Starts a service with default settings.
    pub async fn start() -> Service {
        Service::start_with(DataSettings::default(), UidSettings::default()).await
    }

    /// Starts a service over a new [`TestStack`] with these settings.
    pub async fn start_with(settings: DataSettings, uid_settings: UidSettings) -> Service {
        Service::from_stack(TestStack::with(settings, uid_settings).await).await
    }

    /// A service with codec 42 for histograms.
    pub async fn with_histograms() -> Service {
        let mut settings = DataSettings::default();
        let config = r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#;
        settings.histograms.histograms_config = Some(config.to_owned());
        Service::start_with(settings, UidSettings::default()).await
    }

    /// A service with the points in the first line of recorded vectors, and the vectors.
    pub async fn with_vectors(recorded: &str) -> (Service, Vec<serde_json::Value>) {
        let (points, vectors) = recorded.split_once('\n').unwrap();
        // Unchanged: UIDs are assigned in the order of tags.
        let points = points
            .strip_prefix("{\"points\":")
            .unwrap()
            .strip_suffix('}')
            .unwrap();
        let service = Service::start().await;
        assert_eq!(service.post("/api/put", points).await.status, 204);
        let vectors = vectors.lines().map(|line| serde_json::from_str(line).unwrap());
        (service, vectors.collect())
    }

    /// A service that blocks assignments of UIDs.
    pub async fn with_gated_uids() -> (Service, Arc<Gate>) {
        let (stack, gate) = Gate::uid_stack().await;
        (Service::from_stack(stack).await, gate)
    }

    /// A service that blocks writes of points.
    pub async fn gated(settings: DataSettings) -> (Service, Arc<Gate>) {
        let (stack, gate) = Gate::stack(settings).await;
        (Service::from_stack(stack).await, gate)
    }

    /// A service over these parts.
    pub async fn from_stack(stack: TestStack) -> Service {
        Service::with_server(stack, |server| server).await
    }

    /// As [`Service::from_stack`], with changes to the server.
    pub async fn with_server(
        stack: TestStack,
        change: impl FnOnce(HttpTelnetServer) -> HttpTelnetServer,
    ) -> Service {
        let TestStack {
            store,
            service,
            shutdown,
            trigger,
            points_folder,
            ..
        } = stack;
        let server = change(service.front);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics_service = server.metrics_service(16 << 20);
        let serving = tokio::spawn(server.serve(listener, shutdown));
        Service {
            metrics_service,
            address,
            store,
            data_store: service.store,
            trigger: Some(trigger),
            serving,
            _points_folder: points_folder,
        }
    }

    /// Opens a connection to the listener.
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Begins the shutdown; [`Service::ended`] waits for its end.
    pub async fn stop(&mut self) {
        self.trigger.take().unwrap().shut_down().await;
    }

    /// Waits until the server has closed its connections and ended; panics after 20 seconds.
    pub async fn ended(self) {
        tokio::time::timeout(Duration::from_secs(20), self.serving)
            .await
            .unwrap()
            .unwrap();
    }

    /// Sends bytes, closes the sending side, and reads all replies.
    pub async fn telnet(&self, input: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        stream.write_all(input.as_ref()).await.unwrap();
        stream.shutdown().await.unwrap();
        read_to_end(&mut stream).await
    }

    /// Sends a GET request for a path with its query string.
    pub async fn get(&self, target: &str) -> HttpResponse {
        self.request(format!("GET {target} HTTP/1.1\r\n"), b"").await
    }

    /// Sends a POST request to a path with its query string.
    pub async fn post(&self, target: &str, body: impl AsRef<[u8]>) -> HttpResponse {
        self.request(format!("POST {target} HTTP/1.1\r\n"), body.as_ref())
            .await
    }

    /// Sends a request that begins with the lines of `head`, on a connection of its own.
    pub async fn request(&self, head: String, body: &[u8]) -> HttpResponse {
        let mut stream = self.connect().await;
        let head = format!(
            "{head}Host: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server may have responded and closed already.
        let _ = stream.write_all(body).await;
        read_response(&mut stream).await
    }

    /// The points' cells, as [`crate::cells`].
    pub async fn cells(&self) -> Vec<String> {
        points(&self.store).await
    }
}

/// The status that the service has where OpenTSDB has a recorded one: faults of the client are not 500.
pub fn status_for(recorded: &serde_json::Value) -> u64 {
    match recorded.as_u64().unwrap() {
        500 => 400,
        status => status,
    }
}

/// The points' cells of a service that has ended.
pub async fn points(store: &MemoryStore) -> Vec<String> {
    crate::cells(store, data_table::DATA_TABLE).await
}

/// Reads text until the server closes the connection; panics after 20 seconds.
pub async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    let read = stream.read_to_end(&mut response);
    tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .unwrap()
        .unwrap();
    String::from_utf8(response).unwrap()
}

/// Reads one response with `Content-Length`.
pub async fn read_response(stream: &mut TcpStream) -> HttpResponse {
    let read = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let mut response = HttpResponse {
            status,
            headers,
            body: Vec::new(),
        };
        let length = response
            .header("content-length")
            .map_or(0, |length| length.parse().unwrap());
        response.body = vec![0; length];
        stream.read_exact(&mut response.body).await.unwrap();
        response
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.unwrap()
}
