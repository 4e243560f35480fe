//! Which program this is, and on which machine it runs.

use std::sync::OnceLock;

/// The version of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of OpenTSDB that HTTP and telnet behave like.
pub(crate) const OPENTSDB_VERSION: &str = "2.4.1";

/// The revision that was built, if the build sets it: `OXTSDB_REVISION=$(git rev-parse HEAD)`.
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
