//! The allocator of the programs: simple writes allocate a string for each name, and this one is faster at that than the system's.
//!
//! A crate of its own, as it is optimized with any program: `use oxtsdb_allocator as _;` in the program's `main.rs`.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
