//! How much the long tests do.

use anyhow::Context as _;

/// The value of a variable, or the default.
///
/// # Errors
///
/// If it is not a number.
pub fn from_environment(variable: &str, usual: usize) -> anyhow::Result<usize> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}: `{text}`")),
        Err(_not_set) => Ok(usual),
    }
}
