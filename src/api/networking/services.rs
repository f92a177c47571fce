//! What makes a ServiceEntry valid.

use std::collections::BTreeSet;

use super::service_entry::Resolution;
use super::workloads::{check_address, check_ports, check_texts};
use super::{
    ServiceEntry, ServicePort, WorkloadEntry, Wrong, check_port, check_selector, sealed, wrong,
};
use crate::model::{Address, EndpointAddress, Protocol};
use crate::names::{is_host_pattern, is_label};
use crate::size;

impl sealed::Rules for ServiceEntry {
    fn check(&self) -> Result<(), Wrong> {
        if self.resolution() == Resolution::DynamicDns {
            return wrong("resolution", "DYNAMIC_DNS is not served");
        }
        if let Some((field, cause)) = self.sizes().too_much() {
            return wrong(field, cause);
        }
        for (at, name) in self.subject_alt_names.iter().enumerate() {
            if let Some(cause) = size::text(name) {
                return wrong(format!("subjectAltNames[{at}]"), cause);
            }
        }
        self.check_hosts()?;
        self.check_addresses()?;
        check_service_ports(&self.ports)?;
        check_selector(self.workload_selector.as_ref())?;
        if self.workload_selector.is_some() && !self.endpoints.is_empty() {
            return wrong("workloadSelector", "not beside endpoints");
        }
        self.check_endpoints()
    }
}

impl ServiceEntry {
    fn sizes(&self) -> size::ServiceEntry {
        let is_stream = |port: &&ServicePort| {
            let protocol = Protocol::of_service_entry(&port.protocol);
            protocol.is_none_or(|protocol| !protocol.is_http())
        };
        size::ServiceEntry {
            hosts: self.hosts.len(),
            ports: self.ports.len(),
            streams: self.ports.iter().filter(is_stream).count(),
            endpoints: self.endpoints.iter().map(WorkloadEntry::places).sum(),
            addresses: self.addresses.len(),
            plain: self
                .addresses
                .iter()
                .filter(|text| !text.contains('/'))
                .count(),
            names: size::weight(self.subject_alt_names.iter().map(String::as_str)),
        }
    }

    fn check_hosts(&self) -> Result<(), Wrong> {
        if self.hosts.is_empty() {
            return wrong("hosts", "want at least one");
        }
        let mut known = BTreeSet::new();
        for (at, host) in self.hosts.iter().enumerate() {
            let path = || format!("hosts[{at}]");
            if !is_host_pattern(host) {
                return wrong(path(), format!("want a name or *.NAME, got {host:?}"));
            }
            if host.starts_with('*') && self.resolution() != Resolution::None {
                let cause = format!(
                    "{host:?} stands for many: only with resolution NONE, got {}",
                    self.resolution().as_str_name()
                );
                return wrong(path(), cause);
            }
            if !known.insert(host.to_ascii_lowercase()) {
                return wrong(path(), format!("{host:?} is there twice"));
            }
        }
        Ok(())
    }

    fn check_addresses(&self) -> Result<(), Wrong> {
        let ranges = matches!(self.resolution(), Resolution::None | Resolution::Static);
        for (at, text) in self.addresses.iter().enumerate() {
            let path = || format!("addresses[{at}]");
            match text.parse() {
                Ok(Address::Plain(_)) => {}
                Ok(Address::Range(_)) if ranges => {}
                Ok(Address::Range(range)) => {
                    let cause = format!(
                        "the range {range} is allowed with resolution NONE or STATIC, got {}",
                        self.resolution().as_str_name()
                    );
                    return wrong(path(), cause);
                }
                Err(()) => {
                    return wrong(path(), format!("want an address or a range, got {text:?}"));
                }
            }
        }
        Ok(())
    }

    fn check_endpoints(&self) -> Result<(), Wrong> {
        let resolution = self.resolution();
        if resolution == Resolution::None && !self.endpoints.is_empty() {
            return wrong("endpoints", "none with resolution NONE");
        }
        if resolution == Resolution::DnsRoundRobin && self.endpoints.len() > 1 {
            return wrong("endpoints", "one at most with resolution DNS_ROUND_ROBIN");
        }
        let names: BTreeSet<&str> = self.ports.iter().map(|port| port.name.as_str()).collect();
        for (at, endpoint) in self.endpoints.iter().enumerate() {
            let path = |field: &str| format!("endpoints[{at}].{field}");
            check_address(&endpoint.address)
                .and_then(|address| match (resolution, address) {
                    (Resolution::Static, EndpointAddress::Name(name)) => Err(format!(
                        "want an address with resolution STATIC, got the name {name:?}"
                    )),
                    (Resolution::Dns | Resolution::DnsRoundRobin, EndpointAddress::Pipe(_)) => {
                        Err("no socket of a path with resolution DNS".to_owned())
                    }
                    (Resolution::Static, EndpointAddress::Pipe(_)) if self.ports.len() > 1 => Err(
                        "a socket of a path serves one port, and the service has more".to_owned(),
                    ),
                    _ => Ok(()),
                })
                .map_err(|cause| (path("address"), cause))?;
            check_texts(endpoint).map_err(|(field, cause)| (path(&field), cause))?;
            check_ports(endpoint).map_err(|(field, cause)| (path(&field), cause))?;
            if let Some(name) = endpoint
                .ports
                .keys()
                .find(|name| !names.contains(name.as_str()))
            {
                return wrong(
                    path(&format!("ports.{name}")),
                    "the service has no port of this name",
                );
            }
        }
        Ok(())
    }
}

fn check_service_ports(ports: &[ServicePort]) -> Result<(), Wrong> {
    if ports.is_empty() {
        return wrong("ports", "want at least one");
    }
    let mut numbers = BTreeSet::new();
    let mut names = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let path = |field: &str| format!("ports[{at}].{field}");
        check_port(path("number"), port.number)?;
        if port.target_port != 0 {
            check_port(path("targetPort"), port.target_port)?;
        }
        if !is_label(&port.name) {
            let cause = format!("want letters, digits and dashes, got {:?}", port.name);
            return wrong(path("name"), cause);
        }
        if !numbers.insert(port.number) {
            return wrong(path("number"), format!("{} is there twice", port.number));
        }
        if !names.insert(port.name.as_str()) {
            return wrong(path("name"), format!("{:?} is there twice", port.name));
        }
    }
    Ok(())
}
