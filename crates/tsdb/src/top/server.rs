//! A server as `tsdb top` follows it: its last scrape, and the one before, for rates.

use std::time::Instant;

use oxtsdb_server::admin::deployment::{self, Deployment};

use crate::admin::{AdminError, AdminListener, Histogram, Labels, Metrics, Queries, Rejections};

/// The reports of a server at an instant.
#[derive(Clone, Debug)]
pub(super) struct Scrape {
    pub(super) at: Instant,
    pub(super) metrics: Metrics,
    /// Why it is not ready.
    pub(super) not_ready: Vec<String>,
    /// None if it has no data service.
    pub(super) queries: Option<Queries>,
    pub(super) rejections: Rejections,
    pub(super) facts: Deployment,
}

impl Scrape {
    /// Reads a server.
    ///
    /// # Errors
    ///
    /// If it does not respond, or is no admin listener.
    pub(super) async fn read(listener: &AdminListener) -> Result<Self, AdminError> {
        let metrics = listener.metrics().await?;
        let at = Instant::now();
        Ok(Self {
            at,
            metrics,
            not_ready: listener.readiness().await?,
            queries: listener.queries().await?,
            rejections: listener.rejections().await?,
            facts: listener.json(deployment::PATH).await?,
        })
    }

    fn value(&self, name: &str) -> f64 {
        self.metrics.value(name, &[]).unwrap_or_default()
    }

    /// Seconds since the start of the process, by the clock of the server.
    pub(super) fn uptime(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are exact")]
        let now = self.facts.clock_ms as f64 / 1000.0;
        (now - self.started()).max(0.001)
    }

    fn started(&self) -> f64 {
        self.value("process_start_time_seconds")
    }
}

/// A server with its last scrapes.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// `HOST:PORT` of the admin listener.
    pub(super) name: String,
    /// The last scrape; none while the server is away.
    pub(super) last: Option<Scrape>,
    earlier: Option<Scrape>,
    /// Why it is away.
    pub(super) error: Option<String>,
}

impl Server {
    pub(super) fn new(listener: &AdminListener) -> Self {
        let url = listener.url().to_string();
        let name = url.split_once("://").map_or(url.as_str(), |(_, name)| name);
        Self {
            name: name.to_owned(),
            last: None,
            earlier: None,
            error: None,
        }
    }

    /// Takes a new scrape, or the reason why there is none. Rates of a server that was away are over the whole time.
    pub(super) fn update(&mut self, scrape: Result<Scrape, AdminError>) {
        match scrape {
            Ok(scrape) => {
                if let Some(last) = self.last.replace(scrape) {
                    self.earlier = Some(last);
                }
                self.error = None;
            }
            Err(error) => {
                if let Some(last) = self.last.take() {
                    self.earlier = Some(last);
                }
                self.error = Some(error.reason());
            }
        }
    }

    /// The time between the last two scrapes; since the start of the process, if there is one scrape of it.
    pub(super) fn interval(&self) -> Option<Interval<'_>> {
        let last = self.last.as_ref()?;
        let earlier = self.earlier.as_ref();
        let same_process = earlier.filter(|earlier| earlier.started().total_cmp(&last.started()).is_eq());
        Some(match same_process {
            Some(earlier) => Interval {
                later: &last.metrics,
                earlier: Some(&earlier.metrics),
                seconds: last.at.duration_since(earlier.at).as_secs_f64().max(0.001),
            },
            None => Interval {
                later: &last.metrics,
                earlier: None,
                seconds: last.uptime(),
            },
        })
    }
}

/// The changes on a server in a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval<'a> {
    later: &'a Metrics,
    /// None: counters were zero.
    earlier: Option<&'a Metrics>,
    pub(super) seconds: f64,
}

impl<'a> Interval<'a> {
    /// The metrics at its end.
    pub(super) fn metrics(&self) -> &'a Metrics {
        self.later
    }

    /// Whether it begins with the process.
    pub(super) fn is_since_start(&self) -> bool {
        self.earlier.is_none()
    }

    /// The increase of counters, per second.
    pub(super) fn rate(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        let increase = match self.earlier {
            Some(earlier) => self.later.increase(earlier, name, labels),
            None => self.later.sum(name, labels),
        };
        increase.map(|increase| increase / self.seconds)
    }

    /// The additions to histograms.
    pub(super) fn histogram(&self, name: &str, labels: Labels<'_>) -> Histogram {
        let later = self.later.histogram(name, labels);
        match self.earlier {
            Some(earlier) => later.since(&earlier.histogram(name, labels)),
            None => later,
        }
    }
}

/// The servers that respond, added up.
#[derive(Clone, Debug)]
pub(super) struct All<'a>(pub(super) Vec<Interval<'a>>);

impl<'a> All<'a> {
    pub(super) fn rate(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        self.reduce(|interval| interval.rate(name, labels), |sum, rate| sum + rate)
    }

    pub(super) fn sum(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        self.reduce(
            |interval| interval.later.sum(name, labels),
            |sum, value| sum + value,
        )
    }

    /// The highest value of a server; replicas report the same figures of a table that they share.
    pub(super) fn max(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        self.reduce(|interval| interval.later.sum(name, labels), f64::max)
    }

    pub(super) fn min(&self, name: &str, labels: Labels<'_>) -> Option<f64> {
        self.reduce(|interval| interval.later.sum(name, labels), f64::min)
    }

    pub(super) fn histogram(&self, name: &str, labels: Labels<'_>) -> Histogram {
        let mut all = Histogram::default();
        for interval in &self.0 {
            all.add(&interval.histogram(name, labels));
        }
        all
    }

    /// The values of a label on any server, sorted.
    pub(super) fn label_values(&self, name: &str, label: &str) -> Vec<&'a str> {
        let values = self
            .0
            .iter()
            .flat_map(|interval| interval.later.label_values(name, label));
        let values: std::collections::BTreeSet<&str> = values.collect();
        values.into_iter().collect()
    }

    fn reduce(
        &self,
        of: impl Fn(&Interval<'a>) -> Option<f64>,
        both: impl Fn(f64, f64) -> f64,
    ) -> Option<f64> {
        self.0.iter().filter_map(of).reduce(both)
    }
}
