//! A frame: all figures of the servers at an instant, in the order in which an operator looks for a cause.
//!
//! ```text
//!   servers ─► points ─► queries, stages, running ─► requests ─► errors ─► rejected points ─► memory, caches, connections
//!           ─► store, work, or HBase's gateways ─► UIDs
//! ```
//!
//! Counters and histograms of all servers are added up. Figures of one server (its memory, its store) have a row
//! for each. Sections without figures are left out.

mod load;
mod resources;
mod storage;

use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::figure::Figure;
use super::section::{Section, Shape};
use super::server::{All, Interval, Server};

/// The order of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    /// Requests per second, the most first
    #[default]
    Rate,
    /// Failed requests per second, the most first
    Errors,
    /// 99th percentile of the latency, the slowest first
    Latency,
    /// Protocol and method
    Name,
}

impl Sort {
    /// The next one in turn.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Rate => Self::Errors,
            Self::Errors => Self::Latency,
            Self::Latency => Self::Name,
            Self::Name => Self::Rate,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Errors => "errors",
            Self::Latency => "latency",
            Self::Name => "name",
        }
    }
}

/// All figures at an instant.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) at: Timestamp,
    /// Servers that are ready, and all.
    pub(super) ready: (usize, usize),
    /// The longest time of the rates, in seconds; none without a server.
    pub(super) seconds: Option<f64>,
    /// The rates of a server are averages since its start.
    pub(super) is_since_start: bool,
    pub(super) sections: Vec<Section>,
}

impl Frame {
    pub(super) fn new(servers: &[Server], sort: Sort, at: Timestamp) -> Self {
        let named: Vec<Named<'_>> = servers.iter().filter_map(Named::new).collect();
        let all = All(named.iter().map(|named| named.interval).collect());
        let sections = vec![
            resources::servers(servers),
            load::points(&all),
            load::queries(&all),
            load::stages(&all),
            load::running(servers),
            load::requests(&all, sort),
            load::errors(&all),
            load::rejected(servers),
            resources::memory(&named),
            resources::caches(&all),
            resources::connections(&all),
            storage::store(&named),
            storage::work(&all),
            storage::gateways(&all),
            storage::uids(&all),
        ];
        let is_ready = |server: &&Server| {
            server
                .last
                .as_ref()
                .is_some_and(|scrape| scrape.not_ready.is_empty())
        };
        Self {
            at,
            ready: (servers.iter().filter(is_ready).count(), servers.len()),
            seconds: all.0.iter().map(|interval| interval.seconds).reduce(f64::max),
            is_since_start: all.0.iter().any(Interval::is_since_start),
            sections: sections
                .into_iter()
                .filter(|section| !section.rows.is_empty())
                .collect(),
        }
    }

    /// An object with an array for each section.
    pub(super) fn json(&self) -> Value {
        let mut object = json!({
            "at": self.at.to_string(),
            "seconds": self.seconds,
            "since_start": self.is_since_start,
        });
        for section in &self.sections {
            object[section.key] = section.json();
        }
        object
    }
}

/// A server that responds.
#[derive(Clone, Copy, Debug)]
struct Named<'a> {
    name: &'a str,
    interval: Interval<'a>,
}

impl<'a> Named<'a> {
    fn new(server: &'a Server) -> Option<Self> {
        Some(Self {
            name: &server.name,
            interval: server.interval()?,
        })
    }
}

/// A section with a row for each server that has the figures; their names are left out if it is one.
fn by_server(section: Section, servers: usize) -> Section {
    match servers {
        0 | 1 => section.without("server"),
        _ => section,
    }
}

/// The columns of a latency: quantiles within the buckets of a histogram.
fn latency(histogram: &crate::admin::Histogram) -> [Figure; 2] {
    [0.5, 0.99].map(|q| Figure::from_events(Figure::Latency, histogram.quantile(q)))
}

#[cfg(test)]
pub(super) mod tests;
