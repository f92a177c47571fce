//! See `properties/access_list.rs`.

#![no_main]

#[path = "../properties/access_list.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
