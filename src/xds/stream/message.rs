//! Messages of a stream, without the words of gRPC: requests, responses, and the outcome of a request.

use std::sync::Arc;
use std::time::Duration;

use crate::resource_names::ResourceNames;
use crate::version::Version;
use crate::view::{Resource, Type};

/// The variant of xDS that a stream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    StateOfTheWorld,
    Delta,
}

/// The kind of client. gRPC names everything it wants, and takes a resource that is missing in a response for deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Envoy,
    Grpc,
}

/// One request of either protocol. Delta: `names` are those subscribed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub kind: Type,
    /// `version_info` of state of the world.
    pub version: String,
    pub nonce: String,
    pub names: ResourceNames,
    /// Delta only, as is `initial`: names and their versions.
    pub unsubscribe: Vec<String>,
    pub initial: Vec<(String, String)>,
    /// The message of `error_detail`.
    pub error: Option<String>,
}

impl Request {
    /// A request without anything but its type.
    pub fn of(kind: Type) -> Self {
        Self {
            kind,
            version: String::new(),
            nonce: String::new(),
            names: ResourceNames::default(),
            unsubscribe: Vec::new(),
            initial: Vec::new(),
            error: None,
        }
    }
}

/// One response of either protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub kind: Type,
    /// The version of all resources of this type that the client has after the response.
    pub version: Version,
    /// Written in decimal.
    pub nonce: u64,
    pub resources: Vec<Arc<Resource>>,
    /// Delta only.
    pub removed: Vec<Arc<str>>,
}

/// The meaning of a request, by its nonce and its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The first of its type on this stream.
    Subscribed,
    Acked,
    /// For the nth time of its type on this stream; the words are in the state of the type.
    Nacked(u64),
    /// Neither: names alone.
    Asked,
    /// The answer to a response that is not the last one.
    Expired,
}

/// The reason why a stream cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// More than [`NAMES`] in one request or subscribed.
    TooManyNames(usize),
    /// Delta: the client has more resources that there is nothing of than one response takes away.
    UnknownNames,
    /// One that there is nothing of, longer than [`MAX_NAME_BYTES`].
    LongName(usize),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooManyNames(found) => {
                write!(to, "cannot subscribe {found} names: {NAMES} are allowed")
            }
            Self::UnknownNames => write!(
                to,
                "cannot answer all names that do not exist at once: open the next stream without those that are removed"
            ),
            Self::LongName(length) => write!(
                to,
                "cannot remember a name of {length} bytes that does not exist: {MAX_NAME_BYTES} are allowed"
            ),
        }
    }
}

impl std::error::Error for Fault {}

/// A NACK that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The version that the client refused.
    pub version: Version,
    /// The client's words, cut after [`NACK_BYTES`] bytes.
    pub message: Arc<str>,
    pub at: Duration,
}

/// Names in one request, and names that one stream subscribes of one type.
pub const NAMES: usize = 100_000;

/// Names that a stream remembers although there is nothing of them, all types together (discovery.md §9). A proxy names what it
/// was told of before, so these are the services that were removed while it was away. Those beyond are answered and forgotten.
pub const UNKNOWN_NAMES: usize = 1000;

/// Bytes of those beyond, with what stands around each, that wait for their answer: as many as those may have that are
/// remembered. A client that names more is told of the others by what it is sent of clusters and listeners.
pub const OWED_BYTES: usize = UNKNOWN_NAMES * MAX_NAME_BYTES;

/// Longest of them (discovery.md §9): a host of 253 bytes with what stands around it.
pub const MAX_NAME_BYTES: usize = 512;

/// Bytes kept of a NACK's message.
pub const NACK_BYTES: usize = 4096;
/// Bytes of a NACK's message that are read for names of resources. Chosen: those of a thousand clusters, each with its cause.
pub(super) const NACK_BYTES_READ: usize = 256 << 10;

/// The time for which a step waits for its ACKs.
pub const STEP: Duration = Duration::from_secs(2);

/// After this time a response that is not read counts once.
pub const SLOW: Duration = Duration::from_secs(5);

/// After this time the stream is closed.
pub const CLOSED: Duration = Duration::from_secs(60);
