//! The tables that columns refer to: symbols, and series made of them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;
use oxtsdb_proto::data::v1::Columns;
use oxtsdb_proto::data::v1::columns::SeriesDeclaration;
use oxtsdb_schema::BaseTime;

use super::{Breach, ColumnsError};
use crate::uids::series::{SeriesRef, set_base_time};
use crate::write::{PointErrorReason, Writer};

/// What tables may grow to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TablesLimits {
    /// Series declared.
    pub(crate) series: usize,
    /// Bytes of symbols, with [`SYMBOL_BYTES`] more for each.
    pub(crate) symbol_bytes: usize,
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
    series: SeriesKeys,
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
    failures: HashMap<u32, Arc<PointErrorReason>>,
}

impl Tables {
    pub(crate) fn new(limits: TablesLimits) -> Self {
        Self {
            limits,
            symbols: Symbols::default(),
            series: SeriesKeys::default(),
        }
    }

    /// Adds what `columns` declare. A series that cannot be had is declared all the same; its
    /// points fail.
    pub(crate) async fn declare(
        &mut self,
        columns: &Columns,
        writer: &Writer,
        deadline: Option<Instant>,
    ) -> Result<(), ColumnsError> {
        for (index, symbol) in columns.new_symbols.iter().enumerate() {
            if self.symbols.bytes() + symbol.len() + SYMBOL_BYTES > self.limits.symbol_bytes {
                let breach = Breach::TooManySymbols {
                    max: self.limits.symbol_bytes,
                };
                return Err(breach.at(format!("columns.new_symbols[{index}]")));
            }
            self.symbols.push(symbol);
        }
        if self.series.ends.len() + columns.new_series.len() > self.limits.series {
            let breach = Breach::TooManySeries {
                max: self.limits.series,
            };
            return Err(breach.at("columns.new_series".to_owned()));
        }
        self.declare_series(&columns.new_series, writer, deadline).await
    }

    async fn declare_series(
        &mut self,
        declarations: &[SeriesDeclaration],
        writer: &Writer,
        deadline: Option<Instant>,
    ) -> Result<(), ColumnsError> {
        let Self { symbols, series, .. } = self;
        let mut batch = Batch::default();
        for (index, declaration) in declarations.iter().enumerate() {
            if batch.name_bytes >= BATCH_NAME_BYTES {
                batch.declare(series, writer, deadline).await?;
                batch = Batch::default();
            }
            if !declaration.tsuid.is_empty() {
                batch.named.push(Named::Tsuid(&declaration.tsuid));
                continue;
            }
            let symbol = |number: u32, name: &str| {
                symbols.get(number).ok_or_else(|| {
                    let what = "symbol";
                    let declared = symbols.ends.len();
                    Breach::Undeclared {
                        what,
                        number,
                        declared,
                    }
                    .at(series_field(index, name))
                })
            };
            let metric = symbol(declaration.metric_symbol, "metric_symbol")?;
            let count = declaration.tag_symbols.len();
            if count % 2 != 0 {
                return Err(Breach::OddTagSymbols { count }.at(series_field(index, "tag_symbols")));
            }
            // Far too many tags are not copied out only to be refused.
            if count / 2 > writer.max_tags() {
                batch.named.push(Named::TooManyTags(count / 2));
                continue;
            }
            let start = batch.tags.len();
            batch.name_bytes += metric.len();
            for pair in declaration.tag_symbols.chunks_exact(2) {
                let (tagk, tagv) = (symbol(pair[0], "tag_symbols")?, symbol(pair[1], "tag_symbols")?);
                batch.tags.push((tagk, tagv));
                batch.name_bytes += tagk.len() + tagv.len();
            }
            batch.named.push(Named::Names {
                metric,
                tags: start..batch.tags.len(),
            });
        }
        batch.declare(series, writer, deadline).await
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

/// Series that are resolved with one question.
#[derive(Default)]
struct Batch<'a> {
    named: Vec<Named<'a>>,
    tags: Vec<(&'a str, &'a str)>,
    /// Bytes of the names of all series: of a symbol as often as it is referred to.
    name_bytes: usize,
}

impl Batch<'_> {
    /// Resolves the series and adds them to the table.
    async fn declare(
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
                    table.push(series.key());
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
    fn push(&mut self, key: &[u8]) {
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
    }

    fn push_failure(&mut self, reason: Arc<PointErrorReason>) {
        // The limit of series is far below 32 bits.
        if let Ok(number) = u32::try_from(self.ends.len()) {
            self.failures.insert(number, reason);
        }
        self.push(&[]);
    }

    #[inline]
    fn range(&self, number: u32) -> Option<Range<usize>> {
        range(&self.ends, number)
    }
}

/// Where item `number` lies among items that end at `ends`.
#[inline]
fn range(ends: &[usize], number: u32) -> Option<Range<usize>> {
    let number = number as usize;
    let end = *ends.get(number)?;
    let start = match number {
        0 => 0,
        _ => ends[number - 1],
    };
    Some(start..end)
}
