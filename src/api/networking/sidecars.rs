//! What makes a Sidecar valid.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::workloads::check_socket;
use super::{
    CaptureMode, IstioEgressListener, IstioIngressListener, Sidecar, SidecarPort, Wrong,
    check_port, check_selector, sealed, wrong,
};
use crate::model::EndpointAddress;
use crate::names::{is_host_pattern, is_label};

impl sealed::Rules for Sidecar {
    fn check(&self) -> Result<(), Wrong> {
        check_selector(self.workload_selector.as_ref())?;
        let mut numbers = BTreeSet::new();
        for (at, ingress) in self.ingress.iter().enumerate() {
            let path = |field: String| format!("ingress[{at}].{field}");
            check_ingress(ingress).map_err(|(field, cause)| (path(field), cause))?;
            let number = ingress.port.as_ref().map_or(0, |port| port.number);
            if !numbers.insert(number) {
                let cause = format!("{number} is there twice");
                return wrong(path("port.number".to_owned()), cause);
            }
        }
        for (at, egress) in self.egress.iter().enumerate() {
            check_egress(egress)
                .map_err(|(field, cause)| (format!("egress[{at}].{field}"), cause))?;
        }
        Ok(())
    }
}

/// Where an ingress sends what it gets. `None`: no such place, or not on this machine.
#[must_use]
pub fn default_endpoint(text: &str) -> Option<(EndpointAddress, u16)> {
    if let address @ EndpointAddress::Pipe(_) = EndpointAddress::read(text) {
        return text
            .strip_prefix("unix://")
            .is_some_and(|path| path.len() > 1 && path.starts_with('/'))
            .then_some((address, 0))
            .filter(|_| check_socket(text).is_ok());
    }
    let full = match text.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    let place: SocketAddr = full.parse().ok()?;
    let fits = place.port() > 0 && place.ip().is_loopback();
    fits.then(|| (EndpointAddress::Ip(place.ip()), place.port()))
}

fn check_ingress(ingress: &IstioIngressListener) -> Result<(), Wrong> {
    let Some(port) = &ingress.port else {
        return wrong("port", "want a port");
    };
    check_sidecar_port(port)?;
    if !ingress.bind.is_empty() && ingress.bind.parse::<IpAddr>().is_err() {
        let cause = format!("want an address, got {:?}", ingress.bind);
        return wrong("bind", cause);
    }
    if let Err(cause) = check_socket(&ingress.default_endpoint) {
        return wrong("defaultEndpoint", cause);
    }
    if default_endpoint(&ingress.default_endpoint).is_none() {
        let cause = format!(
            "want 127.0.0.1:PORT, :PORT or unix:///PATH, got {:?}",
            ingress.default_endpoint
        );
        return wrong("defaultEndpoint", cause);
    }
    Ok(())
}

fn check_sidecar_port(port: &SidecarPort) -> Result<(), Wrong> {
    check_port("port.number", port.number)?;
    if !is_label(&port.name) {
        let cause = format!("want letters, digits and dashes, got {:?}", port.name);
        return wrong("port.name", cause);
    }
    Ok(())
}

fn check_bind(bind: &str) -> Result<(), Wrong> {
    if let Err(cause) = check_socket(bind) {
        return wrong("bind", cause);
    }
    let is_one = bind.is_empty() || bind.parse::<IpAddr>().is_ok() || bind.starts_with("unix:///");
    if is_one {
        return Ok(());
    }
    wrong(
        "bind",
        format!("want an address or unix:///PATH, got {bind:?}"),
    )
}

fn check_egress(egress: &IstioEgressListener) -> Result<(), Wrong> {
    check_bind(&egress.bind)?;
    let is_path = egress.bind.starts_with("unix:");
    match &egress.port {
        Some(port) if is_path && port.number != 0 => {
            return wrong("port.number", "none beside a socket of a path");
        }
        Some(_) if is_path => {}
        Some(port) => check_sidecar_port(port)?,
        None if is_path || !egress.bind.is_empty() => return wrong("port", "want a port"),
        None => {}
    }
    if is_path && egress.capture_mode() == CaptureMode::Iptables {
        return wrong("captureMode", "not IPTABLES with a socket of a path");
    }
    if egress.hosts.is_empty() {
        return wrong("hosts", "want at least one");
    }
    for (at, host) in egress.hosts.iter().enumerate() {
        let fits = host.split_once('/').is_some_and(|(namespace, host)| {
            let name = namespace.strip_prefix('~').unwrap_or(namespace);
            let namespace_fits = matches!(namespace, "." | "*" | "~") || is_label(name);
            namespace_fits && (host == "*" || is_host_pattern(host))
        });
        if !fits {
            let cause = format!("want NAMESPACE/HOST, got {host:?}");
            return wrong(format!("hosts[{at}]"), cause);
        }
    }
    Ok(())
}
