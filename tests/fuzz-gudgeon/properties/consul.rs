//! What must hold of Consul's answers, whatever their bytes are. Asked by the fuzzer, and by a test with its examples.

use std::collections::BTreeSet;

use api::model::Protocol;

use super::convert::{Converted, convert};
use super::wire::{self, Instance};

pub(crate) fn check(bytes: &[u8]) {
    match wire::catalog(bytes) {
        Ok(catalog) => {
            assert!(catalog.names.len() <= wire::NAMES);
            assert!(catalog.names.iter().all(|name| wire::is_usable(name)));
            assert!(catalog.warnings.len() <= 1);
            catalog
                .warnings
                .iter()
                .for_each(|warning| is_one_line(warning));
        }
        Err(why) => is_one_line(&why),
    }
    for read in [wire::health(bytes), wire::instances(bytes)] {
        match read {
            Ok(instances) => converts(instances),
            Err(why) => is_one_line(&why),
        }
    }
}

fn converts(mut instances: Vec<Instance>) {
    assert!(instances.len() <= wire::INSTANCES);
    let cluster = "west".into();
    let one = convert("web", instances.clone(), &cluster);
    holds(&one, &instances);
    instances.reverse();
    for instance in &mut instances {
        instance.tags.reverse();
    }
    let other = convert("web", instances, &cluster);
    assert_eq!(one, other, "the order says something");
}

fn holds(converted: &Converted, instances: &[Instance]) {
    assert_eq!(converted.service.is_some(), !instances.is_empty());
    assert!(converted.warnings.len() <= 11);
    converted
        .warnings
        .iter()
        .for_each(|warning| is_one_line(warning));
    let ports = converted.service.iter().flat_map(|service| &service.ports);
    let ports: Vec<_> = ports.collect();
    let numbers: BTreeSet<_> = ports.iter().map(|port| port.number).collect();
    let names: BTreeSet<_> = ports.iter().map(|port| &port.name).collect();
    assert_eq!([numbers.len(), names.len()], [ports.len(); 2]);
    assert!(!numbers.contains(&0));
    assert!(ports.iter().all(|port| port.protocol != Protocol::Udp));
    assert!(converted.endpoints.is_sorted());
    assert!(converted.endpoints.len() <= instances.len());
    let places: BTreeSet<_> = converted
        .endpoints
        .iter()
        .map(|endpoint| (&endpoint.address, endpoint.port))
        .collect();
    assert_eq!(places.len(), converted.endpoints.len());
    for endpoint in &*converted.endpoints {
        let port = ports.iter().find(|port| port.name == endpoint.port_name);
        assert_eq!(port.map(|port| port.number), Some(endpoint.port));
        assert!(endpoint.address.ip().is_some());
        assert!(endpoint.labels.keys().all(|key| !key.is_empty()));
    }
}

/// For the log.
fn is_one_line(words: &str) {
    assert!(!words.is_empty() && words.len() < 2000, "{}", words.len());
    assert!(!words.contains(char::is_control), "{words:?}");
}
