//! Parts shared by the HTTP and telnet front ends: counters, OpenTSDB's error texts, numbers of points, build facts.

pub(crate) mod build_info;
pub(crate) mod counters;
pub(crate) mod histogram_text;
pub(crate) mod plain_number;

#[cfg(test)]
mod rejection_tests;
