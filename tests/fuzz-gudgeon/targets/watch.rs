//! See `sources::properties`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sources::properties::watch(bytes));
