//! `mcp`: configuration as snapshots of collections, and the protocol that carries them from a source to a sink.
//!
//! It knows `api` and none of its callers: tonic, sockets and flags are in `gudgeon`, objects come from `sources`. It is
//! pure: no socket, no file, no clock and no runtime. Time is an argument, and so is chance.
//!
//! # Dependencies
//!
//! ```text
//!  objects ──► session ──► publish ──► snapshot ──► source ══ the wire ══ sink ──► union ──► objects
//!                             ▲
//!                          debounce
//! ```
//!
//! * `access`: the identities that may connect.
//! * `collections`: the collections, and the groups that are published together.
//! * `limits`: the bounds on a peer's names and messages, and on the waits between two attempts to dial.
//! * `session`: the states from the first event of a source to its transforms.
//! * `version`: versions by content, of a resource and of a collection.
//! * `debounce`: the time at which a group is published.
//! * `snapshot`: the state that all sinks are to have at one moment.
//! * `publish`: the groups, each with its pending changes and its debounce.
//! * `sink`: the receiving end of a stream.
//! * `source`: the sending end of a stream.
//! * `objects`: objects of the mesh as resources, and back.
//!
//! [`snapshot`] is the seam: the state that all sinks are to have at one moment, immutable and shared. Its producers know no
//! stream. A [`source::Source`] is one stream's end that sends, a [`sink::Sink`] the other end that receives; neither knows
//! which side has dialled.

#![forbid(unsafe_code)]

pub mod access;
pub mod collections;
pub mod debounce;
pub mod limits;
pub mod objects;
pub mod publish;
pub mod session;
pub mod sink;
pub mod snapshot;
pub mod source;
pub mod version;

/// The messages.
pub use api::istio::mcp::v1alpha1 as message;

/// The collection in the first response of a source that has dialled, by which the other side knows it for one. No sink
/// subscribes to it.
pub const TRIGGER: &str = "$triggerCollection";
