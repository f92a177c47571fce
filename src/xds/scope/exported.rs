//! Rules and services with those that they are exported to.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::model::{Objects, Service, World};
use api::names::full_host;
use api::networking::{DestinationRule, DiscoveryKind, VirtualService};

use super::export_to::ExportTo;
use super::{Rule, is_of_mesh};
use crate::common::conflict::{Conflict, Conflicts, REJECTED_CONFIG};
use crate::common::service_ports::ServicePorts;
use crate::settings::Settings;

/// A rule with those that see it.
#[derive(Debug)]
pub(super) struct Exported<T> {
    pub(super) rule: Arc<Rule<T>>,
    pub(super) to: ExportTo,
}

/// The rules and the services of a world, each with those that see it.
#[derive(Debug)]
pub(crate) struct ExportedObjects {
    pub(super) virtual_services: Vec<Exported<VirtualService>>,
    pub(super) destination_rules: Vec<Exported<DestinationRule>>,
    /// None of their ports is seen: they are what scopes choose from.
    pub(super) services: ServicePorts,
    /// Namespaces that see services which do not say so themselves.
    default_export_to: Vec<String>,
    pub(super) domain: Arc<str>,
}

impl ExportedObjects {
    pub(super) fn new(world: &World, settings: &Settings) -> Self {
        let mesh = &world.mesh;
        Self {
            virtual_services: exported(
                &world.virtual_services,
                &settings.domain,
                &mesh.default_virtual_service_export_to,
                |spec| (&spec.hosts, &spec.export_to),
            ),
            destination_rules: exported(
                &world.destination_rules,
                &settings.domain,
                &mesh.default_destination_rule_export_to,
                |spec| (std::slice::from_ref(&spec.host), &spec.export_to),
            ),
            services: ServicePorts::index(world, settings),
            default_export_to: mesh.default_service_export_to.clone(),
            domain: settings.domain.clone(),
        }
    }

    pub(super) fn audience(&self, service: &Service) -> ExportTo {
        ExportTo::of(
            &service.exported_to,
            &self.default_export_to,
            &service.key.namespace,
        )
    }

    /// Returns true if proxies of a namespace see a service.
    pub(super) fn is_visible(&self, service: &Service, namespace: Option<&Arc<str>>) -> bool {
        self.audience(service).has(namespace)
    }

    /// Iterates over all DestinationRules, whether or not a proxy sees them.
    pub(crate) fn all_destination_rules(&self) -> impl Iterator<Item = &DestinationRule> {
        self.destination_rules.iter().map(|one| one.rule.spec())
    }

    /// DestinationRules with their hosts, in full and in lower case.
    pub(crate) fn hosts_of_destination_rules(
        &self,
    ) -> impl Iterator<Item = (&[String], &DestinationRule)> {
        let all = self.destination_rules.iter();
        all.map(|one| (one.rule.hosts(), one.rule.spec()))
    }

    /// Tells of routes for connections of sidecars that come to nothing: listeners have them by the services whose hosts they are.
    pub(super) fn without_services(&self, world: &World) -> Vec<Conflict> {
        let of_sidecars = self.virtual_services.iter().filter(|one| {
            let spec = one.rule.spec();
            is_of_mesh(&spec.gateways) && has_connections_of_sidecars(spec)
        });
        let mut of_sidecars = of_sidecars.peekable();
        if of_sidecars.peek().is_none() {
            return Vec::new();
        }
        let known: BTreeSet<String> = world
            .services
            .keys()
            .map(|key| reversed(&key.hostname))
            .collect();
        let is_known = |host: &str| match host.strip_prefix('*') {
            None => known.contains(&reversed(host)),
            Some(end) => {
                let end = reversed(end);
                let mut from = known.range(end.clone()..);
                from.next().is_some_and(|host| host.starts_with(&end))
            }
        };
        let mut lost = Conflicts::default();
        for Exported { rule, .. } in of_sidecars {
            if !rule.hosts().iter().any(|host| is_known(host)) {
                lost.push(REJECTED_CONFIG, Some(&rule.from), || {
                    let message = "no tls or tcp route of it applies to sidecars: no service has one of its hosts";
                    (rule.from.to_string(), message.to_owned())
                });
            }
        }
        lost.finish()
    }
}

fn exported<T: DiscoveryKind>(
    objects: &Objects<T>,
    domain: &str,
    usual: &[String],
    parts: impl Fn(&T) -> (&[String], &[String]),
) -> Vec<Exported<T>> {
    let all = objects.values().map(|object| {
        let (hosts, to) = parts(&object.spec);
        let hosts = hosts.iter();
        let hosts = hosts.map(|host| full_host(host, &object.namespace, domain));
        Exported {
            to: ExportTo::of(to, usual, &object.namespace),
            rule: Arc::new(Rule::new(object, hosts.collect())),
        }
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by(|one, other| one.rule.order(&other.rule));
    all
}

/// Returns true if routes of `tls` or `tcp` say nothing of gateways, or name `mesh`.
fn has_connections_of_sidecars(spec: &VirtualService) -> bool {
    let tls = spec
        .tls
        .iter()
        .flat_map(|route| &route.r#match)
        .map(|one| &one.gateways);
    let tcp = spec
        .tcp
        .iter()
        .flat_map(|route| &route.r#match)
        .map(|one| &one.gateways);
    tls.chain(tcp).any(|gateways| is_of_mesh(gateways))
        || spec.tcp.iter().any(|route| route.r#match.is_empty())
}

/// In lower case, from its end.
fn reversed(host: &str) -> String {
    let letters = host.chars().rev();
    letters.map(|letter| letter.to_ascii_lowercase()).collect()
}
