//! See `properties/rules.rs`.

#![no_main]

#[path = "../properties/rules.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
