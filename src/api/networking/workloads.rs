//! What makes a WorkloadEntry valid, and an endpoint of a ServiceEntry, which is the same.

use super::{WorkloadEntry, Wrong, check_port, sealed};
use crate::model::EndpointAddress;
use crate::names::{LONGEST_SOCKET, ROOM_FOR_SOCKET, is_name};
use crate::size;

impl sealed::Rules for WorkloadEntry {
    fn check(&self) -> Result<(), Wrong> {
        check_address(&self.address).map_err(|cause| ("address".to_owned(), cause))?;
        check_texts(self)?;
        check_ports(self)
    }
}

impl WorkloadEntry {
    /// What of it stands in an answer for each port that it serves.
    fn texts(&self) -> [(&'static str, &str); 3] {
        [
            ("locality", &self.locality),
            ("network", &self.network),
            ("serviceAccount", &self.service_account),
        ]
    }

    /// How many places it is, for each port that it serves.
    #[must_use]
    pub fn places(&self) -> usize {
        size::endpoint(self.texts().map(|(_, text)| text))
    }
}

pub(super) fn check_texts(entry: &WorkloadEntry) -> Result<(), Wrong> {
    for (field, text) in entry.texts() {
        if let Some(cause) = size::text(text) {
            return super::wrong(field, cause);
        }
    }
    Ok(())
}

pub(super) fn check_address(text: &str) -> Result<EndpointAddress, String> {
    check_socket(text)?;
    let address = EndpointAddress::read(text);
    let is_one = match &address {
        EndpointAddress::Ip(_) => true,
        EndpointAddress::Name(name) => is_name(name),
        EndpointAddress::Pipe(path) => path.len() > 1 && path.starts_with('/'),
    };
    if is_one {
        return Ok(address);
    }
    Err(format!(
        "want an address, a name or unix:///PATH, got {text:?}"
    ))
}

/// Of a socket's path, what Envoy refuses all endpoints of a response for. Other texts pass.
pub(super) fn check_socket(text: &str) -> Result<(), String> {
    let Some(path) = text.strip_prefix("unix://") else {
        return Ok(());
    };
    if path.len() > LONGEST_SOCKET {
        return Err(format!(
            "want at most {LONGEST_SOCKET} bytes after unix:// ({ROOM_FOR_SOCKET}), got {}",
            path.len()
        ));
    }
    if path.contains('\0') {
        return Err("want a path without a NUL after unix://".to_owned());
    }
    Ok(())
}

pub(super) fn check_ports(entry: &WorkloadEntry) -> Result<(), Wrong> {
    for (name, number) in &entry.ports {
        check_port(format!("ports.{name}"), *number)?;
    }
    if entry.address.starts_with("unix:") && !entry.ports.is_empty() {
        return super::wrong("ports", "none beside a socket of a path");
    }
    Ok(())
}
