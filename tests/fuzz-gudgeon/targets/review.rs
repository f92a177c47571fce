//! See `properties/review.rs`. The parser comes by its file: the program that it is part of would bring all of Kubernetes.

#![no_main]

#[path = "../properties/configuration.rs"]
mod configuration;
#[path = "../../../src/gudgeon/admission/details.rs"]
mod details;
#[path = "../../../src/gudgeon/admission/group.rs"]
mod group;
#[path = "../../../src/gudgeon/admission/object.rs"]
mod object;
#[path = "../properties/review.rs"]
mod property;
#[allow(dead_code, reason = "the webhook needs more of it")]
#[path = "../../../src/gudgeon/admission/review.rs"]
mod review;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(bytes));
