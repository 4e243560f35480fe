//! Random questions to `/api/query/gexp` and `/api/query/exp`.

mod answer;
pub mod calls;
pub mod formulas;
mod known;
pub mod text;

pub use answer::difference;
pub use known::KNOWN;
