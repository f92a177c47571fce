//! Property: a push concerns the proxies that see one of the objects that changed and nobody else, and whoever is not concerned has
//! nothing else to be sent.

use std::collections::{BTreeMap, BTreeSet};

use api::model::{ChangedKind, Changes};
use proptest::prelude::*;

use super::authorization;
use super::sidecars::sidecar;
use super::*;

const NAMESPACES: [&str; 4] = ["demo", "other", "third", "fourth"];

/// A change of one object.
#[derive(Clone, Debug)]
struct Step {
    action: Action,
    namespace: usize,
    name: u8,
    content: u8,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Service,
    Endpoints,
    NoService,
    Route,
    NoRoute,
    Rule,
    Imports,
    Policy,
}

prop_compose! {
    fn step()(
        action in prop::sample::select(vec![
            Action::Service, Action::Endpoints, Action::NoService, Action::Route, Action::NoRoute, Action::Rule, Action::Imports,
            Action::Policy,
        ]),
        namespace in 0..NAMESPACES.len(), name in 0_u8..3, content in 0_u8..3,
    ) -> Step {
        Step { action, namespace, name, content }
    }
}

impl Step {
    /// Takes the step, and names the object as a source does.
    fn take(&self, world: &mut World, changes: &mut Changes) {
        let (namespace, name, content) = (NAMESPACES[self.namespace], self.name, self.content);
        let host = format!("s{name}.{namespace}.svc.cluster.local");
        let key = ServiceKey::new(&host, namespace);
        let full = format!("{namespace}/o{name}");
        let mut add = |kind: &'static str, name: String| {
            let kind = ChangedKind::Configuration(kind);
            changes.add(kind, &(namespace.into(), name.as_str().into()));
        };
        match self.action {
            Action::Service => {
                let ports = [(80 + u16::from(content), "HTTP")];
                service(world, &format!("s{name}.{namespace}"), &ports, &[]);
                changes.add(ChangedKind::Service, &key);
            }
            Action::Endpoints if world.services.contains_key(&key) => {
                let address = EndpointAddress::read(&format!("10.0.{name}.{content}"));
                let one = Endpoint::new(address, 80, "p80");
                let shards = EndpointShards::from([("Kubernetes".into(), [one].into())]);
                Arc::make_mut(&mut world.endpoints).insert(key.clone(), Arc::new(shards));
                changes.add(ChangedKind::Endpoints, &key);
            }
            Action::Endpoints => {}
            Action::NoService => {
                Arc::make_mut(&mut world.services).remove(&key);
                Arc::make_mut(&mut world.endpoints).remove(&key);
                changes.add(ChangedKind::Service, &key);
            }
            Action::Route => {
                let status = 418 + u16::from(content);
                let http = format!("http: [{{directResponse: {{status: {status}}}}}]");
                let to = ["'*'", "'.'", "third"][usize::from(content)];
                let spec = format!("hosts: [{host}]\nexportTo: [{to}]\n{http}");
                virtual_service(world, &full, 1, &spec);
                add(VirtualService::NAME, format!("o{name}"));
            }
            Action::NoRoute => {
                let key = (namespace.into(), format!("o{name}").as_str().into());
                Arc::make_mut(&mut world.virtual_services).remove(&key);
                add(VirtualService::NAME, format!("o{name}"));
            }
            Action::Rule => {
                let to = ["'.'", "'*'", "demo"][usize::from(content)];
                destination_rule(world, &full, 1, &format!("host: {host}\nexportTo: [{to}]"));
                add(DestinationRule::NAME, format!("o{name}"));
            }
            Action::Imports => {
                let from = ["./*", "other/*", "*/*"][usize::from(content)];
                let egress = format!("egress: [{{hosts: ['{from}']}}]");
                sidecar(world, &format!("{namespace}/s"), 1, &egress);
                add(api::networking::Sidecar::NAME, "s".to_owned());
            }
            Action::Policy => {
                authorization::policy(world, &full, "{}");
                add(api::security::AuthorizationPolicy::NAME, format!("o{name}"));
            }
        }
    }
}

/// Returns the keys of values that differ.
fn differing<K: Ord + Clone, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let all = before.keys().chain(after.keys());
    all.filter(|key| before.get(*key) != after.get(*key))
        .cloned()
        .collect()
}

/// Returns true if proxies of a namespace import what another namespace, or this one, has.
fn imports(world: &World, namespace: &str, of: &str) -> bool {
    let sidecar = world.sidecars.get(&(namespace.into(), "s".into()));
    sidecar.is_none_or(|sidecar| match &*sidecar.spec.egress[0].hosts[0] {
        "./*" => namespace == of,
        "other/*" => of == "other",
        _ => true,
    })
}

/// Returns true if a rule with this field is exported to a namespace.
fn is_exported(to: &[String], own: &str, namespace: &str) -> bool {
    to.iter()
        .any(|to| *to == "*" || *to == namespace || (*to == "." && own == namespace))
}

/// Returns true if proxies of a namespace may see something of what differs, read off the objects alone. Services of their own
/// namespace, and rules for those, may be about their own application.
fn may_see(before: &World, after: &World, namespace: &str) -> bool {
    let in_one = |sees: &dyn Fn(&World) -> bool| sees(before) || sees(after);
    let is_own = |(of, _): &(Arc<str>, Arc<str>)| **of == *namespace;
    let mut services = differing(&before.services, &after.services);
    services.extend(differing(&before.endpoints, &after.endpoints));
    let sees_service = |key: &ServiceKey| {
        let of = &*key.namespace;
        let sees =
            |world: &World| world.services.contains_key(key) && imports(world, namespace, of);
        of == namespace || in_one(&sees)
    };
    let sees_route = |key: &(Arc<str>, Arc<str>)| {
        in_one(&|world| {
            let rule = world.virtual_services.get(key);
            let is_exported = |rule: &Arc<Configured<VirtualService>>| {
                is_exported(&rule.spec.export_to, &key.0, namespace)
            };
            rule.is_some_and(is_exported) && imports(world, namespace, &key.0)
        })
    };
    let sees_rule = |key: &(Arc<str>, Arc<str>)| {
        in_one(&|world| {
            let rule = world.destination_rules.get(key);
            let is_exported = |rule: &Arc<Configured<DestinationRule>>| {
                is_exported(&rule.spec.export_to, &key.0, namespace)
            };
            rule.is_some_and(is_exported) && (is_own(key) || imports(world, namespace, &key.0))
        })
    };
    let routes = differing(&before.virtual_services, &after.virtual_services);
    let rules = differing(&before.destination_rules, &after.destination_rules);
    let sidecars = differing(&before.sidecars, &after.sidecars);
    let policies = differing(
        &before.authorization_policies,
        &after.authorization_policies,
    );
    services.iter().any(sees_service)
        || routes.iter().any(sees_route)
        || rules.iter().any(sees_rule)
        || sidecars.iter().chain(&policies).any(is_own)
}

fn versions(view: &dyn View) -> [crate::version::Version; 4] {
    [Type::Cluster, Type::Endpoint, Type::Listener, Type::Route]
        .map(|kind| view.all(kind).version())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_push_concerns_those_whose_scope_holds_what_changed(
        earlier in prop::collection::vec(step(), 0..12), later in prop::collection::vec(step(), 0..4),
    ) {
        let mut before = world();
        for step in &earlier {
            step.take(&mut before, &mut Changes::default());
        }
        let (mut after, mut changes) = (before.clone(), Changes::default());
        for step in &later {
            step.take(&mut after, &mut changes);
        }
        let first = snapshot(before.clone());
        let next = first.next(after.clone(), None, Some(&changes));
        let compared = first.next(after.clone(), None, None);
        for namespace in NAMESPACES {
            let node = node(namespace, &[]);
            let concerns = next.concerns(&node);
            prop_assert_eq!(concerns, compared.concerns(&node), "{}", namespace);
            let (older, newer) = (first.view(&node), next.snapshot.view(&node));
            let is_same = versions(&*older) == versions(&*newer);
            prop_assert!(concerns || is_same, "{}", namespace);
            prop_assert!(!concerns || may_see(&before, &after, namespace), "{} for nothing", namespace);
        }
    }
}
