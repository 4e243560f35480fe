//! Resolves declared series, in batches.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use oxtsdb_metadata::uids::UidsError;
use oxtsdb_metadata::uids::series::SeriesRef;

use super::Declaration;
use super::symbols::Symbols;
use crate::{PointErrorReason, Resolution, Resolved, WriteError, Writer};

/// A long symbol that many series refer to is small on the wire and large as their names, so a batch
/// ends at this many bytes of names.
pub(super) const BATCH_NAME_BYTES: usize = 16 << 20;

/// Series that are resolved by one call.
#[derive(Default)]
pub(super) struct Batch<'a> {
    numbers: Vec<u32>,
    named: Vec<Named<'a>>,
    tags: Vec<(&'a str, &'a str)>,
    /// Bytes of the names of all series. A symbol counts once per reference.
    name_bytes: usize,
}

/// The form in which a declaration names its series.
enum Named<'a> {
    Tsuid(&'a [u8]),
    Names { metric: &'a str, tags: Range<usize> },
    TooManyTags(usize),
}

impl<'a> Batch<'a> {
    pub(super) fn is_full(&self) -> bool {
        self.name_bytes >= BATCH_NAME_BYTES
    }

    pub(super) fn add(&mut self, number: u32, declaration: Option<Declaration<'a>>, symbols: &'a Symbols) {
        let symbol = |number: u32| symbols.get(number).unwrap_or_default();
        self.numbers.push(number);
        self.named.push(match declaration {
            Some(Declaration::Symbols { metric, tags }) => {
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
            Some(Declaration::Tsuid(tsuid)) => Named::Tsuid(tsuid),
            Some(Declaration::TooManyTags(count)) => Named::TooManyTags(count),
            None => Named::Tsuid(&[]),
        });
    }

    /// Resolves the series and passes each with its number to `take`. Returns why some are unresolved, if so.
    pub(super) async fn resolve(
        self,
        writer: &Writer,
        deadline: Option<Instant>,
        take: &mut (impl FnMut(u32, Resolved) + Send),
    ) -> Result<Option<UidsError>, WriteError> {
        let Self {
            numbers, named, tags, ..
        } = self;
        let requested: Vec<SeriesRef<'_>> = named.iter().filter_map(|named| named.series(&tags)).collect();
        let Resolution { series, outage } = writer.resolve(requested.into_iter(), deadline).await?;
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
