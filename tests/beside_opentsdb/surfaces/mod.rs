//! Metadata, trees, annotations and names on one HBase: OpenTSDB reads, edits and processes what OxTSDB wrote, and the
//! other way round.

mod annotations;
mod both;
mod check;
mod meta;
mod names;
mod placed;
mod trees;
mod watch;
