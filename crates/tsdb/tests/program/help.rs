//! The help texts that people read first, as snapshots: a change to them is read with the change that causes it.
//!
//! `INSTA_UPDATE=always cargo test -p tsdb --test program help` writes the snapshots anew.

use crate::harness::{run, tsdb};

#[track_caller]
fn snapshot(name: &str, arguments: &[&str]) {
    // Without a terminal the width is always the same. Help shows the values of variables.
    let mut command = tsdb(arguments);
    insta::assert_snapshot!(name, run(command.env_remove("OXTSDB_ADMIN_LISTEN")).ok());
}

#[test]
fn help_of_the_program() {
    snapshot("tsdb", &["--help"]);
}

#[test]
fn help_of_serve() {
    snapshot("serve", &["serve", "--help"]);
}

#[test]
fn help_of_query() {
    snapshot("query", &["query", "--help"]);
}
