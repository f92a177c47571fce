//! A stream is tested from both ends: by scripts of requests, pushes and times, and by a client that behaves as Envoy does.

mod envoy;
mod interleavings;
mod mistakes;
mod nacks;
mod protocol;
mod returns;
mod rollouts;
mod waits;
mod world;
