//! The identity of this program, and of the machine that it runs on.

use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of OpenTSDB that HTTP and telnet behave like.
pub(crate) const OPENTSDB_VERSION: &str = "2.4.1";

/// The revision that was built: the checkout's in a release build, or the value that the build sets,
/// `OXTSDB_REVISION=$(git rev-parse HEAD)`.
pub(crate) const REVISION: Option<&str> = option_env!("OXTSDB_REVISION");

/// When it was built, if the build sets it: `OXTSDB_BUILD_TIME=$(date -u +%FT%TZ)`.
const BUILD_TIME: &str = match option_env!("OXTSDB_BUILD_TIME") {
    Some(time) => time,
    None => "an unknown date",
};

/// The two lines of OpenTSDB's `version`.
pub(crate) fn version_text() -> String {
    version_lines(REVISION)
}

fn version_lines(revision: Option<&str>) -> String {
    let built_at = revision.map(|revision| format!(" built at revision {revision}"));
    let built_at = built_at.unwrap_or_default();
    format!("oxtsdb {VERSION} (OpenTSDB {OPENTSDB_VERSION}){built_at}\nBuilt on {BUILD_TIME}\n")
}

/// The time of the process's first call, in milliseconds since the epoch, and the time since then. A server calls it
/// when it starts.
pub(crate) fn started() -> (u64, Duration) {
    static STARTED: LazyLock<(SystemTime, Instant)> = LazyLock::new(|| (SystemTime::now(), Instant::now()));
    let since_epoch = STARTED.0.duration_since(UNIX_EPOCH).unwrap_or_default();
    let milliseconds = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
    (milliseconds, STARTED.1.elapsed())
}

/// The name of this machine.
pub(crate) fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let name: String = read
            .trim()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
            .collect();
        if name.is_empty() {
            "localhost".to_owned()
        } else {
            name
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_names_no_unknown_revision() {
        let first = |revision| version_lines(revision).lines().next().map(str::to_owned).unwrap();
        let program = format!("oxtsdb {VERSION} (OpenTSDB {OPENTSDB_VERSION})");
        assert_eq!(first(None), program);
        assert_eq!(
            first(Some("abc123")),
            format!("{program} built at revision abc123")
        );
        assert_eq!(version_lines(None).lines().count(), 2);
    }
}
