//! What all our programs do alike: read settings, open their store, log, listen, report health, keep
//! deadlines, drain.
//!
//! ```text
//!   SIGTERM ─► Shutdown::draining   health says NOT_SERVING, streams tell their clients
//!              ... lame duck ...    calls are still answered, so that balancers can look away
//!           ─► Shutdown::stopping   no new connection; what is under way is finished
//! ```

pub mod connections;
mod deadline;
mod grpc;
mod listen;
mod message_errors;
mod probe;
pub mod program;
mod request_memory;
pub mod settings;
mod shutdown;
pub mod store;
mod store_error;
pub mod telemetry;

pub use deadline::{Deadline, DeadlineLayer, deadline_of};
pub use grpc::{GrpcOptions, GrpcServer};
pub use listen::{BoundAddress, bind};
pub use message_errors::message_error;
pub use probe::StoreProbe;
pub use program::{GrpcSettings, ProgramArgs};
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use store_error::code_of_store_error;
