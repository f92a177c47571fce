//! Services of Kubernetes that select pods, found by labels that they may select.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::model::{Labels, Registry, Service, World};

type Label = (Arc<str>, Arc<str>);
type ServicesByLabel = BTreeMap<Label, Vec<Arc<Service>>>;

/// Each service stands under one label of its selector: the one that the fewest services of its namespace select, so that a label of
/// all of them does not make every look-up a comparison with all.
#[derive(Debug, Default)]
pub(super) struct SelectingServices(BTreeMap<Arc<str>, ServicesByLabel>);

impl SelectingServices {
    pub(super) fn new(world: &World) -> Self {
        let all = world.services.values();
        let all =
            all.filter(|one| one.registry == Registry::Kubernetes && !one.selector.is_empty());
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        for service in all.clone() {
            for label in &service.selector {
                *counts.entry((&service.key.namespace, label)).or_default() += 1;
            }
        }
        let mut services = Self::default();
        for service in all {
            let namespace = &service.key.namespace;
            let count = |label: &(&_, &_)| counts.get(&(namespace, *label)).copied();
            if let Some((name, value)) = service.selector.iter().min_by_key(count) {
                let of_namespace = services.0.entry(namespace.clone()).or_default();
                let of_label = of_namespace.entry((name.clone(), value.clone()));
                of_label.or_default().push(Arc::clone(service));
            }
        }
        services
    }

    /// Returns the first service, by its key, whose selector matches these labels.
    pub(super) fn first(&self, namespace: &str, labels: &Labels) -> Option<&Arc<Service>> {
        let candidates = self.candidates(namespace, labels).filter(|service| {
            let mut wanted = service.selector.iter();
            wanted.all(|(name, value)| labels.get(name) == Some(value))
        });
        candidates.min_by_key(|service| &service.key)
    }

    /// Services that have one of these labels in their selectors. Each of those that match is one.
    fn candidates(&self, namespace: &str, labels: &Labels) -> impl Iterator<Item = &Arc<Service>> {
        let of_namespace = self.0.get(namespace);
        let labels = labels.iter();
        let services = labels.filter_map(move |(name, value)| {
            let label = (name.clone(), value.clone());
            of_namespace?.get(&label)
        });
        services.flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api::model::{Resolution, ServiceKey};

    use super::*;

    fn labels(of: &[(u8, u8)]) -> Labels {
        let of = of.iter();
        of.map(|(name, value)| (format!("l{name}").into(), format!("v{value}").into()))
            .collect()
    }

    fn world(selectors: impl IntoIterator<Item = Labels>) -> World {
        let services = selectors.into_iter().enumerate().map(|(at, selector)| {
            let key = ServiceKey::new(&format!("s{at:04}.n.svc.cluster.local"), "n");
            let service = Service {
                key: key.clone(),
                registry: Registry::Kubernetes,
                ports: Vec::new(),
                addresses: BTreeMap::new(),
                cluster: "c".into(),
                resolution: Resolution::Static,
                mesh_external: false,
                selector,
                created: None,
                accounts: BTreeSet::new(),
                prefers_close: false,
                exported_to: Vec::new(),
                balancers: BTreeMap::new(),
            };
            (key, Arc::new(service))
        });
        let services = Arc::new(services.collect());
        World {
            services,
            ..World::new(Arc::new(api::mesh::discovery_defaults()))
        }
    }

    #[test]
    fn a_thousand_look_ups_among_a_thousand_services_compare_a_thousand() {
        // The first label is one of all.
        let of = |at: u16| {
            let [high, low] = at.to_be_bytes();
            labels(&[(0, 0), (1, high), (2, low)])
        };
        let own = |at: u16| {
            let mut all = of(at);
            all.insert("z".into(), at.to_string().into());
            all
        };
        let found = SelectingServices::new(&world((0..1000).map(own)));
        let mut compared = 0;
        for at in 0..1000 {
            compared += found.candidates("n", &own(at)).count();
            let name = format!("s{at:04}.n.svc.cluster.local");
            let first = found.first("n", &own(at)).unwrap();
            assert_eq!(*first.key.hostname, *name);
            assert!(found.first("n", &of(at)).is_none());
            assert!(found.first("m", &own(at)).is_none());
        }
        assert_eq!(compared, 1000);
    }

    #[test]
    fn the_service_is_the_one_that_comparing_all_finds() {
        let mut seed = 1_u32;
        // Numerical Recipes' generator: cases of any kind, the same in each run.
        let mut random = |below: u8| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed.to_be_bytes()[0] % below
        };
        let mut any_labels = || {
            let all: Vec<_> = (0..random(4)).map(|_| (random(4), random(3))).collect();
            labels(&all)
        };
        let (mut matched, mut unmatched) = (0, 0);
        for services in 0..40 {
            let selectors: Vec<_> = (0..services).map(|_| any_labels()).collect();
            let world = world(selectors);
            let selecting = SelectingServices::new(&world);
            for _ in 0..100 {
                let own = any_labels();
                let mut all = world.services.values();
                let expected = all.find(|service| {
                    let mut wanted = service.selector.iter();
                    let has_all = wanted.all(|(name, value)| own.get(name) == Some(value));
                    has_all && !service.selector.is_empty()
                });
                let found = selecting.first("n", &own);
                assert_eq!(found.map(|one| &one.key), expected.map(|one| &one.key));
                *expected.map_or(&mut unmatched, |_| &mut matched) += 1;
            }
        }
        assert!(matched > 100 && unmatched > 100, "{matched} {unmatched}");
    }
}
