//! See `properties/consul.rs`. The parser comes by its files: the crate that they are part of would bring all of Kubernetes.

#![no_main]

#[allow(dead_code, reason = "the source needs more of it")]
#[path = "../../../src/sources/consul/convert.rs"]
mod convert;
#[allow(dead_code, reason = "the source needs more of it")]
#[path = "../../../src/sources/error_text.rs"]
mod error_text;
#[path = "../properties/consul.rs"]
mod property;
#[allow(dead_code, reason = "the source needs more of it")]
#[path = "../../../src/sources/consul/wire.rs"]
mod wire;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
