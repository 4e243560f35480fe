//! Expressions: evaluates calls and arithmetic over the results of sub-queries.
//!
//! ```text
//!   call/        `scale(sum:m,2)`: the language of /api/query/gexp
//!   arithmetic/  `(a - b) / a`: the language of /api/query/exp
//!   series       a group of a query result, or the result of a function
//!   join         which series of several operands belong together
//!   fill         the value of an operand where it has none
//!   combine      arithmetic over series that belong together
//!   lockstep     the same as OpenTSDB evaluates it for /api/query/exp
//!   formulas     named expressions over named series
//!   function, moving_average, highest     functions over lists of series
//! ```
//!
//! Evaluation has no side effects; the engine reads the series. `quirks` has a switch for each surprising
//! behaviour of OpenTSDB.

mod arguments;
pub mod arithmetic;
pub mod call;
pub mod combine;
pub mod error;
pub mod fill;
pub mod formulas;
pub mod function;
pub mod highest;
pub mod join;
pub mod lockstep;
pub mod moving_average;
pub mod run;
pub mod series;

pub use arithmetic::Arithmetic;
pub use combine::Work;
pub use error::ExpressionError;
pub use series::Series;
