//! gRPC over HTTP/2 for roles that hold many streams for days: one response in flight per stream, bytes shared by all
//! streams that send the same, and limits on received bytes.
//!
//! ```text
//!  connections ──► Calls (a role's services, by path) ──► a task: Inbound ──► StreamLoop ──► ResponseSender ──► Messages
//!                                                         dial ──►              ▲ │
//!                                                                               │ ▼
//!                                                                     StreamProtocol: ADS, both ends of MCP
//! ```
//!
//! tonic provides the status; its codec keeps the largest message's buffer for as long as a stream lives, and its services
//! are compiled anew for each message.

mod address;
mod addresses;
mod calls;
mod certificates;
mod connections;
mod dial;
mod frames;
mod idle_connection_limit;
mod message_reader;
mod named_listener;
mod partial_message_limit;
mod peer;
mod pieces;
mod response_sender;
mod stream_loop;

pub(crate) use address::Address;
pub(crate) use addresses::{AddressLimit, AddressPermit};
pub(crate) use calls::{Calls, Reply, call, no_call, refused, streaming};
pub(crate) use certificates::{Certificates, follow};
pub(crate) use connections::{ConnectionOptions, GrpcListener, Port, run};
pub(crate) use dial::{DialAddress, DialTarget, DialledStream, dial};
pub(crate) use frames::{BodyError, Bounds, Inbound, begun, framed, prefix};
pub(crate) use message_reader::{FromMessage, MessageReader, WholeMessages, read};
pub(crate) use named_listener::NamedListener;
#[cfg(test)]
pub(crate) use peer::Leaf;
pub(crate) use peer::Peer;
pub(crate) use pieces::EncodedPieces;
#[cfg(test)]
pub(crate) use response_sender::Messages;
pub(crate) use response_sender::ResponseSender;
pub(crate) use stream_loop::{
    Reads, StreamLoop, StreamProtocol, StreamWaits, closing, internal_error,
};
