//! Compiles the contract without `protoc`: generated types, the descriptor set for reflection, and the
//! bounds and the methods of requests, and the servers.

mod bounds;
mod rpc;
mod server;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    // Of this run: a target folder may be shared by several clones.
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?);
    let mut files = Vec::new();
    proto_files(&root.join("oxtsdb"), &mut files)?;
    files.sort();

    let mut compiler = protox::Compiler::new([&root])?;
    compiler
        .include_source_info(true)
        .include_imports(true)
        .open_files(&files)?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    // With the options of fields, which the types of prost drop.
    fs::write(out.join("oxtsdb.fds"), compiler.encode_file_descriptor_set())?;
    let pool = compiler.descriptor_pool();
    fs::write(out.join("bounds.rs"), bounds::generate(&pool)?)?;
    fs::write(out.join("rpc.rs"), rpc::generate(&pool)?)?;

    let mut files = compiler.file_descriptor_set();
    // prost does not pack the numbers of a field that has any option, such as its bound; proto3 does.
    let proto3 = files.file.iter_mut().filter(|file| file.syntax() == "proto3");
    let mut messages: Vec<_> = proto3.flat_map(|file| &mut file.message_type).collect();
    while let Some(message) = messages.pop() {
        let fields = message.field.iter_mut();
        for options in fields.filter_map(|field| field.options.as_mut()) {
            options.packed.get_or_insert(true);
        }
        messages.extend(&mut message.nested_type);
    }

    let mut config = prost_build::Config::new();
    let clients = tonic_prost_build::configure()
        .build_server(false)
        .service_generator();
    config
        .bytes(["."])
        // The codec finds the bounds of a message by its name.
        .enable_type_names()
        .include_file("mod.rs")
        .service_generator(Box::new(server::Servers { clients }))
        .compile_fds(files)?;
    println!("cargo:rerun-if-changed=oxtsdb");
    println!("cargo:rerun-if-changed=build");
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
