//! See `properties/objects.rs`.

#![no_main]

#[path = "../properties/objects.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
