//! The binary; the map is in `lib.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(pintle::main(std::env::args_os().collect()))
}
