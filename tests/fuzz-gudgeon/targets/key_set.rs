//! See `properties/key_set.rs`.

#![no_main]

#[path = "../properties/key_set.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
