//! See `properties/node.rs`.

#![no_main]

#[path = "../properties/node.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
