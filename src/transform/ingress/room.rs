//! The room that Ingresses share in one object: a Gateway has the servers of all Ingresses of its name, and a host's
//! VirtualService the routes of all that name the host. An object that is too large is not served at all, so the parts that
//! find no room are left out, of the namespaces that bring most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use super::Finding;
use crate::Key;

/// Bytes of JSON for the parts of one object. With [`MAX_METADATA`](super::metadata::MAX_METADATA) they are within the limit of one
/// object.
const ROOM: usize = 1 << 20;

/// The path of a part in its Ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartPath {
    /// The server without a certificate, which every Ingress has.
    Plaintext,
    Tls(usize),
    Route {
        rule: usize,
        path: usize,
    },
}

impl fmt::Display for PartPath {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plaintext => write!(to, "spec"),
            Self::Tls(at) => write!(to, "spec.tls[{at}]"),
            Self::Route { rule, path } => write!(to, "spec.rules[{rule}].http.paths[{path}]"),
        }
    }
}

pub(super) type Rank = (u8, Reverse<usize>);

/// A server or a route.
#[derive(Debug)]
pub(super) struct SharedPart<'a> {
    pub(super) of: &'a Key,
    pub(super) path: PartPath,
    /// Parts stand in this order; those of equal rank as the Ingresses have them.
    pub(super) rank: Rank,
    pub(super) value: Value,
}

/// The parts of one namespace that have no room yet.
#[derive(Default)]
struct PendingParts {
    used: usize,
    /// Each with its number among all, and its bytes.
    parts: VecDeque<(usize, usize)>,
}

/// Returns the parts that fit, by rank. Namespaces share the room equally, and each may use the room that others leave: a
/// namespace with more than its share loses parts of its own, and costs no other namespace any. `object` names the object in
/// the findings, one for each Ingress.
pub(super) fn fitting(
    parts: Vec<SharedPart<'_>>,
    object: &str,
    findings: &mut Vec<Finding>,
) -> Vec<Value> {
    let mut pending: BTreeMap<&str, PendingParts> = BTreeMap::new();
    let mut all = 0_usize;
    for (at, part) in parts.iter().enumerate() {
        let size = bytes_of(&part.value);
        all = all.saturating_add(size);
        let own = pending.entry(&part.of.namespace).or_default();
        match part.path {
            // The plaintext server comes first: an Ingress has it even if its certificates find no room.
            PartPath::Plaintext => own.parts.push_front((at, size)),
            PartPath::Tls(_) | PartPath::Route { .. } => own.parts.push_back((at, size)),
        }
    }
    let left_out = match all <= ROOM {
        true => BTreeSet::new(),
        false => without_room(pending),
    };
    let mut omitted: BTreeMap<&Key, (PartPath, usize)> = BTreeMap::new();
    let mut fitting = Vec::new();
    for (at, part) in parts.into_iter().enumerate() {
        if left_out.contains(&at) {
            let (_, count) = omitted.entry(part.of).or_insert((part.path, 0));
            *count = count.saturating_add(1);
        } else {
            fitting.push(part);
        }
    }
    findings.extend(omitted.into_iter().map(|(ingress, (path, count))| Finding {
        ingress: ingress.clone(),
        path: path.to_string(),
        message: match count {
            1 => format!("is not served: {object}, which Ingresses share, has no room for it"),
            _ => format!(
                "this and {} more are not served: {object}, which Ingresses share, has no room for them",
                count.saturating_sub(1)
            ),
        },
    }));
    // The sort is stable: equal ranks stay as the Ingresses have them.
    fitting.sort_by_key(|part| part.rank);
    fitting.into_iter().map(|part| part.value).collect()
}

/// Hands the room out, part by part, to the namespace that then has least. Returns the numbers of the parts without room.
fn without_room(mut pending: BTreeMap<&str, PendingParts>) -> BTreeSet<usize> {
    let mut left_out = BTreeSet::new();
    let mut room = ROOM;
    let reach = |own: &PendingParts| {
        let (_, size) = own.parts.front()?;
        Some(own.used.saturating_add(*size))
    };
    let mut next: BTreeSet<(usize, &str)> = pending
        .iter()
        .filter_map(|(namespace, own)| Some((reach(own)?, *namespace)))
        .collect();
    while let Some((_, namespace)) = next.pop_first() {
        let Some(own) = pending.get_mut(namespace) else {
            continue;
        };
        let Some((at, size)) = own.parts.pop_front() else {
            continue;
        };
        match room.checked_sub(size) {
            Some(rest) => {
                room = rest;
                own.used = own.used.saturating_add(size);
            }
            None => {
                // A later part of the namespace may be smaller, and still have room.
                left_out.insert(at);
            }
        }
        next.extend(reach(own).map(|reach| (reach, namespace)));
    }
    left_out
}

/// The length as JSON, with the comma behind it.
pub(super) fn bytes_of(value: &impl Serialize) -> usize {
    struct Length(usize);
    impl Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(1);
    match serde_json::to_writer(&mut length, value) {
        Ok(()) => length.0,
        Err(_) => usize::MAX,
    }
}

/// Returns a name that is not taken, and takes it: the name itself, else the name with the first number that is free. Two
/// Ingresses may have one name for their ports: `web` of `shop` has `…-web-shop-1` for its second certificate, and `web` of `shop-1` for
/// its first.
pub(super) fn unique(taken: &mut BTreeSet<String>, name: String) -> String {
    let is_free = |taken: &BTreeSet<String>, name: &str| !taken.contains(name);
    let numbered = (1_u32..).map(|number| format!("{name}-{number}"));
    let free = std::iter::once(name.clone())
        .chain(numbered)
        .find(|name| is_free(taken, name))
        .unwrap_or(name);
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{ANY, GATEWAYS, IngressControllerMode, Outcome, Settings, transform};
    use super::*;
    use api::kubernetes::Ingress;

    /// Transforms Ingresses, each named by `NAMESPACE/NAME`; all that is made is valid.
    fn made(ingresses: &[(&str, Value)]) -> Outcome {
        let mut mesh = api::mesh::MeshConfig::default();
        mesh.set_ingress_controller_mode(IngressControllerMode::Default);
        let ingresses = ingresses.iter().map(|(name, json)| {
            let (namespace, name) = name.split_once('/').unwrap();
            let ingress: Ingress = serde_json::from_value(json.clone()).unwrap();
            (Key::new(namespace, name), ingress)
        });
        let settings = Settings::new(&mesh, "cluster.local");
        let outcome = transform(&ingresses.collect(), &settings, &|_, _| None);
        for one in &outcome.generated {
            let errors = one
                .object()
                .1
                .into_iter()
                .filter(api::config::Finding::is_error);
            assert_eq!(errors.collect::<Vec<_>>(), [], "{}", one.key);
        }
        outcome
    }

    fn servers(outcome: &Outcome) -> Vec<&Value> {
        let mut all = outcome.generated.iter();
        let gateway = all.find(|one| one.collection == GATEWAYS).unwrap();
        gateway.spec["servers"].as_array().unwrap().iter().collect()
    }

    fn findings(outcome: &Outcome) -> Vec<String> {
        let all = outcome.findings.iter();
        all.map(|one| format!("{} {}: {}", one.ingress, one.path, one.message))
            .collect()
    }

    /// An Ingress with so many paths to a host.
    fn paths(host: &str, count: usize) -> Value {
        let paths: Vec<Value> = (0..count)
            .map(|at| {
                json!({
                    "path": format!("/{at}"),
                    "pathType": "Prefix",
                    "backend": {"service": {"name": "web", "port": {"number": 80}}},
                })
            })
            .collect();
        json!({"spec": {"rules": [{"host": host, "http": {"paths": paths}}]}})
    }

    #[test]
    fn ports_of_ingresses_that_share_a_gateway_have_names_of_their_own() {
        let tls = |hosts: &[&str]| {
            let tls: Vec<Value> = hosts.iter().map(|host| json!({"hosts": [host]})).collect();
            json!({"spec": {"tls": tls}})
        };
        let outcome = made(&[
            ("shop/web", tls(&["a.example", "b.example"])),
            ("shop-1/web", tls(&["c.example"])),
        ]);
        let servers = servers(&outcome);
        let ports = servers
            .iter()
            .map(|one| format!("{} {}", one["port"]["name"], one["hosts"][0]).replace('"', ""));
        assert_eq!(
            ports.collect::<Vec<_>>(),
            [
                "https-443-i-web-shop a.example",
                "https-443-i-web-shop-1 b.example",
                "http-80-i-web-shop *",
                "https-443-i-web-shop-1-1 c.example",
                "http-80-i-web-shop-1 *",
            ]
        );
    }

    #[test]
    fn servers_without_room_are_left_out_of_who_brings_them() {
        let outcome = made(&[
            (
                "attacker/web",
                json!({"spec": {"tls": vec![json!({}); 5_000]}}),
            ),
            (
                "victim/web",
                json!({"spec": {"tls": [{"hosts": ["b.example"]}]}}),
            ),
        ]);
        let servers = servers(&outcome);
        let all = servers.len();
        assert!((1000..5_000).contains(&all), "{all}");
        let last: Vec<_> = servers[all - 2..]
            .iter()
            .map(|one| &one["hosts"][0])
            .collect();
        assert_eq!(last, ["b.example", ANY]);
        let left = 5_003 - all;
        let cut = 5_000 - left;
        assert_eq!(
            findings(&outcome),
            [format!(
                "attacker/web spec.tls[{cut}]: this and {} more are not served: the Gateway web-istio-autogenerated-k8s-ingress, which Ingresses share, has no room for them",
                left - 1
            )]
        );
    }

    #[test]
    fn routes_without_room_are_left_out_of_who_brings_them() {
        let outcome = made(&[
            ("attacker/a", paths("shop.example", 4_000)),
            ("attacker/b", paths("shop.example", 4_000)),
            ("attacker/c", paths("shop.example", 4_000)),
            ("victim/web", paths("shop.example", 100)),
        ]);
        let service = outcome.generated.last().unwrap();
        let routes = service.spec["http"].as_array().unwrap();
        let of_victim = routes.iter().filter(|route| {
            let host = &route["route"][0]["destination"]["host"];
            *host == "web.victim.svc.cluster.local"
        });
        assert_eq!(of_victim.count(), 100);
        assert!(routes.len() > 2000, "{}", routes.len());
        let cut: Vec<_> = outcome
            .findings
            .iter()
            .map(|one| one.ingress.to_string())
            .collect();
        assert_eq!(cut, ["attacker/b", "attacker/c"]);
        let finding = &outcome.findings[1];
        assert_eq!(finding.path, "spec.rules[0].http.paths[0]");
        assert_eq!(
            finding.message,
            "this and 3999 more are not served: the VirtualService of shop.example, which Ingresses share, has no room for them"
        );
    }

    /// A namespace that has the object alone may fill it.
    #[test]
    fn an_ingress_that_fits_keeps_all_its_paths() {
        let outcome = made(&[("a/web", paths("shop.example", 3000))]);
        assert_eq!(findings(&outcome), [""; 0]);
        assert_eq!(
            outcome.generated[1].spec["http"].as_array().unwrap().len(),
            3000
        );
    }

    #[test]
    fn a_host_of_which_nothing_has_room_has_no_virtual_service() {
        let mut long = paths("shop.example", 1);
        long["spec"]["rules"][0]["http"]["paths"][0]["path"] = "x".repeat(ROOM).into();
        let outcome = made(&[("a/web", long)]);
        assert_eq!(outcome.generated.len(), 1);
        assert_eq!(
            findings(&outcome),
            [
                "a/web spec.rules[0].http.paths[0]: is not served: the VirtualService of shop.example, which Ingresses share, has no room for it"
            ]
        );
    }

    /// The annotations are those of the first Ingress, and would be the others' loss.
    #[test]
    fn annotations_without_room_are_left_out() {
        let mut first = paths("shop.example", 1);
        first["metadata"] = json!({"annotations": {"a": "x".repeat(1400 << 10)}});
        let outcome = made(&[("a/web", first), ("b/web", paths("shop.example", 2000))]);
        let messages = findings(&outcome);
        assert_eq!(
            messages,
            [
                "a/web metadata: labels and annotations are not taken over: they are longer than 262144 bytes"
            ]
        );
        for one in &outcome.generated {
            assert_eq!(one.annotations.len(), 0);
        }
    }
}
