//! The binary; the map is in `lib.rs`.

use std::process::ExitCode;

// SAFETY: the agent never starts a thread; see `lib.rs`.
#[global_allocator]
static HEAP: pintle::Heap = unsafe { pintle::Heap::new() };

fn main() -> ExitCode {
    ExitCode::from(pintle::main(std::env::args_os().collect()))
}
