//! Converts the instances of one name to one service and its endpoints. The order of instances and of tags does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use api::model::{
    ClusterId, Endpoint, EndpointAddress, Health, Labels, Locality, Port, Protocol, Registry,
    Resolution, Service, ServiceKey, Target, TlsMode,
};

use super::wire::{Instance, hostname, quoted};

/// The namespace of all services of Consul.
const NAMESPACE: &str = "default";
/// Warnings of one service at most; the rest is counted.
const MAX_WARNINGS: usize = 10;

/// The service of one name, with its endpoints.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Converted {
    /// `None` if the name has no instance.
    pub(crate) service: Option<Arc<Service>>,
    /// Sorted, none twice.
    pub(crate) endpoints: Arc<[Endpoint]>,
    pub(crate) warnings: Vec<String>,
}

/// A port with its protocol, and the instance that decided it.
struct DecidedPort<'a> {
    protocol: Protocol,
    by: &'a str,
    disputed: bool,
}

pub(crate) fn convert(name: &str, mut instances: Vec<Instance>, cluster: &ClusterId) -> Converted {
    for instance in &mut instances {
        instance.tags.sort_unstable();
    }
    instances.sort();
    let mut warnings = BTreeSet::new();
    let decided = decide_ports(name, &instances, &mut warnings);
    let names = port_names(&decided);
    let mut endpoints: Vec<Endpoint> = instances
        .iter()
        .filter_map(|instance| {
            let port = u16::try_from(instance.port).ok()?;
            // Only ports that are served have a name: UDP and port 0 have none.
            let port_name = names.get(&port)?;
            endpoint(instance, port, port_name)
                .map_err(|warning| warnings.insert(format!("service {name}: {warning}")))
                .ok()
        })
        .collect();
    // An address is one endpoint, ready if one of its instances is.
    endpoints.sort_by(|one, other| {
        let place = |at: &Endpoint| (at.address.clone(), at.port, at.health);
        place(one).cmp(&place(other)).then_with(|| one.cmp(other))
    });
    endpoints.dedup_by(|later, first| later.address == first.address && later.port == first.port);
    let service = (!instances.is_empty()).then(|| {
        let external = instances.iter().any(|instance| instance.external);
        let ports = names.iter().filter_map(|(number, port_name)| {
            let protocol = decided.get(number)?.protocol;
            Some(Port {
                name: port_name.clone(),
                number: *number,
                protocol,
                target: Target::Number(*number),
            })
        });
        Arc::new(service(name, ports.collect(), external, cluster))
    });
    Converted {
        service,
        endpoints: endpoints.into(),
        warnings: few(name, warnings),
    }
}

pub(crate) fn key(name: &str) -> ServiceKey {
    ServiceKey::new(&hostname(name), NAMESPACE)
}

fn service(name: &str, ports: Vec<Port>, external: bool, cluster: &ClusterId) -> Service {
    Service {
        key: key(name),
        registry: Registry::Consul,
        ports,
        addresses: BTreeMap::new(),
        cluster: cluster.clone(),
        resolution: if external {
            Resolution::None
        } else {
            Resolution::Static
        },
        mesh_external: external,
        selector: Labels::new(),
        created: None,
        accounts: BTreeSet::new(),
        prefers_close: false,
        exported_to: Vec::new(),
        balancers: BTreeMap::new(),
    }
}

/// The protocol of each port: where two disagree, the smaller service id wins, and the instances come in that order.
fn decide_ports<'a>(
    name: &str,
    instances: &'a [Instance],
    warnings: &mut BTreeSet<String>,
) -> BTreeMap<u16, DecidedPort<'a>> {
    let mut decided: BTreeMap<u16, DecidedPort<'a>> = BTreeMap::new();
    for instance in instances {
        let id = quoted(&instance.id);
        let Ok(number) = u16::try_from(instance.port) else {
            let port = instance.port;
            warnings.insert(format!("service {name}: port {port} of {id} is no port"));
            continue;
        };
        // Port 0: the service is looked up for its address alone.
        if number == 0 {
            continue;
        }
        let protocol = match instance.protocol.as_str() {
            "" => Protocol::Tcp,
            other => other.parse().unwrap_or_else(|_| {
                let other = quoted(other);
                warnings.insert(format!(
                    "service {name}: unknown protocol {other} of {id}; treated as TCP"
                ));
                Protocol::Tcp
            }),
        };
        let first = decided.entry(number).or_insert(DecidedPort {
            protocol,
            by: &instance.id,
            disputed: false,
        });
        if first.protocol != protocol && !first.disputed {
            first.disputed = true;
            let (by, wins) = (quoted(first.by), first.protocol);
            warnings.insert(format!(
                "service {name}: port {number} is {wins} by {by} and {protocol} by {id}: {wins} counts"
            ));
        }
    }
    decided
}

/// Endpoints join their port by its name, so that no two ports may have the same: the smallest number has the plain one.
fn port_names(decided: &BTreeMap<u16, DecidedPort<'_>>) -> BTreeMap<u16, Arc<str>> {
    let mut taken = BTreeSet::new();
    decided
        .iter()
        .filter(|(_, port)| port.protocol != Protocol::Udp)
        .map(|(number, port)| {
            let word = port.protocol.as_str().to_ascii_lowercase();
            let name = if taken.insert(port.protocol) {
                word
            } else {
                format!("{word}-{number}")
            };
            (*number, name.into())
        })
        .collect()
}

fn endpoint(instance: &Instance, port: u16, port_name: &Arc<str>) -> Result<Endpoint, String> {
    let address: IpAddr = instance.address.parse().map_err(|_| {
        let (address, id) = (quoted(&instance.address), quoted(&instance.id));
        format!("cannot serve {id} at {address}: want an IP address")
    })?;
    let labels = labels(&instance.tags);
    Ok(Endpoint {
        tls: TlsMode::of_labels(&labels),
        labels: Arc::new(labels),
        locality: Locality::from(instance.datacenter.as_str()),
        health: if instance.served {
            Health::Ready
        } else {
            Health::NotReady
        },
        port_name: port_name.clone(),
        ..Endpoint::new(EndpointAddress::Ip(address), port, "")
    })
}

/// Tags of the form `key|value`. If a key has two values, the smaller one counts.
fn labels(tags: &[String]) -> Labels {
    let mut labels = Labels::new();
    let mut sorted: Vec<_> = tags.iter().filter_map(|tag| tag.split_once('|')).collect();
    sorted.sort_unstable();
    for (key, value) in sorted {
        if !key.is_empty() {
            labels.entry(key.into()).or_insert_with(|| value.into());
        }
    }
    labels
}

fn few(name: &str, warnings: BTreeSet<String>) -> Vec<String> {
    let more = warnings.len().saturating_sub(MAX_WARNINGS);
    let mut few: Vec<String> = warnings.into_iter().take(MAX_WARNINGS).collect();
    if more > 0 {
        few.push(format!("service {name}: and {more} more such"));
    }
    few
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(id: &str, port: i64, protocol: &str) -> Instance {
        Instance {
            id: id.to_owned(),
            node: "node".to_owned(),
            address: "10.0.0.1".to_owned(),
            port,
            datacenter: "dc1".to_owned(),
            tags: Vec::new(),
            protocol: protocol.to_owned(),
            external: false,
            served: true,
        }
    }

    fn converted(instances: &[Instance]) -> Converted {
        convert("web", instances.to_vec(), &"west".into())
    }

    /// Ports as `number name protocol`, endpoints as `address:port name`.
    fn drawn(converted: &Converted) -> (Vec<String>, Vec<String>) {
        let ports = converted.service.iter().flat_map(|service| &service.ports);
        let ports = ports.map(|port| format!("{} {} {}", port.number, port.name, port.protocol));
        let endpoints = converted.endpoints.iter();
        let endpoints =
            endpoints.map(|one| format!("{}:{} {}", one.address, one.port, one.port_name));
        (ports.collect(), endpoints.collect())
    }

    #[test]
    fn each_port_is_one_of_the_service_and_names_are_not_shared() {
        let seen = converted(&[
            instance("a", 8080, "http"),
            instance("b", 8081, "HTTP"),
            instance("c", 9000, ""),
            instance("d", 5353, "udp"),
            instance("e", 0, "http"),
        ]);
        let (ports, endpoints) = drawn(&seen);
        assert_eq!(
            ports,
            ["8080 http HTTP", "8081 http-8081 HTTP", "9000 tcp TCP"]
        );
        assert_eq!(
            endpoints,
            [
                "10.0.0.1:8080 http",
                "10.0.0.1:8081 http-8081",
                "10.0.0.1:9000 tcp"
            ]
        );
        assert_eq!(seen.warnings, Vec::<String>::new());
        let service = seen.service.unwrap();
        assert_eq!(&*service.key.hostname, "web.service.consul");
        assert_eq!(&*service.key.namespace, "default");
        assert_eq!(service.resolution, Resolution::Static);
    }

    #[test]
    fn the_smaller_id_of_two_protocols_wins() {
        let mut all = vec![instance("b", 80, "grpc"), instance("a", 80, "http")];
        for _ in 0..2 {
            let seen = converted(&all);
            assert_eq!(drawn(&seen).0, ["80 http HTTP"]);
            assert_eq!(
                seen.warnings,
                ["service web: port 80 is HTTP by \"a\" and GRPC by \"b\": HTTP counts"]
            );
            all.reverse();
        }
    }

    #[test]
    fn tags_in_another_order_decide_nothing() {
        // One id on two nodes of the same name, as a node has it that is registered anew.
        let mut all = vec![instance("a", 80, "http"), instance("a", 80, "grpc")];
        all[0].tags = ["x", "b"].map(str::to_owned).into();
        all[1].tags = ["y", "a"].map(str::to_owned).into();
        let one = converted(&all);
        for instance in &mut all {
            instance.tags.reverse();
        }
        assert_eq!(converted(&all), one);
    }

    #[test]
    fn invalid_instances_are_left_out_with_a_warning() {
        let seen = converted(&[
            instance("a", 70_000, "http"),
            instance("b", -1, "http"),
            instance("c", 80, "quic"),
            Instance {
                address: "host.example".to_owned(),
                ..instance("d", 80, "tcp")
            },
        ]);
        assert_eq!(drawn(&seen).1, ["10.0.0.1:80 tcp"]);
        assert_eq!(
            seen.warnings,
            [
                "service web: cannot serve \"d\" at \"host.example\": want an IP address",
                "service web: port -1 of \"b\" is no port",
                "service web: port 70000 of \"a\" is no port",
                "service web: unknown protocol \"quic\" of \"c\"; treated as TCP",
            ]
        );
    }

    #[test]
    fn warnings_have_a_bound() {
        let all: Vec<_> = (0..100)
            .map(|at| instance(&format!("{at}"), -at - 1, ""))
            .collect();
        let warnings = converted(&all).warnings;
        assert_eq!(warnings.len(), MAX_WARNINGS + 1);
        assert_eq!(warnings.last().unwrap(), "service web: and 90 more such");
    }

    #[test]
    fn an_instance_is_a_ready_endpoint_unless_a_check_says_no() {
        let mut one = instance("a", 80, "http");
        one.tags = [
            "version|v2",
            "plain",
            "|x",
            "version|v1",
            "security.istio.io/tlsMode|istio",
        ]
        .map(str::to_owned)
        .into();
        let mut other = instance("b", 80, "http");
        other.address = "10.0.0.2".to_owned();
        other.served = false;
        let seen = converted(&[one, other]);
        let [first, second] = &*seen.endpoints else {
            panic!("{seen:?}")
        };
        let labels: Vec<_> = first
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        assert_eq!(labels, ["security.istio.io/tlsMode=istio", "version=v1"]);
        assert_eq!(first.tls, TlsMode::Istio);
        assert_eq!(first.locality.region(), "dc1");
        assert_eq!(
            [first.health, second.health],
            [Health::Ready, Health::NotReady]
        );
    }

    #[test]
    fn one_external_instance_makes_the_service_so() {
        let mut one = instance("a", 80, "http");
        one.external = true;
        let service = converted(&[one, instance("b", 80, "http")])
            .service
            .unwrap();
        assert!(service.mesh_external);
        assert_eq!(service.resolution, Resolution::None);
        assert!(!service.is_headless());
    }

    #[test]
    fn without_instances_there_is_no_service() {
        assert_eq!(converted(&[]).service, None);
    }
}
