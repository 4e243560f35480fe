//! The tables that blocks refer to: symbols, and the series made of them.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use oxtsdb_metadata::uids::UidsError;
use oxtsdb_metadata::uids::changes::{ChangedSince, Mark};

use super::declarations::Declarations;
use super::resolve::Batch;
use super::series_table::SeriesTable;
use super::symbols::{SYMBOL_BYTES, Symbols};
use super::{Declaration, ProtocolViolation, SymbolUse};
use crate::{Resolved, WriteError, Writer};

/// Limits of the tables.
#[derive(Clone, Copy, Debug)]
pub struct TablesLimits {
    /// Declared series.
    pub series: usize,
    /// Bytes of symbols, plus `SYMBOL_BYTES` for each.
    pub symbol_bytes: usize,
    /// Tags of a series.
    pub tags: usize,
    /// How long the UIDs of a series are used before they are looked up again; `None`: for ever.
    pub ttl: Option<Duration>,
}

/// The pause before unresolved series are looked up again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The pause before a failed refresh is retried. The old UIDs remain in use meanwhile: an outage of the UID
/// service does not change names.
const REFRESH_PAUSE: Duration = Duration::from_secs(10);

/// New elements of a table.
#[derive(Clone, Copy, Debug)]
pub struct Continuation<I> {
    /// The number that the client gives the first of them.
    pub first: u32,
    /// The elements, ascending by number without gaps.
    pub new: I,
}

impl<I: ExactSizeIterator> Continuation<I> {
    /// The elements, if they continue a table of `len` elements. Otherwise the client numbers them
    /// differently, and later references would mean other elements.
    fn after(
        self,
        len: usize,
        violation: impl FnOnce(u32, usize) -> ProtocolViolation,
    ) -> Result<I, ProtocolViolation> {
        if self.first as usize != len && self.new.len() > 0 {
            return Err(violation(self.first, len));
        }
        Ok(self.new)
    }
}

/// Declared symbols and series.
///
/// [`Tables::declare`] only records declarations, [`Tables::resolve`] looks their names up.
#[derive(Debug)]
pub struct Tables {
    limits: TablesLimits,
    symbols: Symbols,
    declarations: Declarations,
    /// The series of the declarations that are resolved or have failed.
    series: SeriesTable,
    /// When all series are looked up again; `None`: never, or no series is declared yet.
    refresh_at: Option<Instant>,
    /// Series that the UID service cannot resolve at present. Their points fail until it can.
    unresolved: Vec<u32>,
    /// The series are resolved with all mappings that changed before this mark.
    mark: Mark,
    /// When unresolved series are looked up again.
    retry_at: Option<Instant>,
    /// The last outage of the UID service.
    outage: Option<UidsError>,
}

impl Tables {
    /// Creates empty tables, which grow up to `limits`.
    pub fn new(limits: TablesLimits) -> Self {
        Self {
            limits,
            symbols: Symbols::default(),
            declarations: Declarations::default(),
            series: SeriesTable::default(),
            refresh_at: None,
            unresolved: Vec::new(),
            mark: Mark::default(),
            retry_at: None,
            outage: None,
        }
    }

    /// Appends symbols and series to the tables. [`Tables::resolve`] must follow before points refer to
    /// the series.
    ///
    /// # Errors
    ///
    /// If a declaration breaks the protocol or a limit; the tables are then of no further use.
    pub fn declare<'a>(
        &mut self,
        symbols: Continuation<impl ExactSizeIterator<Item = &'a str>>,
        series: Continuation<impl ExactSizeIterator<Item = Declaration<'a>>>,
    ) -> Result<(), ProtocolViolation> {
        let symbols = symbols.after(self.symbols.len(), |first, expected| {
            ProtocolViolation::SymbolsOutOfSequence { first, expected }
        })?;
        let series = series.after(self.declarations.len(), |first, expected| {
            ProtocolViolation::SeriesOutOfSequence { first, expected }
        })?;
        for (index, symbol) in symbols.enumerate() {
            if self.symbols.byte_len() + symbol.len() + SYMBOL_BYTES > self.limits.symbol_bytes {
                return Err(ProtocolViolation::TooManySymbolBytes {
                    symbol: index,
                    max: self.limits.symbol_bytes,
                });
            }
            self.symbols.push(symbol);
        }
        if self.declarations.len() + series.len() > self.limits.series {
            return Err(ProtocolViolation::TooManySeries {
                max: self.limits.series,
            });
        }
        for (index, declaration) in series.enumerate() {
            let checked = self.check(index, declaration)?;
            self.declarations.push(checked);
        }
        Ok(())
    }

    /// Checks that the symbols of a declaration are declared.
    fn check<'a>(
        &self,
        index: usize,
        declaration: Declaration<'a>,
    ) -> Result<Declaration<'a>, ProtocolViolation> {
        let Declaration::Symbols { metric, tags } = declaration else {
            return Ok(declaration);
        };
        let check = |number: u32, symbol_use| match self.symbols.get(number) {
            Some(_) => Ok(()),
            None => Err(ProtocolViolation::UndeclaredSymbol {
                declaration: index,
                symbol_use,
                number,
                declared: self.symbols.len(),
            }),
        };
        check(metric, SymbolUse::Metric)?;
        let count = tags.len();
        if !count.is_multiple_of(2) {
            return Err(ProtocolViolation::OddTagSymbols {
                declaration: index,
                count,
            });
        }
        // Tags far beyond the limit are not copied only to be rejected.
        if count / 2 > self.limits.tags {
            return Ok(Declaration::TooManyTags(count / 2));
        }
        tags.iter()
            .try_for_each(|number| check(*number, SymbolUse::Tag))?;
        Ok(declaration)
    }

    /// Resolves newly declared series, and looks up due series again: all series after the time to live,
    /// unresolved ones after `RETRY_PAUSE`.
    ///
    /// A series that cannot be resolved stays declared; its points fail. While the UID service is
    /// unavailable, that holds for new series, until a later call reaches the service again.
    ///
    /// # Errors
    ///
    /// When the deadline passes, or the UID service fails in a way that no retry repairs.
    pub async fn resolve(&mut self, writer: &Writer, deadline: Option<Instant>) -> Result<(), WriteError> {
        let now = Instant::now();
        let mark = writer.uids().changes().mark();
        if self.has_changed(writer) || self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh(now, writer, deadline).await?;
        }
        self.mark = mark;
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry(writer, deadline).await?;
        }
        let new = self.series.len()..self.declarations.len();
        if new.is_empty() {
            return Ok(());
        }
        let mut series = std::mem::take(&mut self.series);
        let mut unresolved = Vec::new();
        let resolved = self
            .look_up(new, writer, deadline, |number, resolved| {
                if is_unresolved(&resolved) {
                    unresolved.push(number);
                }
                series.push(resolved);
            })
            .await;
        self.series = series;
        self.unresolved.append(&mut unresolved);
        self.after_look_up(resolved?);
        if self.refresh_at.is_none() {
            self.refresh_at = self.limits.ttl.map(|ttl| now + ttl);
        }
        Ok(())
    }

    /// Whether a mapping of one of the series has changed.
    fn has_changed(&self, writer: &Writer) -> bool {
        match writer.uids().changes().since(self.mark) {
            ChangedSince::Nothing => false,
            ChangedSince::Everything => true,
            ChangedSince::Uids(sets) => {
                let layout = writer.uids().layout();
                sets.iter().any(|uids| self.series.use_any(layout, uids))
            }
        }
    }

    /// Why series are unresolved, if no series is resolved at all.
    pub fn total_outage(&self) -> Option<&UidsError> {
        self.outage.as_ref().filter(|_| self.series.all_failed())
    }

    /// Looks up all series again. Keeps the old results if the UID service is unavailable: then it reports no changes
    /// either, and this is repeated after [`REFRESH_PAUSE`].
    async fn refresh(
        &mut self,
        now: Instant,
        writer: &Writer,
        deadline: Option<Instant>,
    ) -> Result<(), WriteError> {
        let mut series = SeriesTable::default();
        let mut unresolved = Vec::new();
        let all = 0..self.series.len();
        let outage = self
            .look_up(all, writer, deadline, |number, resolved| {
                if is_unresolved(&resolved) {
                    unresolved.push(number);
                }
                series.push(resolved);
            })
            .await?;
        if outage.is_some() {
            self.refresh_at = Some(Instant::now() + REFRESH_PAUSE);
            return Ok(());
        }
        self.refresh_at = self.limits.ttl.map(|ttl| now + ttl);
        self.series = series;
        self.unresolved = unresolved;
        self.after_look_up(None);
        Ok(())
    }

    /// Looks up the unresolved series again.
    async fn retry(&mut self, writer: &Writer, deadline: Option<Instant>) -> Result<(), WriteError> {
        let mut results = HashMap::new();
        let mut unresolved = Vec::new();
        let numbers = self.unresolved.iter().map(|number| *number as usize);
        let outage = self
            .look_up(numbers, writer, deadline, |number, resolved| {
                if is_unresolved(&resolved) {
                    unresolved.push(number);
                } else {
                    results.insert(number, resolved);
                }
            })
            .await?;
        self.series.replace(results);
        self.unresolved = unresolved;
        self.after_look_up(outage);
        Ok(())
    }

    /// Records how a look-up ended.
    fn after_look_up(&mut self, outage: Option<UidsError>) {
        self.retry_at = (!self.unresolved.is_empty()).then(|| Instant::now() + RETRY_PAUSE);
        if outage.is_some() || self.unresolved.is_empty() {
            self.outage = outage;
        }
    }

    /// Looks up declared series, one batch at a time, and passes each with its number to `take`. Returns
    /// why some are unresolved, if so.
    async fn look_up(
        &self,
        numbers: impl Iterator<Item = usize> + Send,
        writer: &Writer,
        deadline: Option<Instant>,
        mut take: impl FnMut(u32, Resolved) + Send,
    ) -> Result<Option<UidsError>, WriteError> {
        let mut outage = None;
        let mut batch = Batch::default();
        // The limit of series is far below 32 bits.
        for number in numbers.filter_map(|number| u32::try_from(number).ok()) {
            if batch.is_full() {
                let next = std::mem::take(&mut batch);
                outage = outage.or(next.resolve(writer, deadline, &mut take).await?);
            }
            batch.add(number, self.declarations.get(number), &self.symbols);
        }
        Ok(outage.or(batch.resolve(writer, deadline, &mut take).await?))
    }

    /// Bytes in memory, about. Series shared with the cache are not counted.
    pub fn byte_len(&self) -> usize {
        self.symbols.byte_len() + self.declarations.byte_len() + self.series.byte_len()
    }

    /// The names of a series as text, or its TSUID; `None`: it is not declared.
    pub fn describe(&self, number: u32) -> Option<String> {
        let symbol = |number| self.symbols.get(number).unwrap_or("?");
        match self.declarations.get(number)? {
            Declaration::Symbols { metric, tags } => {
                let mut text = symbol(metric).to_owned();
                for pair in tags.chunks(2) {
                    let mut pair = pair.iter().map(|number| symbol(*number));
                    let (key, value) = (pair.next().unwrap_or_default(), pair.next().unwrap_or_default());
                    text.push_str(&format!(" {key}={value}"));
                }
                Some(text)
            }
            Declaration::Tsuid(tsuid) => Some(format!("TSUID {}", hex::encode_upper(tsuid))),
            Declaration::TooManyTags(_) => None,
        }
    }

    /// The series that blocks refer to.
    pub fn series(&mut self) -> &mut SeriesTable {
        &mut self.series
    }
}

/// Whether a later look-up may resolve the series.
fn is_unresolved(resolved: &Resolved) -> bool {
    resolved.as_ref().is_err_and(|reason| reason.is_transient())
}
