//! What all our programs do alike: read settings, open their store, log, listen, report health, keep
//! deadlines, drain.
//!
//! ```text
//!   SIGTERM ─► Shutdown::draining   health says NOT_SERVING, streams tell their clients
//!              ... lame duck ...    calls are still answered, so that balancers can look away
//!           ─► Shutdown::stopping   no new connection; what is under way is finished
//! ```

mod deadline;
mod grpc;
mod listen;
mod message_size;
mod probe;
pub mod program;
pub mod settings;
mod shutdown;
pub mod store;
pub mod telemetry;

pub use deadline::{Deadline, DeadlineLayer, deadline_of};
pub use grpc::{GrpcOptions, GrpcServer};
pub use listen::bind;
pub use message_size::message_too_large;
pub use probe::StoreProbe;
pub use program::ProgramArgs;
pub use shutdown::{Shutdown, ShutdownTrigger};
