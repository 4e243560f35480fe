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
use crate::uids::series::{Series, SeriesRef, set_base_time};
use crate::write::tracking::Untracked;
use crate::write::{PointErrorReason, Writer};

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

/// Symbols and series that were declared.
#[derive(Debug)]
pub(crate) struct Tables {
    limits: TablesLimits,
    symbols: Symbols,
    declarations: Declarations,
    series: SeriesKeys,
    /// When the UIDs of the first series, or of all, were looked up.
    resolved: Option<Instant>,
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
            resolved: None,
        }
    }

    /// Adds what `columns` declare. A series that cannot be had is declared all the same; its
    /// points fail.
    ///
    /// If the UIDs of the series declared before are too old, they are looked up again.
    pub(crate) async fn declare(
        &mut self,
        columns: &Columns,
        writer: &Writer,
        deadline: Option<Instant>,
    ) -> Result<(), ColumnsError> {
        let now = Instant::now();
        let resolved = *self.resolved.get_or_insert(now);
        if self
            .limits
            .ttl
            .is_some_and(|ttl| now.duration_since(resolved) >= ttl)
        {
            let mut series = SeriesKeys::default();
            series.resolve(self, writer, deadline).await?;
            self.series = series;
            self.resolved = Some(now);
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
        if self.series.ends.len() + columns.new_series.len() > self.limits.series {
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
        let resolved = series.resolve(self, writer, deadline).await;
        self.series = series;
        resolved
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

    /// How many series are declared.
    pub(crate) fn series_count(&self) -> usize {
        self.series.ends.len()
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

impl SeriesKeys {
    /// Adds the series that are declared and not yet here.
    async fn resolve(
        &mut self,
        tables: &Tables,
        writer: &Writer,
        deadline: Option<Instant>,
    ) -> Result<(), ColumnsError> {
        let mut batch = Batch::default();
        for number in self.ends.len()..tables.declarations.len() {
            if batch.name_bytes >= BATCH_NAME_BYTES {
                batch.resolve(self, writer, deadline).await?;
                batch = Batch::default();
            }
            // Both were checked when the series was declared.
            let declared = u32::try_from(number)
                .ok()
                .and_then(|number| tables.declarations.get(number));
            batch.add(declared, &tables.symbols);
        }
        batch.resolve(self, writer, deadline).await
    }
}

/// Series that are resolved with one question.
#[derive(Default)]
struct Batch<'a> {
    named: Vec<Named<'a>>,
    tags: Vec<(&'a str, &'a str)>,
    /// Bytes of the names of all series: of a symbol as often as it is referred to.
    name_bytes: usize,
}

impl<'a> Batch<'a> {
    fn add(&mut self, declared: Option<Declared<'a>>, symbols: &'a Symbols) {
        let symbol = |number: u32| symbols.get(number).unwrap_or_default();
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

    /// Resolves the series and adds them to the table.
    async fn resolve(
        self,
        table: &mut SeriesKeys,
        writer: &Writer,
        deadline: Option<Instant>,
    ) -> Result<(), ColumnsError> {
        let Self { named, tags, .. } = self;
        let wanted: Vec<SeriesRef<'_>> = named.iter().filter_map(|named| named.series(&tags)).collect();
        let mut resolved = writer.resolve(wanted.into_iter(), deadline).await?.into_iter();
        for named in named {
            let series = match named {
                Named::TooManyTags(count) => Err(Arc::new(PointErrorReason::TooManyTags {
                    count,
                    max: writer.max_tags(),
                })),
                Named::Tsuid(_) | Named::Names { .. } => match resolved.next() {
                    Some(resolved) => resolved,
                    None => Err(Arc::new(PointErrorReason::NoSeries)),
                },
            };
            match series {
                Ok(series) => {
                    table.base_time_at = series.base_time_at();
                    table.push(series.key(), Some(series.clone()));
                }
                Err(reason) => table.push_failure(reason),
            }
        }
        Ok(())
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
    fn push(&mut self, key: &[u8], series: Option<Arc<Series>>) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        self.tracked.push(Tracked { hour: 0, series });
    }

    fn push_failure(&mut self, reason: Arc<PointErrorReason>) {
        // The limit of series is far below 32 bits.
        if let Ok(number) = u32::try_from(self.ends.len()) {
            self.failures.insert(number, reason);
        }
        self.push(&[], None);
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
