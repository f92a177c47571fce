//! The VirtualService of a host, with the routes of all rules that name it.

use std::borrow::Cow;

use serde_json::json;

use super::room::fitting;
use super::route::{Route, routes};
use super::{Context, Finding, Generated, SUFFIX, VIRTUAL_SERVICES, generated};
use crate::Key;
use api::kubernetes::{Ingress, ObjectMeta};

/// The VirtualService of a host, of the rules that name it; `None`: none of their routes can be served. The VirtualService of
/// another host may have the same name.
pub(super) fn virtual_service(
    host: &str,
    of: &[(&Key, &Ingress, usize)],
    context: Context<'_>,
    findings: &mut Vec<Finding>,
) -> Option<Generated> {
    let mut merged: Option<Host<'_>> = None;
    for (key, ingress, at) in of {
        let Some(rule) = ingress.spec.rules.get(*at) else {
            continue;
        };
        let routes = routes(key, *at, rule, context, findings);
        // Name and metadata are those of the first Ingress that has a route here, so an Ingress without a route is not the
        // first.
        if routes.is_empty() {
            continue;
        }
        let merged = merged.get_or_insert_with(|| Host {
            first: key,
            metadata: context.carried.carried(key, ingress),
            routes: Vec::new(),
        });
        merged.routes.extend(routes);
    }
    merged?.generated(host, findings)
}

struct Host<'a> {
    first: &'a Key,
    metadata: Cow<'a, ObjectMeta>,
    routes: Vec<Route<'a>>,
}

impl Host<'_> {
    /// `None`: none of the routes has room.
    fn generated(self, host: &str, findings: &mut Vec<Finding>) -> Option<Generated> {
        let parts = self.routes.iter().map(Route::part).collect();
        let http = fitting(parts, &format!("the VirtualService of {host}"), findings);
        if http.is_empty() {
            return None;
        }
        let spec = json!({"hosts": [host], "gateways": [SUFFIX], "http": http});
        let name = format!("{}-{}-{SUFFIX}", host.replace('.', "-"), self.first.name);
        let merged = generated(VIRTUAL_SERVICES, name, self.first, &self.metadata, spec);
        Some(merged)
    }
}
