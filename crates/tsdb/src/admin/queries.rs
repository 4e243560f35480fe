//! `/debug/queries`: running queries.

use serde::Deserialize;

/// The queries of a data service.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Queries {
    /// The oldest first.
    pub(crate) running: Vec<Query>,
}

/// A query.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Query {
    /// Its number, for `tsdb queries --end`.
    pub(crate) id: u64,
    query: Description,
    stats: Usage,
}

#[derive(Clone, Debug, Deserialize)]
struct Description {
    queries: Vec<SubQuery>,
}

#[derive(Clone, Debug, Deserialize)]
struct SubQuery {
    m: String,
}

/// Its use of resources until now.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Usage {
    total_time: u64,
    series: u64,
    rows_from_storage: u64,
    bytes_from_storage: u64,
    dps_pre_filter: u64,
    memory_bytes: u64,
}

impl Query {
    /// Its sub-queries in OpenTSDB's query language.
    pub(crate) fn text(&self) -> String {
        let texts: Vec<&str> = self
            .query
            .queries
            .iter()
            .map(|sub_query| sub_query.m.as_str())
            .collect();
        texts.join(" ")
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        self.stats.total_time
    }

    pub(crate) fn series(&self) -> u64 {
        self.stats.series
    }

    pub(crate) fn rows(&self) -> u64 {
        self.stats.rows_from_storage
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.stats.bytes_from_storage
    }

    pub(crate) fn points(&self) -> u64 {
        self.stats.dps_pre_filter
    }

    /// The memory that it holds, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.stats.memory_bytes
    }
}
