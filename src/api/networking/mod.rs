//! Objects of configuration as types: services that no registry has, a proxy's listeners, and the rules of the mesh.
//!
//! [`config`] alone decides whether an object is valid, for every source. [`config::discovery_notes`] has discovery's decisions on
//! valid objects that it cannot serve as they are written, beside the notes about them.

#[cfg(test)]
mod tests;
mod workload_entry;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use prost::DecodeError;
use serde_json::{Map, Value as Json};

use crate::config::{self, Finding, Kind, Object};
use crate::model::{EndpointAddress, kinds};
use crate::read::{self, Invalid};
use crate::schema::{Message, Typed};

pub use crate::istio::networking::v1alpha3::*;

/// A kind of object that discovery acts on.
pub trait DiscoveryKind: Typed {
    /// Its row in the table of kinds.
    const KIND: &'static Kind;
    /// As the table of kinds has it.
    const NAME: &'static str = Self::KIND.kind;
    /// Its group in the API.
    const GROUP: &'static str = Self::KIND.group;
    /// All versions of the group, the oldest first: objects are the same in each.
    const VERSIONS: &'static [&'static str] = Self::KIND.versions;
}

macro_rules! kinds {
    ($($group:ident { $($kind:ident $field:ident;)* })*) => {$($(
        impl DiscoveryKind for kinds::$kind {
            const KIND: &'static Kind = config::row(stringify!($kind));
        }

        impl Typed for kinds::$kind {
            const MESSAGE: &'static Message = Self::KIND.message;
        }
    )*)*};
}

crate::discovery_kinds!(kinds);

/// An object that was validated.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked<T> {
    /// `None` where it is not valid, or of another kind.
    pub spec: Option<T>,
    pub findings: Vec<Finding>,
}

/// An object, whole as it is written, by the rules of its kind.
#[must_use]
pub fn check<T: DiscoveryKind>(object: &Json) -> Checked<T> {
    let (object, mut findings) = config::check(object);
    let valid = object.filter(|object| object.kind.kind == T::NAME && !has_errors(&findings));
    let spec = valid.and_then(|object| {
        let unread = |error: DecodeError| findings.push(Finding::error("spec", error.to_string()));
        spec(&object).map_err(unread).ok()
    });
    Checked { spec, findings }
}

/// Returns true if an object is refused for one of its findings.
#[must_use]
pub fn has_errors(findings: &[Finding]) -> bool {
    findings.iter().any(Finding::is_error)
}

/// The spec of a valid object, as a type.
///
/// # Errors
///
/// Its body is not of the kind's message.
pub fn spec<T: DiscoveryKind>(object: &Object) -> Result<T, DecodeError> {
    T::decode(&*object.body)
}

/// Returns a spec as proto JSON, for pages.
///
/// # Errors
///
/// Only for a spec that was made by hand: as [`mesh::json`](crate::mesh::json).
pub fn json(spec: &impl DiscoveryKind) -> Result<Map<String, Json>, Invalid> {
    read::to_json(spec)
}

/// The place that an ingress sends connections to: a port of the loopback, or a socket in the file system. The unspecified address
/// stands for the loopback. `None` for any other place, and for no text.
#[must_use]
pub fn default_endpoint(text: &str) -> Option<(EndpointAddress, u16)> {
    if let address @ EndpointAddress::Pipe(_) = EndpointAddress::read(text) {
        return Some((address, 0));
    }
    let place: SocketAddr = match text.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}").parse().ok()?,
        None => text.parse().ok()?,
    };
    let ip = match place.ip() {
        all if !all.is_unspecified() => all,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let fits = place.port() > 0 && ip.is_loopback();
    fits.then(|| (EndpointAddress::Ip(ip), place.port()))
}
