//! The tables that columns refer to: symbols, and series made of them.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use oxtsdb_proto::data::v1::Columns;
use oxtsdb_proto::data::v1::columns::SeriesDeclaration;
use oxtsdb_schema::BaseTime;

use super::declarations::{Declarations, Declared};
use super::{Breach, ColumnsError};
use crate::uids::UidsError;
use crate::uids::series::{Series, SeriesRef, set_base_time};
use crate::write::tracking::Untracked;
use crate::write::{PointErrorReason, Resolution, Resolved, Writer};

/// What tables may grow to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TablesLimits {
    /// Series declared.
    pub(crate) series: usize,
    /// Bytes of symbols, with [`SYMBOL_BYTES`] more for each.
    pub(crate) symbol_bytes: usize,
    /// How long the UIDs of a series are used before they are looked up again; `None`: for ever.
    pub(crate) ttl: Option<Duration>,
}

/// What a symbol costs beside its text, in bytes.
const SYMBOL_BYTES: usize = size_of::<usize>();

/// A long symbol that many series refer to is small on the wire and large as their names: so many
/// bytes of names are resolved at a time.
const BATCH_NAME_BYTES: usize = 16 << 20;

/// The pause before series are looked up again that could not be resolved.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The pause before UIDs that are too old are looked up again, if that was not possible. They are used on
/// meanwhile: the names of an absent UID service do not change through it.
const REFRESH_PAUSE: Duration = Duration::from_secs(10);

/// Symbols and series that were declared.
#[derive(Debug)]
pub(crate) struct Tables {
    limits: TablesLimits,
    symbols: Symbols,
    declarations: Declarations,
    series: SeriesKeys,
    /// When the UIDs of all series are looked up again; `None`: never, or no series was declared yet.
    refresh_at: Option<Instant>,
    /// Series that the UID service could not resolve for now. Their points fail until it can.
    unresolved: Vec<u32>,
    /// When these are looked up again.
    retry_at: Option<Instant>,
    /// What it said last.
    outage: Option<UidsError>,
}

/// Texts, one behind the other.
#[derive(Debug, Default)]
struct Symbols {
    text: String,
    ends: Vec<usize>,
}

/// Row keys, one behind the other. A series that failed has an empty key.
#[derive(Debug, Default)]
struct SeriesKeys {
    keys: Vec<u8>,
    ends: Vec<usize>,
    base_time_at: usize,
    tracked: Vec<Tracked>,
    failures: HashMap<u32, Arc<PointErrorReason>>,
}

/// What is known of the tracking of a series; see [`Untracked`].
#[derive(Debug)]
struct Tracked {
    /// The hour in which it was looked at last, beside the others, so that a point seldom has to go to
    /// the series itself.
    hour: u32,
    /// `None`: it failed.
    series: Option<Arc<Series>>,
}

impl Tables {
    pub(crate) fn new(limits: TablesLimits) -> Self {
        Self {
            limits,
            symbols: Symbols::default(),
            declarations: Declarations::default(),
            series: SeriesKeys::default(),
            refresh_at: None,
            unresolved: Vec::new(),
            retry_at: None,
            outage: None,
        }
    }

    /// Adds what `columns` declare. A series that cannot be had is declared all the same; its
    /// points fail. While the UID service is unavailable, that is so for new series, until a later call
    /// finds the service again.
    ///
    /// If the UIDs of the series declared before are too old, they are looked up again.
    pub(crate) async fn declare(
        &mut self,
        columns: &Columns,
        writer: &Writer,
        deadline: Option<Instant>,
    ) -> Result<(), ColumnsError> {
        let now = Instant::now();
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh(now, writer, deadline).await?;
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry(writer, deadline).await?;
        }
        for (index, symbol) in columns.new_symbols.iter().enumerate() {
            if self.symbols.bytes() + symbol.len() + SYMBOL_BYTES > self.limits.symbol_bytes {
                let breach = Breach::TooManySymbols {
                    max: self.limits.symbol_bytes,
                };
                return Err(breach.at(format!("columns.new_symbols[{index}]")));
            }
            self.symbols.push(symbol);
        }
        if columns.new_series.is_empty() {
            return Ok(());
        }
        if self.series.len() + columns.new_series.len() > self.limits.series {
            let breach = Breach::TooManySeries {
                max: self.limits.series,
            };
            return Err(breach.at("columns.new_series".to_owned()));
        }
        for (index, declaration) in columns.new_series.iter().enumerate() {
            let declared = self.check(index, declaration, writer.max_tags())?;
            self.declarations.push(declared);
        }
        let mut series = std::mem::take(&mut self.series);
        let mut unresolved = Vec::new();
        let new = series.len()..self.declarations.len();
        let resolved = self
            .resolve(new, writer, deadline, |number, resolved| {
                if is_unresolved(&resolved) {
                    unresolved.push(number);
                }
                series.push(resolved);
            })
            .await;
        self.series = series;
        self.unresolved.append(&mut unresolved);
        self.after(resolved?);
        if self.refresh_at.is_none() {
            self.refresh_at = self.limits.ttl.map(|ttl| now + ttl);
        }
        Ok(())
    }

    /// Why series are unresolved, if no series is resolved at all.
    pub(crate) fn total_outage(&self) -> Option<&UidsError> {
        self.outage.as_ref().filter(|_| self.series.keys.is_empty())
    }

    /// Looks up all series again, and keeps what there is if the UID service is unavailable.
    async fn refresh(
        &mut self,
        now: Instant,
        writer: &Writer,
        deadline: Option<Instant>,
    ) -> Result<(), ColumnsError> {
        let mut series = SeriesKeys::default();
        let mut unresolved = Vec::new();
        let all = 0..self.series.len();
        let outage = self
            .resolve(all, writer, deadline, |number, resolved| {
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
        self.after(None);
        Ok(())
    }

    /// Looks up the unresolved series again.
    async fn retry(&mut self, writer: &Writer, deadline: Option<Instant>) -> Result<(), ColumnsError> {
        let mut found = HashMap::new();
        let mut unresolved = Vec::new();
        let numbers = self.unresolved.iter().map(|number| *number as usize);
        let outage = self
            .resolve(numbers, writer, deadline, |number, resolved| {
                if is_unresolved(&resolved) {
                    unresolved.push(number);
                } else {
                    found.insert(number, resolved);
                }
            })
            .await?;
        if !found.is_empty() {
            self.series = std::mem::take(&mut self.series).with(&found);
        }
        self.unresolved = unresolved;
        self.after(outage);
        Ok(())
    }

    /// Notes how a lookup ended.
    fn after(&mut self, outage: Option<UidsError>) {
        self.retry_at = (!self.unresolved.is_empty()).then(|| Instant::now() + RETRY_PAUSE);
        if outage.is_some() || self.unresolved.is_empty() {
            self.outage = outage;
        }
    }

    /// Looks up declared series, some at a time, and hands each with its number to `take`. Returns why
    /// some are unresolved, if so.
    async fn resolve(
        &self,
        numbers: impl Iterator<Item = usize> + Send,
        writer: &Writer,
        deadline: Option<Instant>,
        mut take: impl FnMut(u32, Resolved) + Send,
    ) -> Result<Option<UidsError>, ColumnsError> {
        let mut outage = None;
        let mut batch = Batch::default();
        // The limit of series is far below 32 bits.
        for number in numbers.filter_map(|number| u32::try_from(number).ok()) {
            if batch.name_bytes >= BATCH_NAME_BYTES {
                let away = std::mem::take(&mut batch)
                    .resolve(writer, deadline, &mut take)
                    .await?;
                outage = outage.or(away);
            }
            batch.add(number, self.declarations.get(number), &self.symbols);
        }
        let away = batch.resolve(writer, deadline, &mut take).await?;
        Ok(outage.or(away))
    }

    /// A declaration whose symbols are there.
    fn check<'a>(
        &self,
        index: usize,
        declaration: &'a SeriesDeclaration,
        max_tags: usize,
    ) -> Result<Declared<'a>, ColumnsError> {
        if !declaration.tsuid.is_empty() {
            return Ok(Declared::Tsuid(&declaration.tsuid));
        }
        let declared = self.symbols.ends.len();
        let check = |number: u32, name: &str| match self.symbols.get(number) {
            Some(_) => Ok(()),
            None => Err(Breach::Undeclared {
                what: "symbol",
                number,
                declared,
            }
            .at(series_field(index, name))),
        };
        check(declaration.metric_symbol, "metric_symbol")?;
        let tags = declaration.tag_symbols.as_slice();
        let count = tags.len();
        if !count.is_multiple_of(2) {
            return Err(Breach::OddTagSymbols { count }.at(series_field(index, "tag_symbols")));
        }
        // Far too many tags are not copied out only to be refused.
        if count / 2 > max_tags {
            return Ok(Declared::TooManyTags(count / 2));
        }
        tags.iter().try_for_each(|number| check(*number, "tag_symbols"))?;
        Ok(Declared::Symbols {
            metric: declaration.metric_symbol,
            tags,
        })
    }

    /// Bytes in memory, about; series that others have in the cache too are not counted.
    pub(crate) fn byte_len(&self) -> usize {
        self.symbols.bytes() + self.declarations.byte_len() + self.series.byte_len()
    }

    /// How many series are declared.
    pub(crate) fn series_count(&self) -> usize {
        self.series.len()
    }

    /// Where the row key of a series lies; empty: it failed. `None`: it is not declared.
    #[inline]
    pub(super) fn series(&self, number: u32) -> Option<Range<usize>> {
        self.series.range(number)
    }

    /// Why a series failed.
    pub(super) fn failure(&self, number: u32) -> Option<&Arc<PointErrorReason>> {
        self.series.failures.get(&number)
    }

    /// Has a series tracked, if it is not.
    #[inline]
    pub(super) fn look_at(&mut self, number: u32, untracked: &mut Untracked) {
        let Some(tracked) = self.series.tracked.get_mut(number as usize) else {
            return;
        };
        if tracked.hour != untracked.hour() {
            tracked.hour = untracked.hour();
            if let Some(series) = &tracked.series {
                untracked.look_at(series);
            }
        }
    }

    /// The row key of an hour of a series that [`Tables::series`] found.
    #[inline]
    pub(super) fn row_key(&mut self, series: Range<usize>, base: BaseTime) -> &[u8] {
        let key = &mut self.series.keys[series];
        set_base_time(key, self.series.base_time_at, base);
        key
    }
}

fn series_field(index: usize, name: &str) -> String {
    format!("columns.new_series[{index}].{name}")
}

/// Whether a later lookup may find the series.
fn is_unresolved(resolved: &Resolved) -> bool {
    resolved.as_ref().is_err_and(|reason| reason.is_transient())
}

/// Series that are resolved with one call.
#[derive(Default)]
struct Batch<'a> {
    numbers: Vec<u32>,
    named: Vec<Named<'a>>,
    tags: Vec<(&'a str, &'a str)>,
    /// Bytes of the names of all series: of a symbol as often as it is referred to.
    name_bytes: usize,
}

impl<'a> Batch<'a> {
    fn add(&mut self, number: u32, declared: Option<Declared<'a>>, symbols: &'a Symbols) {
        let symbol = |number: u32| symbols.get(number).unwrap_or_default();
        self.numbers.push(number);
        self.named.push(match declared {
            Some(Declared::Symbols { metric, tags }) => {
                let start = self.tags.len();
                let metric = symbol(metric);
                self.name_bytes += metric.len();
                for pair in tags.chunks_exact(2) {
                    let (tagk, tagv) = (symbol(pair[0]), symbol(pair[1]));
                    self.tags.push((tagk, tagv));
                    self.name_bytes += tagk.len() + tagv.len();
                }
                Named::Names {
                    metric,
                    tags: start..self.tags.len(),
                }
            }
            Some(Declared::Tsuid(tsuid)) => Named::Tsuid(tsuid),
            Some(Declared::TooManyTags(count)) => Named::TooManyTags(count),
            None => Named::Tsuid(&[]),
        });
    }

    /// Resolves the series, and hands each with its number to `take`.
    async fn resolve(
        self,
        writer: &Writer,
        deadline: Option<Instant>,
        take: &mut (impl FnMut(u32, Resolved) + Send),
    ) -> Result<Option<UidsError>, ColumnsError> {
        let Self {
            numbers, named, tags, ..
        } = self;
        let wanted: Vec<SeriesRef<'_>> = named.iter().filter_map(|named| named.series(&tags)).collect();
        let Resolution { series, outage } = writer.resolve(wanted.into_iter(), deadline).await?;
        let mut resolved = series.into_iter();
        for (number, named) in numbers.into_iter().zip(named) {
            let series = match named {
                Named::TooManyTags(count) => Err(Arc::new(PointErrorReason::TooManyTags {
                    count,
                    max: writer.max_tags(),
                })),
                Named::Tsuid(_) | Named::Names { .. } => resolved
                    .next()
                    .unwrap_or_else(|| Err(Arc::new(PointErrorReason::NoSeries))),
            };
            take(number, series);
        }
        Ok(outage)
    }
}

/// How a declaration names its series.
enum Named<'a> {
    Tsuid(&'a [u8]),
    Names { metric: &'a str, tags: Range<usize> },
    TooManyTags(usize),
}

impl<'a> Named<'a> {
    fn series(&self, tags: &'a [(&'a str, &'a str)]) -> Option<SeriesRef<'a>> {
        match self {
            Self::Tsuid(tsuid) => Some(SeriesRef::Tsuid(tsuid)),
            Self::Names { metric, tags: range } => Some(SeriesRef::Names {
                metric,
                tags: &tags[range.clone()],
            }),
            Self::TooManyTags(_) => None,
        }
    }
}

impl Symbols {
    fn push(&mut self, symbol: &str) {
        self.text.push_str(symbol);
        self.ends.push(self.text.len());
    }

    fn get(&self, number: u32) -> Option<&str> {
        self.text.get(range(&self.ends, number)?)
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.ends.len() * SYMBOL_BYTES
    }
}

impl SeriesKeys {
    fn len(&self) -> usize {
        self.ends.len()
    }

    fn byte_len(&self) -> usize {
        self.keys.len() + self.len() * (size_of::<usize>() + size_of::<Tracked>())
    }

    fn push(&mut self, resolved: Resolved) {
        match resolved {
            Ok(series) => {
                self.base_time_at = series.base_time_at();
                self.keys.extend_from_slice(series.key());
                self.push_tracked(Tracked {
                    hour: 0,
                    series: Some(series),
                });
            }
            Err(reason) => {
                // The limit of series is far below 32 bits.
                if let Ok(number) = u32::try_from(self.len()) {
                    self.failures.insert(number, reason);
                }
                self.push_tracked(Tracked {
                    hour: 0,
                    series: None,
                });
            }
        }
    }

    /// Ends the series whose key was appended, if it has one.
    fn push_tracked(&mut self, tracked: Tracked) {
        self.ends.push(self.keys.len());
        self.tracked.push(tracked);
    }

    /// The same with other results for some series, by their numbers.
    fn with(mut self, found: &HashMap<u32, Resolved>) -> Self {
        let mut all = Self {
            base_time_at: self.base_time_at,
            ..Self::default()
        };
        let mut start = 0;
        for ((number, end), tracked) in (0..).zip(&self.ends).zip(self.tracked.drain(..)) {
            let key = self.keys.get(start..*end).unwrap_or_default();
            start = *end;
            if let Some(resolved) = found.get(&number) {
                all.push(resolved.clone());
            } else if let Some(reason) = self.failures.remove(&number) {
                all.push(Err(reason));
            } else {
                all.keys.extend_from_slice(key);
                all.push_tracked(tracked);
            }
        }
        all
    }

    #[inline]
    fn range(&self, number: u32) -> Option<Range<usize>> {
        range(&self.ends, number)
    }
}

/// Where item `number` lies among items that end at `ends`.
#[inline]
pub(super) fn range(ends: &[usize], number: u32) -> Option<Range<usize>> {
    let number = number as usize;
    let end = *ends.get(number)?;
    let start = match number {
        0 => 0,
        _ => ends[number - 1],
    };
    Some(start..end)
}
