//! Types and tables from every `.proto` file under `proto`: a new kind is a new file there, and nothing here.
//!
//! Each message gets a table of its fields (`schema`), by which text is read with paths in its errors and the wire is read
//! and written. Some get a type of prost's besides (`typed`). The compiler of the files is protox, so that no machine needs
//! protoc.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a build script talks to cargo, and says why it cannot go on"
)]

mod modules;
mod schema;
mod typed;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use prost_types::FileDescriptorSet;

/// The package of Google's well-known types: their JSON is special, so that the tables leave them out.
const WELL_KNOWN: &str = "google.protobuf";

fn main() {
    let root = Path::new("proto");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=build");

    let mut files = Vec::new();
    collect(root, &mut files);
    files.sort();
    let set = protox::compile(&files, [root]).unwrap_or_else(|error| panic!("{error:?}"));
    let types = typed::only(&set, &typed::TYPED);

    prost_build::Config::new()
        // Google's types are generated like all others, and taken from no crate.
        .compile_well_known_types()
        .bytes([".google.protobuf.Any"])
        // Equal input, equal bytes.
        .btree_map(["."])
        .compile_fds(types.clone())
        .expect("the messages are generated");
    let modules = modules::tree(&packages(&types));
    fs::write(out.join("modules.rs"), modules).expect("modules.rs is written");
    fs::write(out.join("schema.rs"), schema::tables(&set)).expect("schema.rs is written");
}

fn packages(set: &FileDescriptorSet) -> BTreeSet<String> {
    set.file
        .iter()
        .map(|file| file.package().to_owned())
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is listed") {
        let path = entry.expect("the folder is listed").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            files.push(path);
        }
    }
}
