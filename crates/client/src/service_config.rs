//! The contract's service config: deadlines and retries by method.
//!
//! Clients in every language load the same `service_config.json`; this client parses the copy that the
//! contract's crate embeds, so that the figures exist once.
//!
//! Source: gRPC's service config (`grpc.service_config.ServiceConfig`) and proposal A6, client retries.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use serde::Deserialize;

/// Deadline and retries of a method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MethodPolicy {
    /// Of a call with all its attempts; `None`: unlimited.
    pub(crate) timeout: Option<Duration>,
    /// Attempts, the first included.
    pub(crate) max_attempts: usize,
    /// Pause before the second attempt.
    pub(crate) initial_backoff: Duration,
    /// Longest pause.
    pub(crate) max_backoff: Duration,
    /// Each pause is this many times as long as the one before.
    pub(crate) multiplier: f32,
}

impl MethodPolicy {
    /// A method without an entry: neither deadline nor retries.
    const NONE: Self = Self {
        timeout: None,
        max_attempts: 1,
        initial_backoff: Duration::ZERO,
        max_backoff: Duration::ZERO,
        multiplier: 1.0,
    };
}

/// When to stop retrying because too many calls fail: gRPC's retry throttling.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Throttling {
    /// Tokens at the start and at most. A failure costs one; retries stop at half of them.
    pub(crate) max_tokens: f32,
    /// Tokens that a success returns.
    pub(crate) token_ratio: f32,
}

/// The policy of a method, as `oxtsdb.data.v1.DataService/Write`.
pub(crate) fn policy(method: &str) -> MethodPolicy {
    CONFIG.methods.get(method).copied().unwrap_or(MethodPolicy::NONE)
}

/// The throttling of retries, which all methods of a client share.
pub(crate) fn throttling() -> Throttling {
    CONFIG.throttling
}

static CONFIG: LazyLock<ServiceConfig> = LazyLock::new(|| {
    // Constant, and parsed by a test.
    parse(oxtsdb_proto::SERVICE_CONFIG).expect("the embedded service config is valid")
});

#[derive(Debug)]
struct ServiceConfig {
    methods: HashMap<String, MethodPolicy>,
    throttling: Throttling,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    method_config: Vec<MethodConfig>,
    retry_throttling: Throttling,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MethodConfig {
    name: Vec<MethodName>,
    timeout: Option<String>,
    retry_policy: Option<RetryPolicy>,
}

#[derive(Deserialize)]
struct MethodName {
    service: String,
    method: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RetryPolicy {
    max_attempts: usize,
    initial_backoff: String,
    max_backoff: String,
    backoff_multiplier: f32,
}

fn parse(text: &str) -> Result<ServiceConfig, String> {
    let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut methods = HashMap::new();
    for config in document.method_config {
        let timeout = config.timeout.as_deref().map(duration).transpose()?;
        let retries = match &config.retry_policy {
            None => MethodPolicy::NONE,
            Some(policy) => MethodPolicy {
                timeout: None,
                max_attempts: policy.max_attempts,
                initial_backoff: duration(&policy.initial_backoff)?,
                max_backoff: duration(&policy.max_backoff)?,
                multiplier: policy.backoff_multiplier,
            },
        };
        for MethodName { service, method } in config.name {
            methods.insert(format!("{service}/{method}"), MethodPolicy { timeout, ..retries });
        }
    }
    Ok(ServiceConfig {
        methods,
        throttling: document.retry_throttling,
    })
}

/// A duration in protobuf's JSON form: `0.02s`.
fn duration(text: &str) -> Result<Duration, String> {
    text.strip_suffix('s')
        .and_then(|seconds| seconds.parse().ok())
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("`{text}` is not a duration"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_config_has_the_policies_of_the_contract() {
        let lookup = policy("oxtsdb.uid.v1.UidService/LookupUids");
        assert_eq!(lookup.max_attempts, 4);
        assert_eq!(lookup.initial_backoff, Duration::from_millis(20));
        assert_eq!(lookup.max_backoff, Duration::from_millis(500));
        assert_eq!(
            policy("oxtsdb.data.v1.DataService/Query").timeout,
            Some(Duration::from_secs(60))
        );
        let stream = policy("oxtsdb.data.v1.DataService/WriteStream");
        assert_eq!((stream.timeout, stream.max_attempts), (None, 1));
        assert!(throttling().max_tokens > 0.0 && throttling().token_ratio > 0.0);
    }

    #[test]
    fn methods_without_an_entry_are_not_retried() {
        assert_eq!(policy("x.Y/Z"), MethodPolicy::NONE);
    }

    #[test]
    fn rejects_durations_without_a_unit() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert!(duration("2").is_err() && duration("-1s").is_err() && duration("s").is_err());
    }
}
