//! Pages of series, and the tokens that lead from one to the next.

use std::fmt::Debug;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use oxtsdb_query::QueryError;
use oxtsdb_schema::stored_json;

use super::extent::Extent;
use super::{FoundSeries, LookupQuery, SERIES_BYTES, SeriesLookup};

/// Bytes of TSUIDs and names at which a page ends.
const PAGE_BYTES: usize = 1 << 20;

/// Counting stops at this number of series.
const MOST_COUNTED: u64 = 1_000_000;

/// A page of series.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// Series at most, 1 or more.
    pub size: usize,
    /// The last TSUID of the page before; empty: the first page.
    pub after: Vec<u8>,
    /// Whether to count all series.
    pub with_total: bool,
}

/// Series, ascending by TSUID.
#[derive(Debug)]
pub struct Page {
    /// At most [`PageRequest::size`].
    pub series: Vec<FoundSeries>,
    /// The last TSUID, if more series follow.
    pub next_after: Option<Box<[u8]>>,
    /// All series that match, if requested.
    pub total: Option<Total>,
}

/// The number of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Total {
    /// Series that were counted.
    pub series: u64,
    /// There may be more.
    pub is_lower_bound: bool,
}

impl SeriesLookup {
    /// Returns a page.
    ///
    /// # Errors
    ///
    /// As [`SeriesLookup::batches`].
    pub async fn page(&self, query: &LookupQuery, request: PageRequest) -> Result<Page, QueryError> {
        let wanted = request.size + 1;
        let total = if request.with_total {
            Some(self.total(query).await?)
        } else {
            None
        };
        let mut batches = self.batches(query, &request.after, Extent::First(wanted)).await?;
        let mut tsuids = Vec::new();
        while tsuids.len() < wanted
            && let Some(batch) = batches.next().await?
        {
            tsuids.extend(batch);
        }
        drop(batches);
        let mut is_last = tsuids.len() <= request.size;
        tsuids.truncate(request.size);
        let _held = self.context.budget().hold(tsuids.len() as u64 * SERIES_BYTES)?;
        let named = self.context.run(self.named(tsuids));
        let mut series = named.await?;
        let fitting = fitting(&series, PAGE_BYTES);
        is_last &= fitting == series.len();
        series.truncate(fitting);
        let last = series.last().filter(|_| !is_last);
        Ok(Page {
            next_after: last.map(|last| last.tsuid.clone()),
            series,
            total,
        })
    }

    /// The number of all series of a query.
    async fn total(&self, query: &LookupQuery) -> Result<Total, QueryError> {
        let mut batches = self.batches(query, &[], Extent::All).await?;
        let mut series = 0;
        while let Some(batch) = batches.next().await? {
            series += batch.len() as u64;
            if series >= MOST_COUNTED {
                return Ok(Total {
                    series: MOST_COUNTED,
                    is_lower_bound: true,
                });
            }
        }
        Ok(Total {
            series,
            is_lower_bound: false,
        })
    }
}

/// How many of the first series fit in `most_bytes`; at least one.
pub fn fitting(series: &[FoundSeries], most_bytes: usize) -> usize {
    let mut bytes = 0;
    let fitting = series.iter().take_while(|series| {
        let is_first = bytes == 0;
        bytes += series.byte_len();
        is_first || bytes <= most_bytes
    });
    fitting.count()
}

impl FoundSeries {
    /// Bytes of the TSUID and the names.
    pub(crate) fn byte_len(&self) -> usize {
        self.tsuid.len() + self.names.as_ref().map_or(0, |names| names.byte_len())
    }
}

/// The version of the tokens' form.
const TOKEN_VERSION: u8 = 1;

/// A token that leads to the results of a query after a position, such as a TSUID: opaque to clients.
///
/// ```text
///   1 | digest of the query | position     in base64
///   1 |          8          |   ...        bytes
/// ```
pub fn encode_token(query: &impl Debug, after: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode([&[TOKEN_VERSION], &digest(query)[..], after].concat())
}

/// The position of a token; `None` if it is not a token of this query.
pub fn decode_token(query: &impl Debug, token: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let after = bytes
        .strip_prefix(&[TOKEN_VERSION])?
        .strip_prefix(&digest(query))?;
    (!after.is_empty()).then(|| after.to_vec())
}

/// Equal for equal queries, on all servers.
fn digest(query: &impl Debug) -> [u8; 8] {
    stored_json::hash(format!("{query:?}").as_bytes()).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::{SeriesSelector, SeriesSource};

    #[test]
    fn a_token_belongs_to_its_query() {
        let of = |metric: &str| LookupQuery {
            selector: SeriesSelector {
                metric: Some(metric.to_owned()),
                tags: Vec::new(),
            },
            source: SeriesSource::MetaTable,
        };
        let token = encode_token(&of("a"), &[1, 2, 3]);
        assert_eq!(token, "Ae0A81HTVkOlAQID", "other servers read it");
        assert_eq!(decode_token(&of("a"), &token), Some(vec![1, 2, 3]));
        assert_eq!(decode_token(&of("b"), &token), None);
        let in_data = LookupQuery {
            source: SeriesSource::DataTable,
            ..of("a")
        };
        assert_eq!(decode_token(&in_data, &token), None);
        for text in ["", "x", "AQ", "!", &encode_token(&of("a"), &[])] {
            assert_eq!(decode_token(&of("a"), text), None, "{text}");
        }
    }

    #[test]
    fn a_page_has_at_least_one_series() {
        let series = |bytes| FoundSeries {
            tsuid: vec![0; bytes].into(),
            names: None,
        };
        assert_eq!(fitting(&[series(9), series(1)], 5), 1);
        assert_eq!(fitting(&[series(2), series(3), series(1)], 5), 2);
        assert_eq!(fitting(&[], 5), 0);
    }
}
