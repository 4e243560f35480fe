//! Cargo builds the build-dependencies of a package only if it has a build script.

fn main() {}
