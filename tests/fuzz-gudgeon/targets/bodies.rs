//! See `properties/bodies.rs`.

#![no_main]

#[path = "../properties/bodies.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
