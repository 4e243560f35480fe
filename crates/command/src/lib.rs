//! Arguments and output that several commands of `tsdb` have: the servers that a command calls, the tables that it opens, times
//! and their zone, annotations, progress, and standard output.

pub mod annotations;
pub mod progress;
pub mod stdout;
pub mod table_args;
pub mod target;
pub mod time_zone;
