//! `tsdb`: the command line of OxTSDB.

use std::process::ExitCode;

use oxtsdb_allocator as _;

fn main() -> ExitCode {
    tsdb_commands::main()
}
