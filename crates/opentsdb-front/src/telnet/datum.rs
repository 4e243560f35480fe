//! Lines of the kinds of data that have a command of their own beside `put`.

use std::time::Instant;

use futures::future::BoxFuture;
use oxtsdb_ingest::rollup::{NewAggregate, RollupWriter};
use oxtsdb_ingest::{NewHistogram, WriteError, WriteOutcome, Writer};

use super::lines::Command;
use crate::front::histogram_text::CheckedHistogram;

/// A kind of data; the implementation writes it.
pub(super) trait DatumKind: Sync {
    /// A line that breaks no rule.
    type Line<'a>: Sync;

    /// Its command.
    const COMMAND: &'static str;

    /// The line, if the command is of this kind.
    fn line<'c, 'a>(command: &'c Command<'a>) -> Option<&'c Self::Line<'a>>;

    /// Metric and tags of a line.
    fn series<'c>(line: &'c Self::Line<'_>) -> (&'c str, &'c [(&'c str, &'c str)]);

    /// Writes the data of lines; their errors are by index.
    fn write<'b>(
        &'b self,
        lines: &'b [&Self::Line<'_>],
        deadline: Option<Instant>,
    ) -> BoxFuture<'b, Result<WriteOutcome, WriteError>>;
}

/// Histograms, as [`DatumKind`].
#[derive(Debug)]
pub(super) struct Histograms(pub(super) Writer);

impl DatumKind for Histograms {
    type Line<'a> = CheckedHistogram<'a>;

    const COMMAND: &'static str = "histogram";

    fn line<'c, 'a>(command: &'c Command<'a>) -> Option<&'c CheckedHistogram<'a>> {
        match command {
            Command::Histogram(line) => Some(line),
            _ => None,
        }
    }

    fn series<'c>(line: &'c CheckedHistogram<'_>) -> (&'c str, &'c [(&'c str, &'c str)]) {
        (line.metric, &line.tags)
    }

    fn write<'b>(
        &'b self,
        lines: &'b [&CheckedHistogram<'_>],
        deadline: Option<Instant>,
    ) -> BoxFuture<'b, Result<WriteOutcome, WriteError>> {
        let new: Vec<NewHistogram<'b>> = lines.iter().map(|line| line.new_histogram()).collect();
        Box::pin(async move { self.0.write_histograms(&new, deadline).await })
    }
}

impl DatumKind for RollupWriter {
    type Line<'a> = NewAggregate<'a>;

    const COMMAND: &'static str = "rollup";

    fn line<'c, 'a>(command: &'c Command<'a>) -> Option<&'c NewAggregate<'a>> {
        match command {
            Command::Rollup(line) => Some(line),
            _ => None,
        }
    }

    fn series<'c>(line: &'c NewAggregate<'_>) -> (&'c str, &'c [(&'c str, &'c str)]) {
        (line.metric, &line.tags)
    }

    fn write<'b>(
        &'b self,
        lines: &'b [&NewAggregate<'_>],
        deadline: Option<Instant>,
    ) -> BoxFuture<'b, Result<WriteOutcome, WriteError>> {
        let new: Vec<NewAggregate<'b>> = lines.iter().map(|line| (*line).clone()).collect();
        Box::pin(async move { RollupWriter::write(self, &new, deadline).await })
    }
}
