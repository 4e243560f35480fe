//! What the HTTP and telnet front ends share: counters, OpenTSDB's error texts, the numbers of points, and which program this is.

pub(crate) mod build_info;
pub(crate) mod counters;
pub(crate) mod histogram_text;
pub(crate) mod plain_number;

#[cfg(test)]
mod rejection_tests;
