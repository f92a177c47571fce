//! See `properties/discovery.rs`.

#![no_main]

#[path = "../properties/discovery.rs"]
mod property;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| property::check(
    xds::stream::Protocol::StateOfTheWorld,
    bytes
));
