//! The picture of the layers in ARCHITECTURE.md holds: a crate depends only on crates of the lines below
//! its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use oxtsdb_tests::paths;
use serde_json::Value;

/// The line of the picture that has a crate, counted from the top.
type Layers = BTreeMap<String, usize>;

/// Reads the block `text layers` of a document: one line for each layer, the topmost first.
fn layers(document: &str) -> Layers {
    let (_, block) = document.split_once("```text layers\n").expect("a picture");
    let (block, _) = block.split_once("```").unwrap();
    let mut layers = Layers::new();
    for (layer, line) in block.lines().enumerate() {
        for name in line.split_whitespace() {
            let before = layers.insert(name.to_owned(), layer);
            assert_eq!(before, None, "{name} is in the picture once");
        }
    }
    layers
}

/// Cargo's description of the workspace's packages.
pub(crate) fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(paths::workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The crates of the workspace with their dependencies, without dev-dependencies.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let dependencies = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| text(&dependency["name"]))
            .collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| (text(&package["name"]), dependencies(package)))
        .collect()
}

/// Dependencies that differ between the picture and the crates.
fn violations(layers: &Layers, dependencies: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut violations = Vec::new();
    for name in layers.keys().filter(|name| !dependencies.contains_key(*name)) {
        violations.push(format!("{name} is in the picture, but not in the workspace"));
    }
    for (name, dependencies) in dependencies {
        let Some(layer) = layers.get(name) else {
            violations.push(format!("{name} is not in the picture"));
            continue;
        };
        for dependency in dependencies {
            if layers.get(dependency).is_some_and(|below| below <= layer) {
                violations.push(format!("{name} depends on {dependency}, which is not below it"));
            }
        }
    }
    violations
}

#[test]
fn crates_depend_on_lower_layers_only() {
    let document = std::fs::read_to_string(paths::workspace().join("ARCHITECTURE.md")).unwrap();
    let violations = violations(&layers(&document), &dependencies());
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn violations_name_crate_and_dependency() {
    let layers = layers("```text layers\ntop   other\nlow\ngone\n```\n");
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let dependencies = BTreeMap::from([
        ("top".to_owned(), set(&["low", "other", "serde"])),
        ("other".to_owned(), set(&["low"])),
        ("low".to_owned(), set(&["top"])),
        ("new".to_owned(), set(&[])),
    ]);
    assert_eq!(
        violations(&layers, &dependencies),
        [
            "gone is in the picture, but not in the workspace",
            "low depends on top, which is not below it",
            "new is not in the picture",
            "top depends on other, which is not below it",
        ]
    );
}

#[test]
fn query_engine_knows_no_transport_and_no_settings() {
    const EXCLUDED: [&str; 12] = [
        "axum",
        "clap",
        "http",
        "http-body-util",
        "hyper",
        "hyper-util",
        "oxtsdb-proto",
        "oxtsdb-server",
        "prost",
        "prost-types",
        "tonic",
        "tonic-types",
    ];
    let query = &dependencies()["oxtsdb-query"];
    let excluded = EXCLUDED.iter().filter(|name| query.contains(**name));
    assert_eq!(excluded.collect::<Vec<_>>(), Vec::<&&str>::new());
}
