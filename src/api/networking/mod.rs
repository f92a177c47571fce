//! Rules of traffic, and services that no registry has: objects of `networking.istio.io`, checked.

mod services;
mod sidecars;
#[cfg(test)]
mod tests;
mod workloads;

use serde_json::{Map, Value as Json};

use crate::config::Finding;
use crate::read::{self, Invalid, Read};
use crate::schema::{self, Message, Typed};
use crate::yaml::Node;

pub use crate::istio::networking::v1alpha3::*;
pub use crate::mesh::Parsed;
pub use sidecars::default_endpoint;

/// A field, and what is wrong with it.
type Wrong = (String, String);

/// A kind of object that is read by its table and judged by its rules.
pub trait Kind: Typed + sealed::Rules {}

mod sealed {
    /// What a value must be beyond its type: one function for all who ask.
    pub trait Rules {
        fn check(&self) -> Result<(), super::Wrong>;
    }
}

impl Kind for ServiceEntry {}

impl Typed for ServiceEntry {
    const MESSAGE: &'static Message = &schema::ISTIO_NETWORKING_V1ALPHA3_SERVICEENTRY;
}

impl Kind for WorkloadEntry {}

impl Typed for WorkloadEntry {
    const MESSAGE: &'static Message = &schema::ISTIO_NETWORKING_V1ALPHA3_WORKLOADENTRY;
}

impl Kind for Sidecar {}

impl Typed for Sidecar {
    const MESSAGE: &'static Message = &schema::ISTIO_NETWORKING_V1ALPHA3_SIDECAR;
}

/// An object from its `spec`. Paths in errors begin there.
///
/// # Errors
///
/// What is of a wrong type or not valid: the first of it, with its path.
pub fn read<T: Kind>(spec: &Node) -> Result<Parsed<T>, Invalid> {
    let read = read::tree(T::MESSAGE, spec);
    typed(read, |found| Invalid::at(found, spec))
}

/// The same from JSON, as an API server has it: without lines.
///
/// # Errors
///
/// As [`read()`].
pub fn read_json<T: Kind>(spec: &Json) -> Result<Parsed<T>, Invalid> {
    typed(read::json(T::MESSAGE, spec), Invalid::nowhere)
}

fn typed<T: Kind>(
    read: Result<Read, Finding>,
    place: impl Fn(Finding) -> Invalid,
) -> Result<Parsed<T>, Invalid> {
    let read = read.map_err(&place)?;
    let config: T = read::typed(&Json::Object(read.fields))?;
    config
        .check()
        .map_err(|(path, cause)| place(Finding::error(path, cause)))?;
    Ok(Parsed {
        config,
        warnings: read.warnings,
    })
}

/// A spec as proto JSON, for those who look at it.
///
/// # Errors
///
/// Of one that was made by hand: as [`mesh::json`](crate::mesh::json).
pub fn json(spec: &impl Kind) -> Result<Map<String, Json>, Invalid> {
    read::shown(spec)
}

fn wrong<T>(path: impl Into<String>, cause: impl Into<String>) -> Result<T, Wrong> {
    Err((path.into(), cause.into()))
}

/// One port of the network.
fn check_port(path: impl Into<String>, number: u32) -> Result<(), Wrong> {
    if (1..=65535).contains(&number) {
        return Ok(());
    }
    wrong(path, format!("want a port, 1 to 65535, got {number}"))
}

/// Labels that are wanted: an empty value wants an empty label.
fn check_selector(selector: Option<&WorkloadSelector>) -> Result<(), Wrong> {
    let names = selector
        .into_iter()
        .flat_map(|selector| selector.labels.keys());
    for name in names {
        if name.is_empty() || name.contains('*') {
            return wrong(
                "workloadSelector.labels",
                format!("want names of labels, got {name:?}"),
            );
        }
    }
    Ok(())
}
