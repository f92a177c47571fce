//! `api`: the vocabulary of the mesh. Types from the `.proto` files beside this file, their proto JSON, their defaults and
//! the rules for values. Packages, names and numbers are those of Istio's API, so that the wire is the same.
//!
//! # Dependencies
//!
//! ```text
//! api ◄── transform, inject, xds, mcp ◄── sources ◄── gudgeon
//! ```
//!
//! This crate knows none of the others. It is pure: no socket, no file, no clock, no environment and no tokio; all input is an
//! argument, and equal input gives equal output.
//!
//! # Map
//!
//! Each room uses only rooms above it.
//!
//! * `backoff`: the wait before the next try. `debounce`: changes that are handled as one. `log_repeats`: an event that repeats is
//!   logged ever more rarely. `text`: texts of others, shortened. `redact`: messages without their quotations.
//! * `count`: numbers in messages. `duration` and `timestamp`: both in proto JSON. `version`: versions by content. `size`: the size of
//!   an object whose lists multiply. `names`: names of hosts and of objects. `did_you_mean`: the known name that a typing error meant.
//!   `url`: URLs without their credentials. `proxy_ports`: the ports of a proxy's own, and whose each is. `well_known`: the names that
//!   Kubernetes, Istio and protobuf give to labels, annotations and types.
//! * `finding`: an error or a warning, with its path in an object. `proto_json`: base64 and doubles in their one spelling.
//! * `schema`: tables of messages. `yaml`: text to a tree, bounded. `wire`: JSON to protobuf's bytes and back. `overlay`: a message
//!   over its defaults. `envoy`: Envoy's messages by their descriptors.
//! * `security`: rules of `security.istio.io` as plain values. `model`: services, endpoints and workloads as the registries make them.
//! * `config`: kinds, documents, rules and findings; the one judgement of an object. `read`: an object to its type.
//! * `kubernetes`: objects of Kubernetes' own kinds, as they are written.
//! * `networking`: rules of `networking.istio.io` as plain values. `mesh`: the mesh configuration and its networks.
//!
//! # From text to a type
//!
//! [`yaml`] makes a tree, bounded; [`config`] holds it against the table of a message ([`schema`]) and reports the path of
//! each error; `overlay` lays it over defaults; the type comes off the [`wire`], and goes back to JSON that way.
//!
//! A new kind takes a `.proto` file, a row in `config/kinds.rs` and a file in `config/rules`. A kind that discovery acts on also takes
//! a file of notes, a line of [`discovery_kinds`], which is its field of [`model::World`], a file in `xds/rules`, and fields of the
//! scope in `xds/scope`.
//!
//! Objects of rules need no type: their JSON is checked completely, and encoded to bytes and back.
//!
//! [`envoy`] knows Envoy's own messages by their descriptors: it encodes users' text to bytes, and merges bytes.
//!
//! [`size`] bounds objects whose lists multiply.
//!
//! [`model`] is the other half: the results of the registries, as plain values.

#![forbid(unsafe_code)]

pub mod backoff;
pub mod config;
mod count;
pub mod debounce;
mod did_you_mean;
pub mod duration;
pub mod envoy;
mod finding;
#[cfg(test)]
#[path = "tests/support/growth.rs"]
mod growth;
pub mod kubernetes;
pub mod log_repeats;
pub mod mesh;
pub mod model;
pub mod names;
pub mod networking;
mod overlay;
pub mod proto_json;
pub mod proxy_ports;
mod read;
pub mod redact;
pub mod schema;
pub mod security;
pub mod size;
pub mod text;
pub mod timestamp;
pub mod url;
pub mod version;
pub mod well_known;
pub mod wire;
pub mod yaml;

#[allow(
    missing_debug_implementations,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    clippy::nursery,
    reason = "generated"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/modules.rs"));
}

pub use count::{counted, times};
pub use generated::{google, istio, k8s};
