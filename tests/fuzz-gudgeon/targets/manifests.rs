//! See `properties/manifests.rs`. The parser comes by its files: the program that they are part of would bring all of
//! Kubernetes.

#![no_main]

#[path = "../properties/configuration.rs"]
mod configuration;
#[allow(dead_code, reason = "the program needs more of it")]
#[path = "../../../src/gudgeon/injector/engine.rs"]
mod engine;
#[path = "../properties/manifests.rs"]
mod property;
#[allow(dead_code, reason = "the program needs more of it")]
#[path = "../../../src/gudgeon/manifest/documents.rs"]
mod documents;
#[allow(dead_code, reason = "the program needs more of it")]
#[path = "../../../src/gudgeon/manifest/input.rs"]
mod input;
#[allow(dead_code, reason = "the program needs more of it")]
#[path = "../../../src/gudgeon/manifest/job.rs"]
mod job;
#[allow(dead_code, reason = "the program needs more of it")]
#[path = "../../../src/gudgeon/manifest/kinds.rs"]
mod kinds;
#[allow(dead_code, reason = "the program needs more of it")]
#[path = "../../../src/gudgeon/manifest/out.rs"]
mod out;
#[allow(dead_code, reason = "the program needs more of it")]
#[path = "../../../src/gudgeon/manifest/writer.rs"]
mod writer;
#[allow(dead_code, reason = "the program needs more of it")]
#[path = "../../../src/gudgeon/admission/object.rs"]
mod object;

mod admission {
    pub(crate) use crate::object::strict;
}

// The property gives texts, so no file is opened: the program's own way there would bring all of Kubernetes.
mod file {
    pub(crate) fn open_named(_: &std::path::Path) -> std::io::Result<std::fs::File> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

mod injector {
    pub(crate) use crate::engine::ActiveConfiguration;
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
