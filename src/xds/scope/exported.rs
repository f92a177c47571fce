//! Rules and services with those that they are exported to.

use std::sync::Arc;

use api::model::{Objects, Service, World};
use api::names::full_host;
use api::networking::{DestinationRule, DiscoveryKind, VirtualService};

use super::Rule;
use super::export_to::ExportTo;
use crate::common::conflict_pool::ConflictPool;
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
    /// The conflicts of those who see them.
    pub(super) conflict_pool: Arc<ConflictPool>,
    /// Namespaces that see services which do not say so themselves.
    default_export_to: Vec<String>,
    pub(super) domain: Arc<str>,
    pub(super) root: Arc<str>,
}

impl ExportedObjects {
    pub(super) fn new(
        world: &World,
        settings: &Settings,
        conflict_pool: Arc<ConflictPool>,
    ) -> Self {
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
            conflict_pool,
            default_export_to: mesh.default_service_export_to.clone(),
            domain: settings.domain.clone(),
            root: mesh.root_namespace.as_str().into(),
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
    // All that reads the list keeps the first of two: the older one.
    all.sort_by(|one, other| one.rule.order(&other.rule));
    all
}
