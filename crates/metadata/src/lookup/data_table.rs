//! Series from the row keys of table `tsdb`.
//!
//! Rows are ordered by hour before tags, and by salt before everything, so a series appears once for each of its
//! hours, and series in no order. The TSUIDs are therefore collected, each once, and sorted. A scan that rejects
//! every row reads keys alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_query::{Budget, Held, QueryError};
use oxtsdb_row_store::{ColumnSelection, RowFilter, RowStore, Scan};
use oxtsdb_schema::data_table::FAMILY;
use oxtsdb_schema::row_key::metric_ranges;
use oxtsdb_schema::{BaseTime, RowKeyLayout, RowKeyRef};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::SeriesLookup;
use super::extent::Extent;
use super::matcher::SeriesMatcher;

/// Memory of a TSUID in the set beside its bytes, an estimate.
const ENTRY_BYTES: u64 = 48;

/// Bytes by which the reservation grows, so that it is not taken for each series.
const GROWTH_BYTES: u64 = 1 << 16;

impl SeriesLookup {
    /// The TSUIDs after `after` that match and have a row in a store, ascending, with the memory that they take.
    ///
    /// # Errors
    ///
    /// Errors of the store; [`QueryError::OverBudget`] if the scan reads more rows or bytes than the query may, or the
    /// series take more memory than it may hold.
    pub(super) async fn collect_from_data(
        &self,
        store: &Arc<dyn RowStore>,
        matcher: &SeriesMatcher,
        after: &[u8],
        extent: Extent,
    ) -> Result<(Vec<Box<[u8]>>, Held), QueryError> {
        let layout = self.storage.layout;
        let ranges = match matcher.metric() {
            Some(metric) => metric_ranges(&layout, metric, BaseTime::MIN, BaseTime::MAX),
            None => vec![(Vec::new(), Vec::new())],
        };
        let collected = Arc::new(Mutex::new(Collected {
            tsuids: BTreeSet::new(),
            bytes: 0,
            held: self.context.budget().hold(0)?,
            failure: None,
        }));
        let failed = CancellationToken::new();
        for (start, stop) in ranges {
            let visitor = Visitor {
                layout,
                matcher: matcher.clone(),
                after: after.into(),
                extent,
                budget: self.context.budget().clone(),
                collected: Arc::clone(&collected),
                failed: failed.clone(),
            };
            let mut scan = Scan::range(start, stop);
            scan.columns = ColumnSelection::Family(String::from_utf8_lossy(FAMILY).into_owned());
            scan.filter = Some(RowFilter::new(move |key| {
                visitor.visit(key);
                false
            }));
            let scanned = async {
                let mut batches = store.scan(&self.storage.table, scan).await?;
                while batches.try_next().await?.is_some() {}
                Ok::<_, QueryError>(())
            };
            tokio::select! {
                scanned = scanned => scanned?,
                () = failed.cancelled() => {}
            }
            if let Some(error) = collected.lock().failure.take() {
                return Err(error);
            }
        }
        let mut collected = collected.lock();
        let nothing = self.context.budget().hold(0)?;
        let held = std::mem::replace(&mut collected.held, nothing);
        let tsuids = std::mem::take(&mut collected.tsuids);
        Ok((tsuids.into_iter().collect(), held))
    }
}

/// The series seen so far.
struct Collected {
    tsuids: BTreeSet<Box<[u8]>>,
    bytes: u64,
    held: Held,
    failure: Option<QueryError>,
}

impl Collected {
    fn add(&mut self, tsuid: &[u8], extent: Extent) -> Result<(), QueryError> {
        if self.tsuids.contains(tsuid) {
            return Ok(());
        }
        if let Extent::First(count) = extent
            && self.tsuids.len() >= count
        {
            if self.tsuids.last().is_none_or(|last| **last < *tsuid) {
                return Ok(());
            }
            self.bytes -= self.tsuids.pop_last().map_or(0, |last| bytes_of(&last));
        }
        self.bytes += bytes_of(tsuid);
        if let Some(missing) = self
            .bytes
            .checked_sub(self.held.bytes())
            .filter(|missing| *missing > 0)
        {
            self.held.grow(missing.max(GROWTH_BYTES))?;
        }
        self.tsuids.insert(tsuid.into());
        Ok(())
    }
}

fn bytes_of(tsuid: &[u8]) -> u64 {
    tsuid.len() as u64 + ENTRY_BYTES
}

/// Adds the series of row keys. A key may be visited more than once.
struct Visitor {
    layout: RowKeyLayout,
    matcher: SeriesMatcher,
    after: Box<[u8]>,
    extent: Extent,
    budget: Budget,
    collected: Arc<Mutex<Collected>>,
    failed: CancellationToken,
}

impl Visitor {
    fn visit(&self, key: &[u8]) {
        if let Err(error) = self.budget.use_rows(1, key.len() as u64) {
            return self.fail(&mut self.collected.lock(), error);
        }
        // Other keys, such as the keys of global annotations, are no rows of series.
        let Ok(row) = RowKeyRef::decode(key, &self.layout) else {
            return;
        };
        let mut tsuid = Vec::with_capacity(key.len());
        row.tsuid_bytes(&mut tsuid);
        if row.is_global() || tsuid.as_slice() <= &*self.after || !self.matcher.matches(&tsuid) {
            return;
        }
        let mut collected = self.collected.lock();
        if collected.failure.is_some() {
            return;
        }
        if let Err(error) = collected.add(&tsuid, self.extent) {
            self.fail(&mut collected, error);
        }
    }

    fn fail(&self, collected: &mut Collected, error: QueryError) {
        collected.failure.get_or_insert(error);
        self.failed.cancel();
    }
}
