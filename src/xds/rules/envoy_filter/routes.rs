//! Patches of routes: of route configurations, and of those that stand inside a connection manager.

use std::sync::Arc;

use api::networking::envoy_filter::ApplyTo;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;

use super::list::ListOperation;
use super::matching::{are_routes, is_host, is_route, matches_no_http_route, of_route};
use super::{PatchBudget, Patched};
use crate::finish::Draft;
use crate::scope::envoy_filters::Patch;

impl Patched for RouteConfiguration {
    type EnvoyMessage = Self;
    /// No patch adds one: no listener would refer to it.
    const ADDED_BY: ApplyTo = ApplyTo::RouteConfiguration;

    fn of(whole: Self) -> (Arc<str>, Self) {
        (whole.name.as_str().into(), whole)
    }

    fn apply(draft: &mut Draft<Self>, patch: &Patch, work: &mut PatchBudget<'_>) -> bool {
        apply(&mut draft.message, patch, work);
        true
    }
}

pub(super) fn apply(routes: &mut RouteConfiguration, patch: &Patch, work: &PatchBudget<'_>) {
    if !patch.is_of_routes() {
        return;
    }
    if !are_routes(patch, &routes.name) {
        if matches_no_http_route(patch, &routes.name) {
            let why = "routes of requests in plain text are those of all Gateways of a port: they have no gateway and no portName";
            work.report_mismatch(patch, &routes.name, why);
        }
        return;
    }
    if patch.apply_to == ApplyTo::RouteConfiguration {
        let name = routes.name.clone();
        work.change(patch, routes);
        // Listeners call it by its name.
        routes.name = name;
    } else if patch.apply_to == ApplyTo::VirtualHost {
        let place = ListOperation {
            is_meant: &|host| is_host(patch, host),
            is_chosen: true,
            is_last: &|_| false,
        };
        place.apply(&mut routes.virtual_hosts, patch, work);
    } else {
        let hosts = routes.virtual_hosts.iter_mut();
        for host in hosts.filter(|host| is_host(patch, host)) {
            let place = ListOperation {
                is_meant: &|route| is_route(patch, route),
                is_chosen: of_route(patch).is_some(),
                is_last: &|_| false,
            };
            place.apply(&mut host.routes, patch, work);
        }
    }
}
