#![expect(clippy::unwrap_used, reason = "tests")]
//! `service_config.json`, with which clients of gRPC retry, knows the methods of the contract.

use std::collections::BTreeSet;

use prost::Message as _;
use prost_types::FileDescriptorSet;
use prost_types::method_options::IdempotencyLevel;
use serde_json::Value;

/// `service/method` of each method, and whether a second call does what one does.
fn methods() -> Vec<(String, bool)> {
    let files = FileDescriptorSet::decode(oxtsdb_proto::FILE_DESCRIPTOR_SET)
        .unwrap()
        .file;
    let mut methods = Vec::new();
    for file in files {
        for service in &file.service {
            for method in &service.method {
                let name = format!("{}.{}/{}", file.package(), service.name(), method.name());
                let level = method.options.as_ref().map(|options| options.idempotency_level());
                let is_safe = level.is_some_and(|level| level != IdempotencyLevel::IdempotencyUnknown);
                methods.push((name, is_safe));
            }
        }
    }
    methods
}

#[test]
fn what_may_be_asked_twice_is_retried() {
    let config: Value = serde_json::from_str(oxtsdb_proto::SERVICE_CONFIG).unwrap();
    let (mut named, mut retried) = (BTreeSet::new(), BTreeSet::new());
    for entry in config["methodConfig"].as_array().unwrap() {
        for name in entry["name"].as_array().unwrap() {
            let name = format!(
                "{}/{}",
                name["service"].as_str().unwrap(),
                name["method"].as_str().unwrap()
            );
            if entry.get("retryPolicy").is_some() {
                retried.insert(name.clone());
            }
            assert!(named.insert(name.clone()), "{name} is there twice");
        }
    }
    let methods = methods();
    let all: BTreeSet<String> = methods.iter().map(|(name, _)| name.clone()).collect();
    let unknown: Vec<&String> = named.difference(&all).collect();
    assert!(unknown.is_empty(), "no methods: {unknown:?}");
    for (name, is_safe) in methods {
        assert!(!is_safe || retried.contains(&name), "{name} is not retried");
    }
}
