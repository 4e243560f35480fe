//! The memory account, and its division into a fixed share and pools.

use super::pool::MemoryPool;

/// Memory outside the account: the program itself, stacks, connections, fragmentation.
const OVERHEAD_BYTES: u64 = 64 << 20;

/// The smallest limit that a server can run with.
pub const MIN_LIMIT_BYTES: u64 = 256 << 20;

/// All memory that callers can make a process hold. Clones share the pools.
#[derive(Clone, Debug)]
pub struct MemoryAccount {
    limit_bytes: u64,
    fixed_bytes: u64,
    ingest: MemoryPool,
    query: MemoryPool,
}

impl MemoryAccount {
    /// Creates an account of `limit_bytes`; `fixed_bytes` of them belong to caches and the store. Of the rest, a
    /// quarter goes to the ingest pool and three quarters to the query pool.
    pub fn new(limit_bytes: u64, fixed_bytes: u64) -> Self {
        let limit_bytes = limit_bytes.max(MIN_LIMIT_BYTES);
        let rest = limit_bytes
            .saturating_sub(fixed_bytes)
            .saturating_sub(OVERHEAD_BYTES);
        // An oversized fixed share leaves the pools small rather than empty.
        let rest = rest.max(limit_bytes / 4);
        Self {
            limit_bytes,
            fixed_bytes,
            ingest: MemoryPool::new("ingest", rest / 4),
            query: MemoryPool::new("query", rest - rest / 4),
        }
    }

    /// An account without limits, for tests and tools.
    pub fn unlimited() -> Self {
        Self {
            limit_bytes: u64::MAX,
            fixed_bytes: 0,
            ingest: MemoryPool::unlimited("ingest"),
            query: MemoryPool::unlimited("query"),
        }
    }

    /// Half of [`MemoryAccount::machine_bytes`].
    pub fn default_limit_bytes() -> u64 {
        Self::machine_bytes() / 2
    }

    /// The memory of the machine, or of the control group if that is smaller, in bytes.
    pub fn machine_bytes() -> u64 {
        available_bytes()
    }

    /// The limit, in bytes.
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// The share of caches and the store, in bytes.
    pub const fn fixed_bytes(&self) -> u64 {
        self.fixed_bytes
    }

    /// The pool of writes.
    pub const fn ingest(&self) -> &MemoryPool {
        &self.ingest
    }

    /// The pool of queries.
    pub const fn query(&self) -> &MemoryPool {
        &self.query
    }
}

/// The size of the fixed parts under a memory limit: as configured, or scaled down proportionally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedShare {
    requested_bytes: u64,
    allowed_bytes: u64,
}

impl FixedShare {
    /// For parts configured to take `requested_bytes` in total, under a limit of all memory.
    pub const fn new(requested_bytes: u64, limit_bytes: u64) -> Self {
        Self {
            requested_bytes,
            allowed_bytes: limit_bytes / 2,
        }
    }

    /// For parts that are never scaled down.
    pub const fn unlimited() -> Self {
        Self::new(0, u64::MAX)
    }

    /// Whether the parts are smaller than configured.
    pub const fn is_reduced(&self) -> bool {
        self.requested_bytes > self.allowed_bytes
    }

    /// The size of all parts together.
    pub fn total_bytes(&self) -> u64 {
        self.requested_bytes.min(self.allowed_bytes)
    }

    /// The size of a part configured to take `bytes`.
    pub fn scale(&self, bytes: u64) -> u64 {
        if !self.is_reduced() {
            return bytes;
        }
        let scaled = u128::from(bytes) * u128::from(self.allowed_bytes) / u128::from(self.requested_bytes);
        u64::try_from(scaled).unwrap_or(bytes)
    }
}

/// The memory of the machine or of the control group, in bytes; 4 GiB if neither can be read.
fn available_bytes() -> u64 {
    const UNKNOWN: u64 = 4 << 30;
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        kib.checked_mul(1024)
    });
    let own = read("/proc/self/cgroup").unwrap_or_default();
    // The value `max` does not parse and means unlimited.
    let group = limit_files(&own)
        .iter()
        .filter_map(|path| read(path)?.trim().parse::<u64>().ok())
        .min();
    machine.into_iter().chain(group).min().unwrap_or(UNKNOWN)
}

/// The files with memory limits of a process's control group and of its ancestors, which limit it too: of cgroup v2,
/// then v1. In a container the root is its own group.
fn limit_files(own: &str) -> Vec<String> {
    let mut files = vec!["/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned()];
    let group = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let mut group = group.unwrap_or_default();
    loop {
        let separator = if group.is_empty() { "" } else { "/" };
        files.push(format!("/sys/fs/cgroup/{group}{separator}memory.max"));
        if group.is_empty() {
            return files;
        }
        group = group.rsplit_once('/').map_or("", |(above, _)| above);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_those_of_the_own_group_and_of_all_above() {
        let v1 = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(
            limit_files("1:name=systemd:/x\n0::/system.slice/oxtsdb.service\n"),
            [
                v1,
                "/sys/fs/cgroup/system.slice/oxtsdb.service/memory.max",
                "/sys/fs/cgroup/system.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(limit_files("0::/\n"), [v1, "/sys/fs/cgroup/memory.max"]);
        assert_eq!(limit_files(""), [v1, "/sys/fs/cgroup/memory.max"]);
    }

    #[test]
    fn account_splits_its_limit_into_pools() {
        let account = MemoryAccount::new(1 << 30, 256 << 20);
        let pools = account.ingest().limit_bytes() + account.query().limit_bytes();
        assert_eq!(pools + account.fixed_bytes() + OVERHEAD_BYTES, 1 << 30);
        assert_eq!(account.ingest().limit_bytes(), pools / 4);
        let share = FixedShare::new(768 << 20, 1 << 30);
        assert!(share.is_reduced());
        assert_eq!(
            (share.scale(768 << 20), share.total_bytes()),
            (512 << 20, 512 << 20)
        );
        assert_eq!(FixedShare::new(100, 1 << 30).scale(100), 100);
        let crowded = MemoryAccount::new(1 << 30, 1 << 30);
        assert!(crowded.query().limit_bytes() >= 128 << 20);
        assert!(MemoryAccount::default_limit_bytes() > MIN_LIMIT_BYTES);
    }
}
