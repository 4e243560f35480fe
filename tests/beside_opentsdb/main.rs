//! OxTSDB beside a real OpenTSDB on a real HBase, and behind a real Envoy.

mod cells;
mod cluster;
mod compaction;
mod copies;
mod deletes;
mod differential;
mod differential_expressions;
mod envoy;
mod formats;
mod fsck;
mod graphs;
mod histograms;
mod histories;
mod lookup;
mod outages;
mod points;
mod rollups;
mod start;
mod surfaces;
mod traces;
mod uids;
