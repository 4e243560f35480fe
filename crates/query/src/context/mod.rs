//! State shared by all stages of a running query: deadline, cancellation, budget, registration.
//!
//! ```text
//!   Engine::admit ──► registered in RunningQueries ──► admitted: permit and memory ──► QueryContext
//! ```

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod deadline;
pub(crate) mod demand;
pub(crate) mod limits;
pub(crate) mod pending;
pub(crate) mod query_context;
pub(crate) mod resource;
pub(crate) mod running;
