//! Figures of a part of the process: one table of them is the source of its metrics, its lines of `/api/stats`, its
//! columns of `tsdb top` and its rows of `docs/operate.md`.

use std::sync::atomic::{AtomicU64, Ordering};

/// A figure: its names, and the function that reads it from the values `T` of its part.
#[derive(Debug)]
pub struct Figure<T> {
    /// Name of the metric, without the prefix `oxtsdb_`, and without the suffix `_total` of a counter.
    pub metric: &'static str,
    /// Help text of the metric.
    pub help: &'static str,
    /// Kind of the metric.
    pub kind: FigureKind,
    /// Name in `/api/stats`; `None`: not reported there.
    pub statistic: Option<&'static str>,
    /// Column in `tsdb top`; `None`: not shown there.
    pub column: Option<Column>,
    /// Setting or link that `docs/operate.md` adds to the help text, in Markdown.
    pub reference: Option<&'static str>,
    /// Returns the value; `None`: it is unknown, and not reported.
    pub value: fn(&T) -> Option<u64>,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// A number that only grows; 0 at the start of the process.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
}

/// A column in `tsdb top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name in JSON.
    pub key: &'static str,
    /// Title on the screen.
    pub title: &'static str,
    /// Unit, and whether it is a rate.
    pub format: ColumnFormat,
}

/// How `tsdb top` shows a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnFormat {
    /// A number.
    Count,
    /// A number of bytes.
    Bytes,
    /// Bytes per second: the growth of a counter.
    BytesPerSecond,
    /// A number of failures, shown if it is not 0.
    Failures,
}

impl<T> Figure<T> {
    /// A number that only grows.
    pub const fn counter(metric: &'static str, help: &'static str, value: fn(&T) -> Option<u64>) -> Self {
        Self::new(FigureKind::Counter, metric, help, value)
    }

    /// A number that grows and shrinks.
    pub const fn gauge(metric: &'static str, help: &'static str, value: fn(&T) -> Option<u64>) -> Self {
        Self::new(FigureKind::Gauge, metric, help, value)
    }

    const fn new(
        kind: FigureKind,
        metric: &'static str,
        help: &'static str,
        value: fn(&T) -> Option<u64>,
    ) -> Self {
        Self {
            metric,
            help,
            kind,
            statistic: None,
            column: None,
            reference: None,
            value,
        }
    }

    /// Adds a line of `/api/stats`.
    #[must_use]
    pub const fn statistic(mut self, name: &'static str) -> Self {
        self.statistic = Some(name);
        self
    }

    /// Adds a column of `tsdb top`.
    #[must_use]
    pub const fn column(mut self, key: &'static str, title: &'static str, format: ColumnFormat) -> Self {
        self.column = Some(Column { key, title, format });
        self
    }

    /// Adds a setting or link to the row in `docs/operate.md`.
    #[must_use]
    pub const fn reference(mut self, markdown: &'static str) -> Self {
        self.reference = Some(markdown);
        self
    }

    /// The column Meaning of the metric's row in `docs/operate.md`.
    pub fn meaning(&self) -> String {
        let kind = match self.kind {
            FigureKind::Counter => "counter of ",
            FigureKind::Gauge => "",
        };
        let mut help = self.help.chars();
        let first = help.next().map(|first| first.to_ascii_lowercase());
        let reference = self.reference.map(|reference| format!(" ({reference})"));
        let first = first.into_iter().collect::<String>();
        format!("{kind}{first}{}{}", help.as_str(), reference.unwrap_or_default())
    }
}

/// A number that only grows, counted by several threads. A clone has the value of its time, and counts on its own.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds a number.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// The value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clone for Counter {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.get()))
    }
}
