//! What the HTTP and telnet front ends share: counters, OpenTSDB's error texts, and which program this is.

pub(crate) mod build_info;
pub(crate) mod counters;
pub(crate) mod point_text;
