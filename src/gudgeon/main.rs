//! The binary: what the library returns is the exit code.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    gudgeon::run(&words).into()
}
