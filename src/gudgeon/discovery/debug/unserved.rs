//! The reason for which a port of a service has no endpoints: the first usual cause that applies.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use api::counted;
use api::model::{Health, Labels, Port, Registry, Resolution, Service, Target, World, selects};

use super::endpoints_by_port::EndpointsByPort;

/// Names of ports in one sentence.
const NAMES: usize = 5;

/// The causes for the ports of one service; what is the same for all of them is found once.
#[derive(Debug)]
pub(crate) struct Unserved<'a> {
    world: &'a World,
    service: &'a Service,
    endpoints: &'a EndpointsByPort<'a>,
    pods: OnceCell<Pods<'a>>,
}

impl<'a> Unserved<'a> {
    pub(crate) fn new(
        world: &'a World,
        service: &'a Service,
        endpoints: &'a EndpointsByPort<'a>,
    ) -> Self {
        Self {
            world,
            service,
            endpoints,
            pods: OnceCell::new(),
        }
    }

    /// Returns the reason; `None` if the port has endpoints, or needs none from discovery.
    pub(crate) fn reason(&self, port: &Port) -> Option<String> {
        let finds_itself = match self.service.resolution {
            // Connections go where they wanted to; or the name of the service itself is resolved.
            Resolution::None => !self.service.is_headless(),
            Resolution::Dns | Resolution::DnsRoundRobin => self.service.selector.is_empty(),
            Resolution::Static => false,
        };
        if finds_itself || self.endpoints.served(port).next().is_some() {
            return None;
        }
        let own = self.endpoints.of(port).count();
        if own > 0 {
            let mut of_port = self.endpoints.of(port);
            let why = if of_port.any(|(_, endpoint)| endpoint.weight > 0) {
                "none is ready"
            } else {
                "each has weight 0"
            };
            return Some(format!("{}: {why}", counted(own, "endpoint")));
        }
        let (count, names) = self.endpoints.names(NAMES);
        if count > 0 {
            return Some(format!(
                "{}, and none has a port named {:?}: they have {}",
                counted(count, "endpoint"),
                &*port.name,
                quoted(&names)
            ));
        }
        let pods = self.pods.get_or_init(|| selected(self.world, self.service));
        Some(without_any(self.service, port, pods))
    }
}

/// The pods that the selector of a service matches.
#[derive(Debug, Default)]
struct Pods<'a> {
    all: usize,
    ready: usize,
    /// The names of their ports.
    names: BTreeSet<&'a str>,
}

fn selected<'a>(world: &'a World, service: &Service) -> Pods<'a> {
    let mut pods = Pods::default();
    for pod in world.workloads.values() {
        if pod.key.namespace == service.key.namespace && selects(&service.selector, &pod.labels) {
            pods.all += 1;
            pods.ready += usize::from(pod.health == Health::Ready);
            pods.names.extend(pod.ports.keys().map(|name| &**name));
        }
    }
    pods
}

/// The cause for a service without any endpoint.
fn without_any(service: &Service, port: &Port, pods: &Pods<'_>) -> String {
    let name = &*port.name;
    if service.selector.is_empty() {
        return format!(
            "no endpoints: it has no selector, and none with a port named {name:?} is written for it"
        );
    }
    let matches = format!(
        "no endpoints: its selector {} matches",
        text(&service.selector)
    );
    if pods.all == 0 {
        let more = match service.registry {
            Registry::External => " and no WorkloadEntry",
            Registry::Kubernetes | Registry::Consul | Registry::Memory => "",
        };
        return format!(
            "{matches} no pod{more} of namespace {}",
            service.key.namespace
        );
    }
    let all = counted(pods.all, "pod");
    if let Target::Name(target) = &port.target
        && !pods.names.contains(&**target)
    {
        let names: Vec<_> = pods.names.iter().take(NAMES).copied().collect();
        let have = if names.is_empty() {
            "no named port".to_owned()
        } else {
            quoted(&names)
        };
        return format!("{matches} {all}, and none has a port named {target:?}: they have {have}");
    }
    match pods.ready {
        0 => format!("{matches} {all}: none is ready"),
        ready => format!(
            "{matches} {all}, of which {ready} ready: no endpoint with a port named {name:?} is written"
        ),
    }
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    names.join(", ")
}

fn text(labels: &Labels) -> String {
    let all = labels.iter();
    let all: Vec<_> = all.map(|(name, value)| format!("{name}={value}")).collect();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use api::model::{
        Endpoint, EndpointAddress, EndpointShards, Locality, ServiceKey, Workload, WorkloadKey,
    };

    use super::*;
    use crate::discovery::testing;

    fn labels(app: &str) -> Labels {
        Labels::from([("app".into(), app.into())])
    }

    fn service(resolution: Resolution, selector: Labels) -> Service {
        Service {
            resolution,
            selector,
            ..testing::service(ServiceKey::new("b.demo", "demo"))
        }
    }

    fn endpoint(port: &str, health: Health, weight: u32) -> Endpoint {
        Endpoint {
            health,
            weight,
            ..Endpoint::new(EndpointAddress::read("10.0.0.1"), 80, port)
        }
    }

    /// The cause for the one port of a service, in a namespace that has pods with these labels.
    fn cause(
        service: &Service,
        endpoints: Vec<Endpoint>,
        pods: &[(&str, Health)],
    ) -> Option<String> {
        let mut world = World::new(Arc::default());
        let shards = EndpointShards::from([("c".into(), endpoints.into())]);
        Arc::make_mut(&mut world.endpoints).insert(service.key.clone(), Arc::new(shards));
        for (number, (app, health)) in pods.iter().enumerate() {
            for namespace in ["demo", "other"] {
                let key = WorkloadKey {
                    cluster: "c".into(),
                    namespace: namespace.into(),
                    name: number.to_string().as_str().into(),
                };
                let pod = Workload {
                    key: key.clone(),
                    addresses: Vec::new(),
                    labels: Arc::new(labels(app)),
                    locality: Locality::default(),
                    network: None,
                    account: None,
                    ports: BTreeMap::new(),
                    owner: None,
                    health: *health,
                };
                Arc::make_mut(&mut world.workloads).insert(key, Arc::new(pod));
            }
        }
        let endpoints = EndpointsByPort::new(&world, service);
        Unserved::new(&world, service, &endpoints).reason(&service.ports[0])
    }

    #[test]
    fn the_first_cause_that_holds_is_reported() {
        let own = service(Resolution::Static, labels("b"));
        let bare = service(Resolution::Static, Labels::new());
        let ready = endpoint("http", Health::Ready, 1);
        let other = endpoint("web", Health::Ready, 1);
        for (service, endpoints, pods, reason) in [
            (&own, vec![ready.clone()], vec![], None),
            (
                &own,
                vec![endpoint("http", Health::NotReady, 1); 2],
                vec![],
                Some("2 endpoints: none is ready"),
            ),
            (
                &own,
                vec![endpoint("http", Health::Ready, 0)],
                vec![],
                Some("1 endpoint: each has weight 0"),
            ),
            (
                &own,
                vec![other],
                vec![],
                Some("1 endpoint, and none has a port named \"http\": they have \"web\""),
            ),
            (
                &own,
                vec![],
                vec![("c", Health::Ready)],
                Some("no endpoints: its selector app=b matches no pod of namespace demo"),
            ),
            (
                &own,
                vec![],
                vec![("b", Health::NotReady)],
                Some("no endpoints: its selector app=b matches 1 pod: none is ready"),
            ),
            (
                &own,
                vec![],
                vec![("b", Health::NotReady), ("b", Health::Ready)],
                Some(
                    "no endpoints: its selector app=b matches 2 pods, of which 1 ready: no endpoint with a port named \"http\" is written",
                ),
            ),
            (
                &bare,
                vec![],
                vec![],
                Some(
                    "no endpoints: it has no selector, and none with a port named \"http\" is written for it",
                ),
            ),
        ] {
            assert_eq!(cause(service, endpoints, &pods).as_deref(), reason);
        }
        for resolution in [Resolution::Dns, Resolution::DnsRoundRobin] {
            assert_eq!(
                cause(&service(resolution, Labels::new()), vec![], &[]),
                None
            );
        }
        let mut external = service(Resolution::None, Labels::new());
        external.registry = Registry::External;
        assert_eq!(cause(&external, vec![], &[]), None);
    }
}
