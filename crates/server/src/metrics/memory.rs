//! The memory account.

use oxtsdb_resources::MemoryAccount;

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
            let usages = [memory.ingest().usage(), memory.query().usage()];
            let by_pool = |value: fn(&oxtsdb_resources::memory::PoolUsage) -> u64| {
                usages.map(|usage| (usage.name, value(&usage)))
            };
            figures.gauge_by(
                "memory_pool_limit_bytes",
                "Size of a pool: of writes that are not stored, and of queries",
                "pool",
                by_pool(|usage| usage.limit_bytes),
            );
            figures.gauge_by(
                "memory_pool_used_bytes",
                "Reserved bytes of a pool",
                "pool",
                by_pool(|usage| usage.used_bytes),
            );
            figures.gauge_by(
                "memory_pool_peak_bytes",
                "The most reserved bytes of a pool since the start",
                "pool",
                by_pool(|usage| usage.peak_bytes),
            );
            figures.counter_by(
                "memory_pool_rejected",
                "Reservations that a pool had no memory for",
                "pool",
                by_pool(|usage| usage.rejected),
            );
        });
    }
}
