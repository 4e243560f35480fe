//! Features of other crates that are the same for each program; see `Cargo.toml`. No code.
