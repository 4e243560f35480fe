//! Files of a crate use each other's items in one direction.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use oxtsdb_tests::circles::{Edge, circles, edges};
use oxtsdb_tests::paths;
use serde_json::Value;

use super::layers;

/// The files of a package's library and programs, below the root of the workspace.
fn roots(package: &Value) -> Vec<PathBuf> {
    let is_part = |target: &&Value| {
        let kinds = target["kind"].as_array().unwrap();
        kinds.iter().any(|kind| kind == "lib" || kind == "bin")
    };
    let targets = package["targets"].as_array().unwrap().iter();
    let files = targets.filter(is_part).map(|target| {
        let file = Path::new(target["src_path"].as_str().unwrap());
        file.strip_prefix(paths::workspace()).unwrap().to_owned()
    });
    files.collect()
}

fn edges_of(package: &Value) -> Vec<Edge> {
    let read = |path: &Path| fs::read_to_string(paths::workspace().join(path)).ok();
    edges(&roots(package), &read).unwrap()
}

/// See [`oxtsdb_tests::circles`] for the edges and circles that count.
#[test]
fn files_of_a_crate_form_no_circle() {
    let metadata = layers::metadata();
    let mut report = String::new();
    for package in metadata["packages"].as_array().unwrap() {
        for circle in circles(&edges_of(package)) {
            let name = package["name"].as_str().unwrap();
            let count = circle.edges.len();
            report += &format!("{name}: {count} edges, the shortest circle first\n{circle}\n");
        }
    }
    assert!(report.is_empty(), "files that use each other:\n\n{report}");
}

/// An analysis that resolves nothing would find no circles either.
#[test]
fn uses_of_the_query_engine_are_found() {
    let metadata = layers::metadata();
    let mut packages = metadata["packages"].as_array().unwrap().iter();
    let query = packages
        .find(|package| package["name"] == "oxtsdb-query")
        .unwrap();
    let edges = edges_of(query);
    let has = |from: &str, to: &str, item: &str| {
        edges.iter().any(|edge| {
            edge.from.ends_with(from)
                && edge.to.ends_with(to)
                && edge.items.iter().any(|(name, _)| name == item)
        })
    };
    assert!(edges.len() > 300, "{} edges", edges.len());
    assert!(has("plan/rollup.rs", "rollup/error.rs", "RollupChoiceError"));
    assert!(has(
        "exec/sub_query.rs",
        "exec/aggregation.rs",
        "AggregationContext"
    ));
    assert!(!has("error.rs", "plan/rollup.rs", "RollupChoiceError"));
}
