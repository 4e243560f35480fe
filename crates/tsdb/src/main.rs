//! `tsdb`: the command line of OxTSDB.

use std::process::ExitCode;

/// Fewer and larger allocations from the system than the default allocator makes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tsdb_commands::main()
}
