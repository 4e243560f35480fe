//! What all stages of a running query share: deadline, cancellation, budget, registration.
//!
//! ```text
//!   Engine::admit ──► registered in RunningQueries ──► admitted: permit and memory ──► QueryContext
//! ```

pub mod admission;
pub mod budget;
pub mod deadline;
pub mod limits;
pub mod query_context;
pub mod resource;
pub mod running;
