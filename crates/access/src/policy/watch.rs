//! The policy in use, and reading its file again when it changes.
//!
//! A file that is wrong at the start ends the start. If it becomes wrong later, the server logs the error once and
//! keeps the policy in use.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tracing::{info, warn};

use super::file::MAX_BYTES;
use super::{Policy, PolicyError};
use crate::text_file::{self, Version};

/// The policy in use.
#[derive(Debug)]
pub(crate) struct LivePolicy {
    path: PathBuf,
    policy: RwLock<Arc<Policy>>,
    read: Mutex<Option<Version>>,
}

impl LivePolicy {
    /// Reads the policy.
    pub(crate) fn load(path: PathBuf) -> Result<Self, PolicyError> {
        let (policy, version) = read(&path)?;
        Ok(Self {
            policy: RwLock::new(Arc::new(policy)),
            read: Mutex::new(version),
            path,
        })
    }

    /// The policy in use.
    pub(crate) fn get(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.read())
    }

    /// Reads the file again if it has changed. Blocks: it reads a file. Returns whether another policy is in use now.
    pub(crate) fn reload(&self) -> bool {
        let mut known = self.read.lock();
        let current_version = text_file::version(&self.path);
        if current_version == *known {
            return false;
        }
        let file = self.path.display();
        match read(&self.path) {
            Ok((policy, version)) => {
                *self.policy.write() = Arc::new(policy);
                *known = version;
                info!(%file, "read the policy again");
                true
            }
            Err(error) => {
                *known = current_version;
                warn!(%file, %error, "kept the old policy: the new one is wrong");
                false
            }
        }
    }
}

fn read(path: &std::path::Path) -> Result<(Policy, Option<Version>), PolicyError> {
    let of_file = |error: String| PolicyError::File(format!("{}: {error}", path.display()));
    let (text, version) = text_file::read(path, MAX_BYTES).map_err(of_file)?;
    let policy = Policy::parse(&text).map_err(|error| of_file(error.to_string()))?;
    Ok((policy, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_changed_file_again_and_keeps_the_policy_if_it_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml");
        let missing = LivePolicy::load(path.clone()).unwrap_err().to_string();
        assert!(missing.contains("policy.toml: "), "{missing}");
        std::fs::write(&path, "telnet = 'loopback'").unwrap();
        let live = LivePolicy::load(path.clone()).unwrap();
        assert!(live.get().serves_telnet());
        assert!(!live.reload(), "unchanged");
        std::fs::write(&path, "telnet = 'off'").unwrap();
        assert!(live.reload());
        assert!(!live.get().serves_telnet());
        std::fs::write(&path, "telnet = 'anywhere'").unwrap();
        assert!(!live.reload());
        assert!(!live.get().serves_telnet(), "the old policy is kept");
        std::fs::remove_file(&path).unwrap();
        assert!(!live.reload());
        std::fs::write(&path, "telnet = 'loopback' # again").unwrap();
        assert!(live.reload());
        assert!(live.get().serves_telnet());
    }
}
