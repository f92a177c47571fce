//! The table of analyzers: of all objects together, and of each object of a kind.

use Analyzer::{All, Each};

use super::inventory::{Inventory, Item};
use super::messages::Message;
use super::{
    claims, destination_rule_idle_policies, destination_rules, envoy_filters, gateway_ports,
    gateways, ingresses, peer_authentications, ports, references, secrets, sidecars, user_id,
    virtual_service_hosts, virtual_service_idle_routes, workloads,
};

/// A check of what objects say of each other.
enum Analyzer {
    /// Compares all objects.
    All(fn(&Inventory, &mut Vec<Message>)),
    /// Looks at each object of a kind, and at those that it names.
    Each(&'static str, fn(&Inventory, &Item, &mut Vec<Message>)),
}

/// All analyzers; the messages at one line of an object come in this order.
const ANALYZERS: [Analyzer; 30] = [
    Each("VirtualService", references::gateways),
    Each("VirtualService", references::destinations),
    Each("VirtualService", references::delegates),
    Each("DestinationRule", references::host_of_rule),
    Each("AuthorizationPolicy", references::source_namespaces),
    Each("DestinationRule", references::exports),
    Each("ServiceEntry", references::exports),
    Each("VirtualService", references::exports),
    Each("Service", references::exports_of_service),
    All(virtual_service_hosts::find),
    All(sidecars::find),
    All(peer_authentications::find),
    All(gateways::find),
    All(destination_rules::find),
    Each("EnvoyFilter", envoy_filters::relative_patches),
    Each("Service", workloads::service_without_endpoints),
    Each("ServiceEntry", workloads::entry_without_endpoints),
    Each("ServiceEntry", workloads::without_addresses),
    Each("DestinationRule", workloads::subsets),
    All(workloads::selectors),
    Each("AuthorizationPolicy", workloads::whole_namespace),
    All(gateway_ports::find),
    Each("Gateway", secrets::of_gateway),
    Each("DestinationRule", secrets::of_destination_rule),
    All(claims::find),
    All(user_id::find),
    All(ports::find),
    All(virtual_service_idle_routes::find),
    All(destination_rule_idle_policies::find),
    All(ingresses::find),
];

/// Runs all analyzers.
pub(super) fn run(all: &Inventory, messages: &mut Vec<Message>) {
    for analyzer in ANALYZERS {
        match analyzer {
            All(find) => find(all, messages),
            Each(kind, find) => all.of(kind).for_each(|item| find(all, item, messages)),
        }
    }
}
