//! Servers of Gateways that are for the same port of the same workloads, and contradict each other.

use std::collections::BTreeMap;
use std::net::IpAddr;

use api::model::Labels;
use api::names;
use serde_json::Value as Json;

use super::codes;
use super::gateway_server::{GatewayServer, Shares};
use super::inventory::{Inventory, Item, labels, list, overlap, printable, text, texts};
use super::messages::{Message, push};
use super::server_index::ServerIndex;
use super::workload_index::WorkloadSet;

/// The Gateway that a name means: `NAME`, `NAMESPACE/NAME`, or as releases up to 1.1 wrote it `NAME.NAMESPACE.svc.DOMAIN`.
pub(super) fn named_gateway<'a>(all: &'a Inventory, item: &Item, name: &str) -> Option<&'a Item> {
    let (namespace, short) = match name.split_once('/') {
        Some((".", short)) => (item.namespace.as_str(), short),
        Some(pair) => pair,
        None => {
            let mut parts = name.splitn(3, '.');
            let (short, namespace) = (parts.next().unwrap_or(name), parts.next());
            match namespace {
                // The name of a Gateway may have dots itself, which comes before the old form.
                Some(namespace) if all.find("Gateway", &item.namespace, name).is_none() => {
                    (namespace, short)
                }
                _ => (item.namespace.as_str(), name),
            }
        }
    };
    all.find("Gateway", namespace, short)
}

/// Returns true if a workload that is known has both selectors. One selector is for the same as itself, known or not.
fn meet(one: (&Labels, &WorkloadSet), other: (&Labels, &WorkloadSet)) -> bool {
    one.0 == other.0 || one.1.meets(other.1)
}

fn bind(text: &str) -> String {
    let address = text.parse::<IpAddr>();
    match address.is_ok_and(|address| address.is_unspecified()) {
        true => String::new(),
        false => names::canonical_host(text),
    }
}

fn servers(item: &Item) -> impl Iterator<Item = GatewayServer<'_>> {
    let bare =
        |host: &String| names::canonical_host(host.split_once('/').map_or(host, |(_, host)| host));
    list(&item.body, "/servers").map(move |(at, server)| {
        let hosts = texts(server, "/hosts");
        GatewayServer {
            item,
            at,
            port: server
                .pointer("/port/number")
                .and_then(Json::as_u64)
                .unwrap_or_default(),
            shares: Shares::of(text(server, "/port/protocol")),
            bind: bind(text(server, "/bind")),
            bare: hosts.iter().map(bare).collect(),
            hosts,
        }
    })
}

/// Returns the reason why a port does not serve both of two servers as they are written. `port`: the port, with its workloads.
fn contradiction(one: &GatewayServer<'_>, other: &GatewayServer<'_>, port: &str) -> Option<String> {
    if one.shares.excludes(other.shares) {
        return Some(format!("has {port} with a protocol that cannot share it"));
    }
    let overlaps = |bare: &String| other.bare.iter().any(|other| overlap(bare, other));
    let (host, _) = one
        .hosts
        .iter()
        .zip(&one.bare)
        .find(|(_, bare)| overlaps(bare))?;
    Some(format!("has the host {host:?} on {port}, too"))
}

pub(super) fn find(all: &Inventory, messages: &mut Vec<Message>) {
    // In the order of the first Gateway of each.
    let mut selectors: Vec<(&Labels, &WorkloadSet)> = Vec::new();
    let mut numbers: BTreeMap<&Labels, usize> = BTreeMap::new();
    let mut by_port: BTreeMap<(u64, String), BTreeMap<usize, Vec<GatewayServer<'_>>>> =
        BTreeMap::new();
    for item in all.of("Gateway") {
        let Some(selector) = all.gateway_selector(&labels(item.body.get("selector"))) else {
            continue;
        };
        let number = *numbers.entry(selector.0).or_insert(selectors.len());
        if number == selectors.len() {
            selectors.push(selector);
        }
        // A server without a port is on none.
        for server in servers(item).filter(|server| server.port != 0) {
            let place = by_port.entry((server.port, server.bind.clone()));
            let of_selector = place.or_default().entry(number);
            of_selector.or_default().push(server);
        }
    }
    for ((port, _), by_selector) in by_port {
        of_port(port, &by_selector, &selectors, messages);
    }
}

/// The servers of one port, by the numbers of their selectors.
fn of_port(
    port: u64,
    by_selector: &BTreeMap<usize, Vec<GatewayServer<'_>>>,
    selectors: &[(&Labels, &WorkloadSet)],
    messages: &mut Vec<Message>,
) {
    // Most selectors are for the same as the one before, or for nothing else.
    let mut last: Option<(Vec<usize>, ServerIndex<'_>)> = None;
    for (number, servers) in by_selector {
        let Some(selector) = selectors.get(*number) else {
            continue;
        };
        let is_beside = |other: &&usize| {
            let other = selectors.get(**other);
            other.is_some_and(|other| meet(*selector, *other))
        };
        let beside: Vec<usize> = by_selector.keys().filter(is_beside).copied().collect();
        let index = match last.take() {
            Some((of, index)) if of == beside => index,
            _ => {
                let all = beside.iter().filter_map(|other| by_selector.get(other));
                ServerIndex::new(all.flatten().collect())
            }
        };
        let port = format!("port {port} of the workloads {:?}", printable(selector.0));
        for server in servers {
            let rival = index.rival(server);
            let Some((other, why)) =
                rival.and_then(|other| Some((other, contradiction(server, other, &port)?)))
            else {
                continue;
            };
            let (namespace, name) = (&other.item.namespace, &other.item.name);
            let message = format!("{namespace}/{name} {why}");
            let path = format!("spec.servers[{}]", server.at);
            push(messages, &codes::GATEWAYS, server.item, path, message);
        }
        last = Some((beside, index));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Some Gateways, of servers that share few hosts. `next`: a number below another.
    fn gateways(next: &mut dyn FnMut(usize) -> usize) -> Vec<Item> {
        const HOSTS: [&str; 10] = [
            "*", "*.a", "*.b.a", "*a", "a", "b.a", "c.b.a", ".a", "ns/*.b.a", "",
        ];
        const PROTOCOLS: [&str; 6] = ["HTTP", "HTTP", "HTTPS", "TLS", "TCP", "GRPC"];
        let mut server = || {
            let count = next(3);
            let hosts: Vec<_> = (0..count).map(|_| HOSTS[next(HOSTS.len())]).collect();
            let protocol = PROTOCOLS[next(PROTOCOLS.len())];
            json!({"port": {"number": 80, "protocol": protocol}, "hosts": hosts})
        };
        let item = |number: usize| Item {
            number,
            group: String::new(),
            kind: "Gateway".to_owned(),
            namespace: "n".to_owned(),
            name: format!("g{number}"),
            body: json!({"servers": [server(), server()]}),
            annotations: Json::Null,
        };
        (0..6).map(item).collect()
    }

    #[test]
    fn the_first_rival_is_the_first_that_a_look_at_each_finds() {
        // Xorshift (Marsaglia, 2003).
        let mut state = 1_u32;
        let mut next = |below: usize| {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as usize % below
        };
        let mut rivals = 0;
        for _ in 0..2000 {
            let items = gateways(&mut next);
            let all: Vec<_> = items.iter().flat_map(servers).collect();
            let index = ServerIndex::new(all.iter().collect());
            for server in &all {
                let place = |other: &GatewayServer<'_>| (other.item.number, other.at);
                let mut others = all
                    .iter()
                    .filter(|other| other.item.number != server.item.number);
                let wanted = others.find(|other| contradiction(server, other, "").is_some());
                let rival = index.rival(server).map(place);
                let bodies: Vec<_> = items.iter().map(|one| &one.body).collect();
                assert_eq!(rival, wanted.map(place), "{bodies:?}");
                rivals += usize::from(rival.is_some());
            }
        }
        assert!((1..24_000).contains(&rivals), "{rivals}");
    }
}
