#![expect(clippy::unwrap_used, reason = "tests")]
//! `service_config.json` agrees with the contract: every method has an entry, and retries follow the
//! idempotency levels.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use prost_types::FileDescriptorSet;
use prost_types::method_options::IdempotencyLevel;
use serde_json::{Value, json};

/// A method of the contract.
struct Method {
    /// `package.service/method`.
    name: String,
    is_idempotent: bool,
    /// Whether the server streams its responses.
    is_streaming: bool,
    /// Whether the client streams its requests.
    is_client_streaming: bool,
}

fn methods() -> Vec<Method> {
    let files = FileDescriptorSet::decode(oxtsdb_proto::FILE_DESCRIPTOR_SET)
        .unwrap()
        .file;
    let mut methods = Vec::new();
    for file in files {
        for service in &file.service {
            for method in &service.method {
                let level = method.options.as_ref().map(|options| options.idempotency_level());
                methods.push(Method {
                    name: format!("{}.{}/{}", file.package(), service.name(), method.name()),
                    is_idempotent: level.is_some_and(|level| level != IdempotencyLevel::IdempotencyUnknown),
                    is_streaming: method.server_streaming(),
                    is_client_streaming: method.client_streaming(),
                });
            }
        }
    }
    methods
}

fn config() -> Value {
    serde_json::from_str(oxtsdb_proto::SERVICE_CONFIG).unwrap()
}

/// The entry of each method.
fn entries() -> BTreeMap<String, Value> {
    let mut entries = BTreeMap::new();
    for entry in config()["methodConfig"].as_array().unwrap() {
        for name in entry["name"].as_array().unwrap() {
            let (service, method) = (&name["service"], &name["method"]);
            let name = format!("{}/{}", service.as_str().unwrap(), method.as_str().unwrap());
            let previous = entries.insert(name.clone(), entry.clone());
            assert!(previous.is_none(), "{name} has two entries");
        }
    }
    entries
}

/// A duration in seconds, as `"0.5s"`.
fn seconds(duration: &Value) -> f64 {
    duration
        .as_str()
        .unwrap()
        .strip_suffix('s')
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
fn every_method_has_an_entry() {
    let named: BTreeSet<String> = entries().into_keys().collect();
    let all: BTreeSet<String> = methods().into_iter().map(|method| method.name).collect();
    assert_eq!(named, all);
}

#[test]
fn idempotent_methods_are_retried_and_no_others() {
    let entries = entries();
    let retried = entries
        .iter()
        .filter(|(_, entry)| entry.get("retryPolicy").is_some())
        .map(|(name, _)| name.clone());
    let idempotent = methods()
        .into_iter()
        .filter(|method| method.is_idempotent)
        .map(|method| method.name);
    assert_eq!(
        retried.collect::<BTreeSet<_>>(),
        idempotent.collect::<BTreeSet<_>>()
    );
}

#[test]
fn retries_follow_unavailable_alone_within_the_timeout() {
    for (name, entry) in entries() {
        let Some(policy) = entry.get("retryPolicy") else {
            continue;
        };
        assert_eq!(policy["retryableStatusCodes"], json!(["UNAVAILABLE"]), "{name}");
        // gRPC caps attempts at 5.
        let attempts = policy["maxAttempts"].as_u64().unwrap();
        assert!((2..=5).contains(&attempts), "{name}: {attempts} attempts");
        let (initial, max) = (seconds(&policy["initialBackoff"]), seconds(&policy["maxBackoff"]));
        let multiplier = policy["backoffMultiplier"].as_f64().unwrap();
        assert!(initial > 0.0 && initial <= max, "{name}: {initial} to {max} s");
        assert!(multiplier >= 1.0, "{name}: {multiplier}");
        // Watches have no end.
        let Some(timeout) = entry.get("timeout").map(seconds) else {
            continue;
        };
        #[expect(clippy::cast_precision_loss, reason = "at most 5 attempts")]
        let pauses = max * (attempts - 1) as f64;
        assert!(pauses < timeout, "{name}: pauses of {pauses} s in {timeout} s");
    }
}

/// 60 seconds is also the server's limit until a response begins (common.proto).
#[test]
fn unary_calls_have_10_seconds_and_streams_of_results_60() {
    let entries = entries();
    for method in methods() {
        let timeout = entries[&method.name].get("timeout").map(seconds);
        let stays_open = method.is_client_streaming || method.name.contains("/Watch");
        let expected = match method.is_streaming {
            _ if stays_open => None,
            false => Some(10.0),
            true => Some(60.0),
        };
        assert_eq!(timeout, expected, "{}", method.name);
    }
}

#[test]
fn retries_have_a_budget_and_calls_use_all_addresses() {
    let config = config();
    let throttling = &config["retryThrottling"];
    let max_tokens = throttling["maxTokens"].as_f64().unwrap();
    let token_ratio = throttling["tokenRatio"].as_f64().unwrap();
    // The limits of gRPC's proposal A6.
    assert!(max_tokens > 0.0 && max_tokens <= 1000.0, "{max_tokens}");
    assert!(token_ratio > 0.0, "{token_ratio}");
    assert_eq!(config["loadBalancingConfig"], json!([{ "round_robin": {} }]));
}
