//! `/api/version`: which program this is.
//!
//! The keys are OpenTSDB's. `version` is the version of OpenTSDB whose API this is, because clients
//! look there to know what they may ask for; the program's own version is `oxtsdb_version`.
//!
//! Source: OpenTSDB 2.4, `BuildData`, `HttpJsonSerializer.formatVersionV1`.

use std::sync::OnceLock;

use crate::http::json;

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of OpenTSDB that HTTP and telnet behave like.
pub(crate) const OPENTSDB_VERSION: &str = "2.4.1";

/// The revision that was built, if the build was told: `OXTSDB_REVISION=$(git rev-parse HEAD)`.
pub(crate) const REVISION: &str = match option_env!("OXTSDB_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

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

/// The answer.
pub(crate) fn body() -> Vec<u8> {
    let mut out = Vec::new();
    json::write_map(
        &mut out,
        [
            ("short_revision", REVISION.get(..7).unwrap_or(REVISION)),
            ("repo", "oxtsdb"),
            ("host", host()),
            ("version", OPENTSDB_VERSION),
            ("full_revision", REVISION),
            ("repo_status", ""),
            ("user", ""),
            ("branch", ""),
            ("timestamp", ""),
            ("oxtsdb_version", VERSION),
        ],
    );
    out
}
