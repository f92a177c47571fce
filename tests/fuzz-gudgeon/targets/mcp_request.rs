//! See `properties/mcp.rs`.

#![no_main]

#[path = "../properties/mcp.rs"]
#[allow(dead_code)]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check_requests(bytes));
