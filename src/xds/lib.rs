//! `xds`: the mesh as resources of Envoy, and what each of its streams is owed.
//!
//! It knows `api` and nothing of who asks: tonic, sockets and flags are in `gudgeon`. It is pure: no socket, no file, no
//! clock, no environment and no runtime; time is an argument, and equal input gives equal bytes on every replica.
//!
//! # Map
//!
//! * `settings`, `node`: what the program was started with, and what a client says of itself.
//! * `cluster_names`: names of clusters and their assignments, written and read in one place.
//! * `common`: vocabulary of those who make resources: ports of services, small parts of Envoy's messages.
//! * `scope`: which rules hold for a proxy, and the key that proxies with the same rules share.
//! * `rules`: what each kind of rule does to a message, one file a kind.
//! * `resources`: generators: from the mesh to Envoy's messages, as drafts that know the objects they were made from.
//! * `finish`: the last step: encodes, hashes, and keeps those objects.
//! * `snapshot`: one state of the mesh, and all that was made of it, shared by the proxies that see the same; secrets (SDS) apart.
//! * `view`: the seam: what one proxy is to have at one moment, as names, versions and bytes.
//! * `stream`: what one client is owed: protocol (ACK and NACK), order, make before break. It knows views and none of Envoy's messages.
//! * `resource_names`: names of a request, where they came in. `debounce`, `reason`: when a push begins, and why.
//!
//! # From a change to bytes
//!
//! ```text
//!  world (api) ──► scope ──► resources ──► rules ──► finish ──► snapshot ──► view ◄── stream ◄── requests, time
//!  changes ──► debounce ──► (the program makes a snapshot and pushes it to each stream)
//! ```
//!
//! The layout test of the workspace holds the rooms to their edges; there is no circle.

#![forbid(unsafe_code)]

pub mod cluster_names;
mod common;
pub mod debounce;
mod finish;
pub mod node;
pub mod reason;
pub mod resource_names;
mod resources;
mod rules;
mod scope;
pub mod settings;
pub mod snapshot;
pub mod stream;
pub mod view;

pub use api::version;

/// Returns true if the mesh configuration has a service for access logs that proxies can use.
#[must_use]
pub fn has_log_service(mesh: &api::mesh::MeshConfig) -> bool {
    resources::log_service::LogService::new(mesh).is_some()
}
