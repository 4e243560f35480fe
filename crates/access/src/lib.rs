//! Who may call what: identities, the policy file, read-only and write-only servers.
//!
//! ```text
//!   request ─► mode ─► identity: client certificate (SAN), token (JWT) ─► policy ─► metrics that it may name
//!                └ FAILED_PRECONDITION   └ UNAUTHENTICATED                  └ PERMISSION_DENIED
//! ```
//!
//! [`AccessControl`] decides; the servers call it in one layer for gRPC and in one place for HTTP and telnet. Without a
//! policy file every caller may do everything, and only the mode is checked.

mod control;
mod identity;
mod mode;
pub mod operation;
mod policy;
mod refusal;
mod san;
mod scope;
pub mod shown;
mod text_file;
mod token;

pub use control::{Access, AccessControl, AccessError, AccessOptions, Refused};
pub use identity::Identity;
pub use mode::{Mode, Modes};
pub use operation::{Action, Operation};
pub use policy::{Policy, PolicyError};
pub use refusal::{Refusal, RefusalCounts};
pub use san::{CertificateSummary, PeerCertificate, summary};
pub use scope::MetricScope;
pub use token::TokenOptions;
