//! Reads columns: a worker's share of the series, one after the other.

use std::ops::Range;

use oxtsdb_point_store::{BlockSummary, Columns, SeriesNumber, SeriesReader, TimeRange};
use oxtsdb_row_store::StoreError;

use crate::context::budget::{Budget, Held};
use crate::error::QueryError;
use crate::exec::series_builder::SeriesBuilder;
use crate::function::summary::Summarizer;
use crate::reader::columns::source::ColumnSource;

/// Points that a command reads before it is interrupted, which takes about a millisecond.
const POINTS_PER_JOB: usize = 256 << 10;

/// Series that are announced to a reader together.
const ANNOUNCED: usize = 64;

/// The cost of reading a series beside its points, in points.
const POINTS_OF_A_SERIES: usize = 64;

/// A command that reads columns.
#[derive(Debug)]
pub(super) struct ColumnRead {
    range: TimeRange,
    /// The next series, as an index into the series of the source.
    next: usize,
    /// Opened by the first job.
    readers: Option<Readers>,
    /// Reused for each series, with its memory.
    columns: Columns,
    /// The blocks between them that were not decoded.
    blocks: Vec<BlockSummary>,
    tsuid: Vec<u8>,
    held: Held,
}

/// Whether a command is done, or another job has to go on with it.
pub(super) enum Progress {
    Done,
    GoesOn,
}

impl ColumnRead {
    /// Reads a range.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub(super) fn new(range: TimeRange, budget: &Budget) -> Result<Self, QueryError> {
        Ok(Self {
            range,
            next: 0,
            readers: None,
            columns: Columns::default(),
            blocks: Vec::new(),
            tsuid: Vec::new(),
            held: budget.hold(0)?,
        })
    }

    /// One job's part of the series up to an index.
    pub(super) fn perform(
        &mut self,
        source: &ColumnSource,
        metric_width: usize,
        span: Range<usize>,
        builder: &mut SeriesBuilder,
    ) -> Result<Progress, QueryError> {
        let readers = match &mut self.readers {
            Some(readers) => readers,
            None => {
                self.next = span.start;
                self.readers.insert(Readers::open(source, self.range)?)
            }
        };
        let mut cost = 0;
        for series in &source.series[self.next..span.end] {
            if cost >= POINTS_PER_JOB {
                builder.report()?;
                return Ok(Progress::GoesOn);
            }
            if (self.next - span.start).is_multiple_of(ANNOUNCED) {
                readers.announce(&source.series[self.next..span.end.min(self.next + ANNOUNCED)]);
            }
            self.next += 1;
            cost += POINTS_OF_A_SERIES + self.columns.len();
            let (columns, blocks) = (&mut self.columns, &mut self.blocks);
            source.store.key(*series, &mut self.tsuid);
            let summarizer = source.summarizer.as_ref().filter(|_| builder.takes_summaries());
            readers.read(source, *series, summarizer, (columns, blocks))?;
            if let Some(summarizer) = summarizer
                && !blocks.is_empty()
                && !builder.takes_blocks(summarizer, &self.tsuid, columns, blocks)
            {
                readers.read(source, *series, None, (columns, blocks))?;
            }
            if columns.is_empty() && blocks.is_empty() {
                continue;
            }
            let counts = readers.read_counts(source, *series)?;
            let bytes = columns.byte_len() + counts.map_or(0, Columns::byte_len);
            self.held.grow((bytes as u64).saturating_sub(self.held.bytes()))?;
            if let Some(selection) = &source.unnamed {
                selection.check_named(self.tsuid.get(metric_width..).unwrap_or_default())?;
            }
            match counts {
                Some(counts) => builder.add_averages(&self.tsuid, columns, counts)?,
                None => builder.add_columns(&self.tsuid, columns, blocks)?,
            }
        }
        builder.report()?;
        source.check_damage(span, self.range)?;
        Ok(Progress::Done)
    }
}

/// Readers of a range.
#[derive(Debug)]
struct Readers {
    /// Reads the range, or the division of it that is read first.
    first: Box<dyn SeriesReader>,
    /// Reads the rest, for series that need it; with a buffer.
    rest: Option<(Box<dyn SeriesReader>, Columns)>,
    /// Reads the counts of averages in the range; with a buffer.
    counts: Option<(Box<dyn SeriesReader>, Columns)>,
}

impl Readers {
    fn open(source: &ColumnSource, range: TimeRange) -> Result<Self, StoreError> {
        let parts = source.lookahead.and_then(|lookahead| lookahead.divide(range));
        let (first, rest) = match parts {
            Some((first, rest)) => (first, Some(source.store.reader(rest)?)),
            None => (range, None),
        };
        // Up to now there is no rest.
        let rest = rest.filter(|rest| !rest.is_empty());
        let rest = rest.map(|rest| (rest, Columns::default()));
        let first = source.store.reader(first)?;
        let counts = source.counts.as_ref().map(|counts| counts.reader(range));
        let counts = counts.transpose()?.map(|counts| (counts, Columns::default()));
        Ok(Self { first, rest, counts })
    }

    /// The counts of a series; `None` if its values are not averages.
    fn read_counts(
        &mut self,
        source: &ColumnSource,
        series: SeriesNumber,
    ) -> Result<Option<&Columns>, StoreError> {
        let Some((reader, counts)) = &mut self.counts else {
            return Ok(None);
        };
        source.read(&mut **reader, series, counts)?;
        Ok(Some(counts))
    }

    fn announce(&mut self, series: &[SeriesNumber]) {
        self.first.announce(series);
        if let Some((counts, _)) = &mut self.counts {
            counts.announce(series);
        }
    }

    /// Replaces `columns` and `blocks` by the points of a series that a query needs.
    fn read(
        &mut self,
        source: &ColumnSource,
        series: SeriesNumber,
        summarizer: Option<&Summarizer>,
        (columns, blocks): (&mut Columns, &mut Vec<BlockSummary>),
    ) -> Result<(), StoreError> {
        if let Some(summarizer) = summarizer {
            source.read_summarized(&mut *self.first, series, summarizer, (columns, blocks))?;
        } else {
            blocks.clear();
            source.read(&mut *self.first, series, columns)?;
        }
        let is_enough = |times_ms: &[i64]| {
            source
                .lookahead
                .is_some_and(|lookahead| lookahead.is_enough(times_ms, blocks))
        };
        if let Some((reader, rest)) = &mut self.rest
            && !is_enough(&columns.times_ms)
        {
            source.read(&mut **reader, series, rest)?;
            columns.extend_from(rest, 0..rest.len());
        }
        Ok(())
    }
}
