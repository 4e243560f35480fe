//! Compiles the contract without `protoc`, and keeps its descriptor set for reflection.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    // Of this run: a target folder may be shared by several clones.
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?);
    let mut files = Vec::new();
    proto_files(&root.join("oxtsdb"), &mut files)?;
    files.sort();

    let descriptors = protox::compile(&files, [&root])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    fs::write(out.join("oxtsdb.fds"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::bounded_codec::BoundedCodec")
        .include_file("mod.rs")
        .compile_fds(descriptors)?;
    println!("cargo:rerun-if-changed=oxtsdb");
    Ok(())
}

fn proto_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            proto_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
