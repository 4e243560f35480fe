//! Removes columns when all of their cells have expired and a compaction rewrites them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, RefUnwindSafe};
use std::sync::Arc;

use fjall::compaction::filter::{
    CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict,
};

use super::catalog::Catalog;
use super::key::{self, Column};
use super::time::StoreTime;

/// Creates the filter of each compaction.
pub(super) struct Expiry {
    shared: AssertUnwindSafe<(Arc<Catalog>, Arc<StoreTime>)>,
}

impl Expiry {
    pub(super) fn new(catalog: Arc<Catalog>, time: Arc<StoreTime>) -> Self {
        Self {
            shared: AssertUnwindSafe((catalog, time)),
        }
    }
}

const _: fn() = || {
    fn is<T: RefUnwindSafe>() {}
    is::<Expiry>();
};

impl Factory for Expiry {
    fn name(&self) -> &'static str {
        "expiry"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        let (catalog, time) = &*self.shared;
        let now_ms = time.now_ms();
        let tables = catalog.by_id().into_iter();
        Box::new(Filter {
            oldest_ms: tables.map(|(id, table)| (id, table.oldest_ms(now_ms))).collect(),
        })
    }
}

/// For each table, the oldest timestamp of each family that has not expired.
struct Filter {
    oldest_ms: BTreeMap<u16, [i64; 16]>,
}

impl CompactionFilter for Filter {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        let key = item.key();
        let oldest_ms = || {
            let table = self.oldest_ms.get(&u16::from_be_bytes(*key.first_chunk()?))?;
            let after_row = key.get(key::row_prefix_len(key)?..)?;
            let oldest_ms = *table.get(usize::from(*after_row.first()?))?;
            (oldest_ms != i64::MIN).then_some((after_row, oldest_ms))
        };
        let Some((after_row, oldest_ms)) = oldest_ms() else {
            return Ok(Verdict::Keep);
        };
        let stored = item.value()?;
        let newest = Column::decode(after_row, &stored, &mut Vec::new())
            .and_then(|column| column.versions().next().flatten());
        // Older values of the key have no newer versions, so none can come back.
        Ok(match newest {
            Some((time, _)) if time < oldest_ms => Verdict::Destroy,
            _ => Verdict::Keep,
        })
    }
}
