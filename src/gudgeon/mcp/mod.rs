//! The Mesh Configuration Protocol between sockets: streams on gRPC around the pure ends in `mcp`, for whichever role is a source
//! or a sink.
//!
//! ```text
//!  snapshots ──► source_stream ◄── server: sinks that dial
//!                   │     ▲─────── source_dialer: a sink that is dialled
//!                   ▼
//!                 peers ──► pages, metrics
//!                   ▲
//!                   │
//!    source_objects ◄── sink_stream ◄── sink_listener: sources that dial (dialled_sources)
//!                              ▲───── link: a source that is dialled
//! ```
//!
//! Both streams are protocols of the one loop in `grpc::stream_loop`, a task for each stream.

mod access;
mod dialled_peer;
mod dialled_sources;
mod link;
mod peers;
mod redacted_snapshots;
mod secure;
mod server;
mod sink_listener;
mod sink_stream;
mod snapshots;
mod socket;
mod source_dialer;
mod source_objects;
mod source_stream;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use access::DefaultAccess;
pub(crate) use dialled_sources::DialledSources;
pub(crate) use link::{Link, LinkState, WantedSource};
pub(crate) use peers::{Direction, Peers, StreamStatus, Subscribed};
pub(crate) use secure::CredentialFiles;
pub(crate) use server::{McpServer, McpServerSettings, PortAccess};
pub(crate) use snapshots::Snapshots;
pub(crate) use source_dialer::SourceDialer;
pub(crate) use source_objects::{Apply, ReceivedObject, SourceObjects};

/// The services, by the paths of their methods.
const SOURCE: &str = "istio.mcp.v1alpha1.ResourceSource";
const SINK: &str = "istio.mcp.v1alpha1.ResourceSink";
const METHOD: &str = "EstablishResourceStream";
