//! The server side that all programs share: settings, stores, listeners, gRPC with its limits, health
//! and reflection, logs, and shutdown in steps. [`Program::run`] puts the parts together.
//!
//! ```text
//!   SIGTERM ─► Shutdown::draining   health reports NOT_SERVING, write streams announce the drain
//!              ... lame duck ...    requests are served, while load balancers remove the server
//!           ─► Shutdown::stopping   no new connections; requests in progress are completed
//! ```

mod access;
pub mod admin;
mod args;
pub mod connections;
mod deadline;
mod grpc;
mod head;
mod host;
mod listen;
mod message_errors;
pub mod metrics;
mod middleware;
mod probe;
pub mod program;
mod protocol;
pub mod repairs;
mod request_memory;
pub mod settings;
mod shutdown;
pub mod store;
mod store_error;
pub mod telemetry;
pub mod tls;

pub use access::AccessSettings;
pub use admin::{Admin, AdminListen};
pub use args::{MemoryLimit, ProgramArgs, ServerArgs};
pub use deadline::{Deadline, deadline_of};
pub use grpc::{GrpcOptions, GrpcServer, GrpcSettings, descriptor_set};
pub use host::{FrontEnd, Host, ListenAddress, Program};
pub use message_errors::message_error;
pub use oxtsdb_access::PeerCertificate;
pub use probe::{StoreHealth, StoreProbe};
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use store_error::{code_of_store_error, status_of_store_error};
pub use tls::{Tls, TlsSettings};
