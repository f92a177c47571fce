//! See `properties/template_output.rs`.

#![no_main]

#[allow(dead_code, reason = "not every target needs all of it")]
#[path = "../properties/injection.rs"]
mod injection;
#[path = "../properties/template_output.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
