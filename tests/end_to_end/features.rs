//! Each program is built with the same features of other crates, so that a build of one after another compiles none of
//! them a second time.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::ensure;
use oxtsdb_tests::paths;

/// All programs but tests.
const PROGRAMS: [&str; 4] = ["tsdb", "uid-service", "data-service", "oxtsdb-bench"];

/// The crates of others that a build of these packages compiles, with their features.
fn crates(packages: &[&str]) -> anyhow::Result<BTreeSet<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["tree", "--locked", "--edges", "normal,build", "--prefix", "none"])
        .args(["--format", "{p} [{f}]"])
        .current_dir(paths::workspace());
    for package in packages {
        cargo.args(["--package", package]);
    }
    let output = cargo.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout)?;
    let lines = lines.lines().filter(|line| !line.contains(" (/"));
    // Cargo marks what it has printed before.
    let lines = lines.map(|line| line.trim_end_matches(" (*)").replace(" (proc-macro)", ""));
    Ok(lines.collect())
}

#[test]
fn each_program_has_the_features_of_all() -> anyhow::Result<()> {
    let all = crates(&PROGRAMS)?;
    ensure!(all.len() > 100, "{} crates", all.len());
    for program in PROGRAMS {
        let own = crates(&[program])?;
        let others: Vec<_> = own.difference(&all).collect();
        ensure!(
            others.is_empty(),
            "{program} alone is built with other features than all programs; name the features of all in \
             crates/features/Cargo.toml: {others:#?}"
        );
    }
    Ok(())
}
