//! The binary; the map is in `lib.rs`. Why there is no `fn main` of Rust's: `sys::program!`.

#![no_main]

sys::program!(pintle::main);
