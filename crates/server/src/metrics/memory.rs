//! The memory account.

use oxtsdb_resources::MemoryAccount;
use oxtsdb_resources::memory::POOL_FIGURES;

use super::Metrics;

impl Metrics {
    /// Adds the memory account of the process.
    pub(crate) fn collect_memory(&self, memory: &MemoryAccount) {
        let memory = memory.clone();
        self.collect(move |figures| {
            figures.gauge(
                "memory_limit_bytes",
                "Memory of the process (--memory-limit-mib)",
                memory.limit_bytes(),
            );
            figures.gauge(
                "memory_fixed_bytes",
                "Of that, memory of caches and of the store",
                memory.fixed_bytes(),
            );
            let [ingest, query] = [memory.ingest().usage(), memory.query().usage()];
            let pools = [(ingest.name, &ingest), (query.name, &query)];
            figures.table_by(POOL_FIGURES, "pool", &pools);
        });
    }
}
