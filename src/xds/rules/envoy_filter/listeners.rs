//! Patches of listeners: of the whole, of its chains, and of the filters of connections and requests in them.

use std::sync::Arc;

use api::networking::envoy_filter::ApplyTo;
use api::networking::envoy_filter::patch::Operation;
use envoy_types::pb::envoy::config::core::v3::TrafficDirection;
use envoy_types::pb::envoy::config::listener::v3::{
    Filter, FilterChain, Listener, ListenerFilter, filter,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};

use super::list::ListOperation;
use super::matching::{
    filter_name, is_chain, is_listener, is_named, is_port, is_whole_listener, of_listener,
    sub_filter_name,
};
use super::{PatchBudget, Patched, routes};
use crate::finish::Draft;
use crate::scope::envoy_filters::Patch;

/// Filters that take a connection to its end: Envoy wants them last.
const CONNECTION_ENDS: [&str; 2] = [
    "envoy.filters.network.http_connection_manager",
    "envoy.filters.network.tcp_proxy",
];
/// The terminal HTTP filter.
const REQUEST_END: &str = "envoy.filters.http.router";

impl Patched for Listener {
    type EnvoyMessage = Self;
    const ADDED_BY: ApplyTo = ApplyTo::Listener;

    fn of(whole: Self) -> (Arc<str>, Self) {
        (whole.name.as_str().into(), whole)
    }

    fn apply(draft: &mut Draft<Self>, patch: &Patch, work: &mut PatchBudget<'_>) -> bool {
        let listener = &mut draft.message;
        match patch.apply_to {
            ApplyTo::Listener => {
                let is_added = patch.operation == Operation::Add;
                if is_added || !is_whole_listener(patch, listener) {
                    return true;
                }
                if patch.operation == Operation::Remove {
                    return false;
                }
                work.change(patch, listener);
                // Streams know the listener by its name, so a patch does not change it.
                listener.name = draft.name.to_string();
            }
            ApplyTo::ListenerFilter if is_whole_listener(patch, listener) => {
                let name = of_listener(patch).map_or("", |one| one.listener_filter.as_str());
                let place = ListOperation {
                    is_meant: &|filter: &ListenerFilter| is_named(name, &filter.name),
                    is_chosen: !name.is_empty(),
                    is_last: &|_| false,
                };
                place.apply(&mut listener.listener_filters, patch, work);
            }
            ApplyTo::FilterChain if is_listener(patch, listener) => chains(listener, patch, work),
            ApplyTo::NetworkFilter => network_filters(listener, patch, work),
            ApplyTo::HttpFilter => http_filters(listener, patch, work),
            ApplyTo::RouteConfiguration | ApplyTo::VirtualHost | ApplyTo::HttpRoute => {
                inside_routes(listener, patch, work);
            }
            ApplyTo::ListenerFilter
            | ApplyTo::FilterChain
            | ApplyTo::Cluster
            | ApplyTo::ExtensionConfig
            | ApplyTo::Bootstrap
            | ApplyTo::Invalid => {}
        }
        true
    }
}

fn network_filters(listener: &mut Listener, patch: &Patch, work: &PatchBudget<'_>) {
    let name = filter_name(patch);
    let is_end = |filter: &Filter| {
        let mut ends = CONNECTION_ENDS.iter();
        ends.any(|end| is_named(end, &filter.name))
    };
    let place = ListOperation {
        is_meant: &|filter: &Filter| is_named(name, &filter.name),
        is_chosen: !name.is_empty(),
        is_last: &is_end,
    };
    each_chain(listener, patch, |chain| {
        place.apply(&mut chain.filters, patch, work);
    });
}

fn http_filters(listener: &mut Listener, patch: &Patch, work: &PatchBudget<'_>) {
    let name = sub_filter_name(patch);
    let place = ListOperation {
        is_meant: &|filter: &HttpFilter| is_named(name, &filter.name),
        is_chosen: !name.is_empty(),
        is_last: &|filter| is_named(REQUEST_END, &filter.name),
    };
    each_manager(listener, patch, work, |manager| {
        place.apply(&mut manager.http_filters, patch, work);
    });
}

/// Requests that come in have their routes inside; others ask for theirs by name.
fn inside_routes(listener: &mut Listener, patch: &Patch, work: &PatchBudget<'_>) {
    if listener.traffic_direction() != TrafficDirection::Inbound {
        return;
    }
    each_manager(listener, patch, work, |manager| {
        if let Some(RouteSpecifier::RouteConfig(inside)) = &mut manager.route_specifier {
            routes::apply(inside, patch, work);
        }
    });
}

fn chains(listener: &mut Listener, patch: &Patch, work: &PatchBudget<'_>) {
    if patch.operation == Operation::Add {
        if is_port(patch, listener)
            && let Some(added) = work.value::<FilterChain>(patch)
        {
            // Envoy refuses a listener with two that match the same.
            let matched =
                |chain: &FilterChain| chain.filter_chain_match.clone().unwrap_or_default();
            let is_there = |chain: &FilterChain| matched(chain) == matched(&added);
            let is_told_apart = listener.filter_chain_matcher.is_some();
            if work.has_last_chains.get()
                && !is_told_apart
                && listener.filter_chains.iter().any(is_there)
            {
                work.report_unapplied(patch, "a filter chain of it matches the same");
                return;
            }
            listener.filter_chains.push(added);
            work.touch();
        }
        return;
    }
    let is_port = is_port(patch, listener);
    let place = ListOperation {
        is_meant: &|chain| is_chain(patch, is_port, chain),
        is_chosen: true,
        is_last: &|_| false,
    };
    place.apply(&mut listener.filter_chains, patch, work);
    // The default chain is patched like the others, as a list of one.
    let rest = listener.default_filter_chain.take();
    let mut rest: Vec<FilterChain> = rest.into_iter().collect();
    place.apply(&mut rest, patch, work);
    listener.default_filter_chain = rest.pop();
}

fn each_chain(listener: &mut Listener, patch: &Patch, mut act: impl FnMut(&mut FilterChain)) {
    if !is_listener(patch, listener) {
        return;
    }
    let is_port = is_port(patch, listener);
    let rest = listener.default_filter_chain.iter_mut();
    let all = listener.filter_chains.iter_mut().chain(rest);
    for chain in all.filter(|chain| is_chain(patch, is_port, chain)) {
        act(chain);
    }
}

/// Connection managers of chains that a patch means, each written again where something was done to it.
fn each_manager(
    listener: &mut Listener,
    patch: &Patch,
    work: &PatchBudget<'_>,
    mut act: impl FnMut(&mut HttpConnectionManager),
) {
    let url = HttpConnectionManager::type_url();
    each_chain(listener, patch, |chain| {
        for filter in &mut chain.filters {
            let name = filter_name(patch);
            let Some(filter::ConfigType::TypedConfig(any)) = &mut filter.config_type else {
                continue;
            };
            if any.type_url != url || !is_named(name, &filter.name) {
                continue;
            }
            if !work.has_room_to_read(patch, any.value.len()) {
                continue;
            }
            let Ok(mut manager) = HttpConnectionManager::decode(&*any.value) else {
                continue;
            };
            if work.is_touched_by(|| act(&mut manager)) {
                *any = Any {
                    type_url: url.clone(),
                    value: manager.encode_to_vec(),
                };
            }
        }
    });
}
