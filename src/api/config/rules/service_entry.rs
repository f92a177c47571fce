//! ServiceEntry: services that no registry has.

use std::collections::HashSet;

use super::context::Context;
use super::cursor::Cursor;
use super::{parts, predicates as is, workload_entry};
use crate::finding::quoted;
use crate::size;

pub(in crate::config) fn check(context: &Context<'_>) {
    let spec = &context.spec;
    let resolution = spec.get("resolution");
    // No rule knows a resolution without a name.
    let resolution = match resolution.text() {
        "" if !resolution.is_broken() => "NONE",
        resolution => resolution,
    };
    let hosts = spec.get("hosts");
    hosts.not_empty();
    if let Some((field, cause)) = sizes(spec).too_much() {
        spec.get(field).fail(cause);
    }
    for name in spec.get("subjectAltNames").items() {
        name.check(size::text(name.text()));
    }
    for host in hosts.items() {
        if host.text() == "*" {
            host.fail("\"*\" is not a host name: it stands for all of them");
        } else {
            host.check(is::wild(host.text()));
        }
    }
    addresses(&spec.get("addresses"), resolution);
    let names = ports(&spec.get("ports"), resolution);
    let selector = spec.get("workloadSelector");
    parts::selector(&selector, "labels");
    let endpoints = spec.get("endpoints");
    if selector.is_set() && !endpoints.is_empty() {
        selector.fail("workloadSelector and endpoints exclude each other");
    }
    if selector.is_set() && resolution == "NONE" {
        selector.warn("has no effect with resolution NONE");
    }
    match resolution {
        "NONE" if !endpoints.is_empty() => endpoints.fail("not with resolution NONE"),
        "STATIC" => fixed(spec),
        "DNS" | "DNS_ROUND_ROBIN" => dns(spec, resolution),
        "DYNAMIC_DNS" => dynamic(spec),
        _ => {}
    }
    for endpoint in endpoints.items() {
        workload_entry::ports(&endpoint.get("ports"), names.as_ref());
        workload_entry::texts(&endpoint);
        parts::labels(&endpoint.get("labels"));
    }
    // Without a name in the request, or in TLS, a proxy cannot tell the hosts apart.
    if hosts.list().len() > 1 && !matches!(resolution, "" | "NONE") {
        for port in spec.get("ports").items() {
            let protocol = port.get("protocol").text();
            if !is::is_http(protocol) && !is::is_tls(protocol) {
                port.get("protocol")
                    .fail("several hosts need HTTP or TLS ports");
            }
        }
    }
    parts::export_to(
        &spec.get("exportTo"),
        context.namespace,
        parts::ExportToNone::Allowed,
    );
}

fn sizes(spec: &Cursor<'_>) -> size::EntrySizes {
    let length = |field| spec.get(field).list().len();
    let ports = spec.get("ports").items();
    let streams = ports.filter(|port| !is::is_http(port.get("protocol").text()));
    let endpoints = spec.get("endpoints").items();
    let plain = spec.get("addresses").texts();
    size::EntrySizes {
        hosts: length("hosts"),
        ports: length("ports"),
        streams: streams.count(),
        endpoints: endpoints.map(|one| workload_entry::places(&one)).sum(),
        addresses: length("addresses"),
        plain: plain.filter(|text| !text.contains('/')).count(),
        names: size::weight(spec.get("subjectAltNames").texts()),
    }
}

fn addresses(addresses: &Cursor<'_>, resolution: &str) {
    let ranges = matches!(resolution, "" | "NONE" | "STATIC");
    for address in addresses.items() {
        let text = address.text();
        if address.check(is::cidr(text)) && text.contains('/') && !ranges {
            address.fail("a CIDR only with resolution NONE or STATIC");
        }
    }
}

/// The names of all ports; none where not all of them could be read.
fn ports<'a>(ports: &Cursor<'a>, resolution: &str) -> Option<HashSet<&'a str>> {
    let mut names = HashSet::new();
    let mut numbers = HashSet::new();
    for port in ports.items() {
        let (name, number) = (port.get("name"), port.get("number"));
        if name.check(is::label(name.text())) && !names.insert(name.text()) {
            name.fail(format!("duplicate port name {}", quoted(name.text())));
        }
        if number.check(is::port(number.number())) && !numbers.insert(number.number()) {
            number.fail(format!("duplicate port {}", number.number()));
        }
        let protocol = port.get("protocol");
        protocol.check(is::protocol(protocol.text()));
        parts::port_or_none(&port.get("targetPort"));
        let known = ["http", "http2", "grpc", "tls"];
        if resolution == "DYNAMIC_DNS"
            && !known
                .iter()
                .any(|known| protocol.text().eq_ignore_ascii_case(known))
        {
            protocol.fail("DYNAMIC_DNS needs http, http2, grpc or tls");
        }
    }
    let is_broken = |port: Cursor<'_>| port.is_broken() || port.get("name").is_broken();
    (!ports.is_broken() && !ports.items().any(is_broken)).then_some(names)
}

fn fixed(spec: &Cursor<'_>) {
    let mut unix = false;
    for endpoint in spec.get("endpoints").items() {
        let address = endpoint.get("address");
        if address.is_empty() {
            workload_entry::absent(&endpoint, &address);
        } else if parts::unix_bind(&address) {
            unix = true;
            let ports = endpoint.get("ports");
            if !ports.is_empty() {
                ports.fail("no ports on a unix socket");
            }
        } else {
            address.check(is::ip(address.text()));
        }
    }
    let ports = spec.get("ports");
    // Endpoints of sockets name no ports, so all ports would lead to one socket.
    if unix && ports.list().len() != 1 {
        ports.fail("a unix socket needs exactly one service port");
    }
}

fn dns(spec: &Cursor<'_>, resolution: &str) {
    let endpoints = spec.get("endpoints");
    // A proxy resolves the hosts themselves, in spite of any workloads.
    if endpoints.is_empty() && !endpoints.is_broken() {
        for host in spec.get("hosts").items() {
            if host.text().starts_with('*') && is::wild(host.text()).is_none() {
                host.fail("a wildcard cannot be resolved without endpoints");
            }
        }
    }
    for endpoint in endpoints.items() {
        let address = endpoint.get("address");
        if address.required_text() {
            address.check(is::fqdn_or_ip(address.text()));
        }
    }
    if resolution == "DNS_ROUND_ROBIN" && endpoints.list().len() > 1 {
        endpoints.fail("at most one endpoint with DNS_ROUND_ROBIN");
    }
}

fn dynamic(spec: &Cursor<'_>) {
    for host in spec.get("hosts").items() {
        if !host.text().starts_with('*') {
            host.fail("DYNAMIC_DNS needs a wildcard");
        }
    }
    for name in ["addresses", "endpoints"] {
        if spec.has(name) {
            spec.get(name).fail("not with resolution DYNAMIC_DNS");
        }
    }
}
