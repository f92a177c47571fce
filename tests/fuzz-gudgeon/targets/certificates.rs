//! See `properties/certificates.rs`. The parser of files comes by its file: the program that it is part of would bring all roles.

#![no_main]

#[allow(dead_code, reason = "the program needs more of it")]
#[path = "../../../src/gudgeon/tls/pair.rs"]
mod pair;
#[path = "../properties/certificates.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
