//! What was typed.
#![forbid(unsafe_code)]
