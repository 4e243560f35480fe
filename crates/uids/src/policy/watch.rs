//! The policy in use, and reading its file again when it changes.
//!
//! A file that is wrong at the start ends the start. If it becomes wrong later, the service logs the error once and
//! keeps the policy in use: a typing error must neither reject all new names nor allow all of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use oxtsdb_schema::UidKind;
use parking_lot::{Mutex, RwLock};
use tracing::{info, warn};

use super::file::MAX_BYTES;
use super::{Policy, PolicyFileError};

/// Where the policy comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySource {
    /// The rules file.
    pub file: Option<PathBuf>,
    /// The setting of each kind with patterns that all names must contain, and its value.
    pub whitelists: Vec<(UidKind, &'static str, String)>,
    /// The separator of the patterns in a whitelist.
    pub delimiter: String,
}

/// The policy in use. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LivePolicy(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    source: PolicySource,
    policy: RwLock<Arc<Policy>>,
    /// The version of the file that was read last.
    read: Mutex<Option<Version>>,
}

/// Identifies a version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    modified: Option<SystemTime>,
    bytes: u64,
}

impl LivePolicy {
    /// Reads the policy.
    ///
    /// # Errors
    ///
    /// The file, or a pattern of a setting, is wrong.
    pub fn load(source: PolicySource) -> Result<Self, PolicyFileError> {
        let (policy, version) = read(&source)?;
        Ok(Self(Arc::new(Inner {
            source,
            policy: RwLock::new(Arc::new(policy)),
            read: Mutex::new(version),
        })))
    }

    /// The policy in use.
    pub fn get(&self) -> Arc<Policy> {
        Arc::clone(&self.0.policy.read())
    }

    /// Reads the file again if it has changed. Blocks: it reads a file.
    ///
    /// Returns whether another policy is in use now.
    pub(crate) fn reload(&self) -> bool {
        let Some(path) = &self.0.source.file else {
            return false;
        };
        let mut read_version = self.0.read.lock();
        let file_version = version(path);
        if file_version.is_some() && file_version == *read_version {
            return false;
        }
        let known = std::mem::replace(&mut *read_version, file_version);
        match read(&self.0.source) {
            Ok((policy, version)) => {
                *self.0.policy.write() = Arc::new(policy);
                *read_version = version;
                info!(file = %path.display(), "read the assignment rules again");
                true
            }
            // An absent file is looked for each time, and logged once.
            Err(error) => {
                if known.is_some() || file_version.is_some() {
                    warn!(file = %path.display(), %error, "kept the old assignment rules: the new ones are wrong");
                }
                false
            }
        }
    }
}

fn read(source: &PolicySource) -> Result<(Policy, Option<Version>), PolicyFileError> {
    let (mut policy, version) = match &source.file {
        Some(path) => {
            let version = version(path);
            let (text, bytes) = read_file(path)?;
            let policy = Policy::parse(&text).map_err(|error| named(path, error))?;
            // Of a file that changes while it is read, the next reload reads the rest.
            (policy, version.filter(|version| version.bytes == bytes))
        }
        None => (Policy::default(), None),
    };
    for (kind, setting, patterns) in &source.whitelists {
        policy.add_whitelist(*kind, setting, patterns, &source.delimiter)?;
    }
    Ok((policy, version))
}

fn read_file(path: &Path) -> Result<(String, u64), PolicyFileError> {
    use std::io::Read as _;

    let unreadable =
        |error: &dyn std::fmt::Display| PolicyFileError::Unreadable(format!("{}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    let mut text = String::new();
    file.take(MAX_BYTES as u64 + 1)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(&error))?;
    if text.len() > MAX_BYTES {
        return Err(unreadable(&format_args!("is larger than {MAX_BYTES} bytes")));
    }
    let bytes = text.len() as u64;
    Ok((text, bytes))
}

fn named(path: &Path, error: PolicyFileError) -> PolicyFileError {
    match error {
        PolicyFileError::Toml(message) => PolicyFileError::Toml(format!("{}: {message}", path.display())),
        PolicyFileError::Entry { entry, field, rule } => PolicyFileError::Entry {
            entry: format!("{}: {entry}", path.display()),
            field,
            rule,
        },
        error @ PolicyFileError::Unreadable(_) => error,
    }
}

fn version(path: &Path) -> Option<Version> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(Version {
        modified: metadata.modified().ok(),
        bytes: metadata.len(),
    })
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::Name;

    use super::*;

    fn allows(live: &LivePolicy) -> bool {
        let name = Name::from_stored(b"x").unwrap();
        live.get().check(UidKind::Metric, &name, None).is_ok()
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_wrong_one_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let source = PolicySource {
            file: Some(path.clone()),
            ..PolicySource::default()
        };
        let missing = LivePolicy::load(source.clone()).unwrap_err().to_string();
        assert!(missing.contains("rules.toml: "), "{missing}");
        std::fs::write(&path, "[[rule]]\naction='deny'").unwrap();
        let live = LivePolicy::load(source).unwrap();
        assert!(!allows(&live));
        assert!(!live.reload(), "unchanged");
        std::fs::write(&path, "# none").unwrap();
        assert!(live.reload());
        assert!(allows(&live));
        std::fs::write(&path, "[[rule]]\naction='denied'").unwrap();
        assert!(!live.reload());
        assert!(allows(&live), "the old rules are kept");
        std::fs::remove_file(&path).unwrap();
        assert!(!live.reload());
        assert!(allows(&live));
        std::fs::write(&path, "[[rule]]\naction=\"deny\"").unwrap();
        assert!(live.reload());
        assert!(!allows(&live));
    }
}
