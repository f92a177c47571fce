//! The real binary with the real Envoy: start, rotation, crash, drain. The core's own tests show every case on a
//! simulated clock; these show that Envoy behaves as the core believes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "a test may panic, wait and read the clock"
)]

mod command;
mod companions;
mod epochs;
mod files;
mod helpers;
mod lifecycle;
mod logs;
mod orders;
mod probes;
mod readiness;
mod readme;
mod reload;
mod run;
mod scrape;
mod settings;
mod shutdown;
mod support;
mod surroundings;
mod users;
