//! Environment variables with our prefix that no setting has.

use std::collections::BTreeSet;

use clap::{Arg, Command};

use super::file::nearest;

const PREFIX: &str = "OXTSDB_";

/// A warning for each of the variables `names` that starts with `OXTSDB_` and belongs to no argument of `program` and
/// its commands. Values are left out: a variable may have a secret.
pub fn unknown_variables(program: &Command, names: impl Iterator<Item = String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    collect_variables(program, &mut known);
    let is_unknown =
        |name: &String| name.starts_with(PREFIX) && !known.contains(name) && !is_service_link(name);
    let unknown: BTreeSet<String> = names.filter(is_unknown).collect();
    let without_prefix = |name: &String| name.trim_start_matches(PREFIX).to_owned();
    let warning = |name: String| match nearest(&without_prefix(&name), known.iter().map(without_prefix)) {
        Some(similar) => format!("variable {name} is not a setting, did you mean {PREFIX}{similar}?"),
        None => format!("variable {name} is not a setting"),
    };
    unknown.into_iter().map(warning).collect()
}

fn collect_variables(command: &Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(Arg::get_env);
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for inner in command.get_subcommands() {
        collect_variables(inner, known);
    }
}

/// Whether Kubernetes may have set the variable for a Service named `oxtsdb-…`.
fn is_service_link(name: &str) -> bool {
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_unknown_variables_and_suggests_similar_ones() {
        let serve = Command::new("serve").arg(Arg::new("data_dir").long("data-dir").env("OXTSDB_DATA_DIR"));
        let query = Command::new("query").arg(Arg::new("target").long("target").env("OXTSDB_TARGET"));
        let program = Command::new("tsdb").subcommand(serve).subcommand(query);
        let warnings =
            |names: &[&str]| unknown_variables(&program, names.iter().map(|&name| name.to_owned()));
        assert_eq!(
            warnings(&[
                "OXTSDB_DATA_DRI",
                "OXTSDB_DATA_DIR",
                "OXTSDB_TARGET",
                "OXTSDB_ZZZ",
                "HOME"
            ]),
            [
                "variable OXTSDB_DATA_DRI is not a setting, did you mean OXTSDB_DATA_DIR?",
                "variable OXTSDB_ZZZ is not a setting"
            ]
        );
        // Of Kubernetes.
        assert_eq!(
            warnings(&[
                "OXTSDB_PORT",
                "OXTSDB_SERVICE_HOST",
                "OXTSDB_DATA_PORT_4243_TCP_ADDR"
            ]),
            [""; 0]
        );
    }
}
