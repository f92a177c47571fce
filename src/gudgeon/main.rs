//! The binary: what the library returns is the exit code.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

/// EX_USAGE of sysexits.h.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    // Where stderr is gone nobody reads it.
    let _written = writeln!(
        std::io::stderr(),
        "cannot start a role: this build has none"
    );
    ExitCode::from(USAGE)
}
