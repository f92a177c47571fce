//! The binary: what the library returns is the exit code.

#![forbid(unsafe_code)]

use std::alloc::System;
use std::ffi::OsString;
use std::process::ExitCode;

use spin::mutex::SpinMutex;
use spin::relax::Yield;
use talc::TalcLock;
use talc::source::GlobalAllocSource;

/// Bytes of a block from the C library's allocator.
const BLOCK_BYTES: usize = 256 << 10;

/// A review is some thousands of small pieces of memory. The C library's own allocator asks the kernel for pages many times
/// in each, and gives them back; this one takes blocks from it, and gives back those that are empty.
#[global_allocator]
static ALLOCATOR: TalcLock<SpinMutex<(), Yield>, GlobalAllocSource<System>> =
    TalcLock::new(GlobalAllocSource::with_block_size(System, BLOCK_BYTES));

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    gudgeon::run(&args).into()
}
