//! See `properties/mesh_config.rs`.

#![no_main]

#[path = "../properties/mesh_config.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
