//! Expressions: what is made of the answers of queries.
//!
//! ```text
//!   call/        `scale(sum:m,2)`: the language of /api/query/gexp
//!   arithmetic/  `(a - b) / a`: the language of /api/query/exp
//!   series       a group that a query found, or what was made of such
//!   join         which series of several operands belong together
//!   fill         what an operand counts as where it has no value
//!   combine      arithmetic over series that belong together
//!   lockstep     the same, as OpenTSDB does it for /api/query/exp
//!   formulas     named expressions over named series
//!   function, moving_average, highest     functions over lists of series
//! ```
//!
//! All of it is pure; series come from the engine. Where OpenTSDB does what nobody would expect there is a
//! switch in [`super::quirks`].

mod arguments;
pub mod arithmetic;
pub mod call;
pub mod combine;
pub mod error;
pub mod fill;
pub mod formulas;
pub mod function;
pub mod highest;
mod java_map;
pub mod join;
pub mod lockstep;
pub mod moving_average;
pub mod run;
pub mod series;

pub use arithmetic::Arithmetic;
pub use combine::Work;
pub use error::ExpressionError;
pub use series::Series;
