//! `xds`: the mesh as resources of Envoy, and what each of its streams is owed.
//!
//! It knows `api` and nothing of who asks: tonic, sockets and flags are in `gudgeon`. It is pure: no socket, no file, no
//! clock, no environment and no runtime; time is an argument, and equal input gives equal bytes on every replica.
//!
//! # Who may know whom
//!
//! ```text
//!  model (api) ──► resources ──► snapshot ──► view ◄── stream ◄── requests, pushes, time
//!  changes ──► debounce ──► (the program makes a snapshot and pushes it to each stream)
//! ```
//!
//! [`view`] is the seam: what one proxy is to have at one moment. Whoever makes resources knows no stream; a stream knows
//! names, versions and bytes, and none of Envoy's messages. `envoy-types` is spoken where resources are made only.

#![forbid(unsafe_code)]

pub mod debounce;
mod finish;
pub mod node;
pub mod reason;
mod resources;
mod rules;
mod scope;
pub mod settings;
pub mod snapshot;
pub mod stream;
pub mod view;

pub use api::version;

/// Whether it says where the service is that access logs go to.
#[must_use]
pub fn knows_log_service(mesh: &api::mesh::MeshConfig) -> bool {
    resources::log_service::LogService::new(mesh).is_some()
}
