//! Random requests to `/api/query/gexp` and `/api/query/exp`.

pub mod calls;
pub mod formulas;
mod known;
mod response;
pub mod text;

pub use known::KNOWN;
pub use response::difference;
