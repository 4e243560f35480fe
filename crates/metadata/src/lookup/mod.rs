//! Series look-up: which series there are, by metric, tag keys and tag values, and how many.
//!
//! ```text
//!   SeriesSelector ─ resolve ─► SeriesMatcher ─┐
//!                                              ▼
//!   tsdb-meta, or its index in memory ─────► TsuidBatches ─┬─► page     some of them, with a total
//!   row keys of tsdb, sorted in memory ────►  ascending    ├─► export   all of them, with names
//!   the catalogue of the store of points ──►               └─► Census   numbers by metric and tag key
//! ```
//!
//! Batches are read on demand, so a page costs what it reads. A look-up runs in the context of an admitted query:
//! it is listed among the running queries, has their deadline, and is cancelled like them.
//!
//! The index answers for a metric if tags narrow it down, or if all series are counted; the rows of `tsdb-meta`
//! otherwise, and where there is no complete index. Where points are in columns, the catalogue of their store takes the
//! place of the index and of the row keys.
//!
//! Source of the surface: OpenTSDB 2.4, `TimeSeriesLookup`.

mod batches;
mod catalogue;
mod census;
mod data_table;
mod extent;
mod matcher;
mod names;
mod page;
mod selector;

pub use batches::TsuidBatches;
pub use census::{Census, CensusRequest, KeyOrder};
pub use extent::Extent;
pub use names::{Names, SeriesNames, needed_uids};
pub use page::{Page, PageRequest, decode_token, encode_token, fitting};
pub use selector::{SeriesSelector, TagSelector};

use oxtsdb_query::{Admitted, Engine, QueryContext, QueryDescription, QueryError, RequestContext, Storage};
use oxtsdb_resources::ComputePool;

/// Memory of a series while its names are looked up, in bytes; an estimate.
pub const SERIES_BYTES: u64 = 512;

/// The table that series are read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesSource {
    /// Table `tsdb-meta`, or the index that is read from it.
    #[default]
    MetaTable,
    /// The row keys of table `tsdb`.
    DataTable,
}

/// The series to look up, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookupQuery {
    /// The condition on metric and tags; the default matches all series.
    pub selector: SeriesSelector,
    /// The table to read. The two may have different series.
    pub source: SeriesSource,
}

/// A series that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundSeries {
    /// Its TSUID.
    pub tsuid: Box<[u8]>,
    /// Its names; `None` if one of its UIDs has no name.
    pub names: Option<SeriesNames>,
}

/// Looks up series in the context of an admitted query. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SeriesLookup {
    storage: Storage,
    compute: ComputePool,
    context: QueryContext,
}

impl SeriesLookup {
    /// Admits a look-up; it runs as long as the permit is kept.
    ///
    /// # Errors
    ///
    /// As [`Engine::admit`].
    pub async fn admit(
        engine: &Engine,
        query: &LookupQuery,
        request: RequestContext,
    ) -> Result<(Self, Admitted), QueryError> {
        let description = QueryDescription::without_range(format!("lookup:{}", query.selector));
        let admitted = engine.admit(request, description, None).await?;
        let lookup = Self {
            storage: engine.storage().clone(),
            compute: admitted.context().compute(&engine.resources().compute),
            context: admitted.context().clone(),
        };
        Ok((lookup, admitted))
    }

    /// The context of the query.
    pub const fn context(&self) -> &QueryContext {
        &self.context
    }
}

#[cfg(test)]
mod tests;
