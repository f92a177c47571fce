//! See `pintle::properties`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pintle::properties::check("request", bytes));
