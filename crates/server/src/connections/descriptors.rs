//! The limit of descriptors: files and sockets that the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Descriptors for the journal, table files and pipes of the stores; fewer if the limit is low.
const RESERVE: u64 = 512;

/// The descriptors of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptors {
    pub(super) limit: u64,
    /// Descriptors that connections must not use.
    pub(super) reserve: u64,
}

impl Descriptors {
    fn new(limit: u64) -> Self {
        let reserve = RESERVE.min(limit / 2);
        Self { limit, reserve }
    }

    pub(super) fn for_connections(self) -> usize {
        usize::try_from(self.limit - self.reserve).unwrap_or(usize::MAX)
    }
}

/// Raises the soft limit to the hard one.
pub(super) fn raise_limit() -> Descriptors {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let mut limit = current;
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit = maximum,
            Err(error) => warn!(%error, "the limit of open files stays as it is"),
        }
    }
    // None: unlimited.
    Descriptors::new(limit.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserves_descriptors_for_files() {
        let connections = |limit| Descriptors::new(limit).for_connections();
        assert_eq!(connections(1024), 512);
        assert_eq!(connections(100), 50);
        assert_eq!(connections(1 << 20), (1 << 20) - 512);
    }

    #[test]
    fn raises_the_soft_limit_to_the_hard_one() {
        let descriptors = raise_limit();
        let limits = getrlimit(Resource::Nofile);
        assert_eq!(limits.current, limits.maximum);
        assert_eq!(descriptors.limit, limits.current.unwrap_or(u64::MAX));
    }
}
