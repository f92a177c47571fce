//! The binary; the map is in `lib.rs`. Why there is no `fn main` of Rust's: `sys::entry`.

#![no_main]

use std::ffi::{c_char, c_int};

// SAFETY: the agent never starts a thread; see `lib.rs`.
#[global_allocator]
static HEAP: pintle::Heap = unsafe { pintle::Heap::new() };

/// Called by the C library.
// SAFETY: the name is the one that it calls, with these arguments.
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, list: *const *const c_char) -> c_int {
    // SAFETY: that is what the C library passes.
    let arguments = unsafe { pintle::arguments(count, list) };
    c_int::from(pintle::main(&arguments))
}
