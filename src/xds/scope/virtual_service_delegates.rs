//! Routes that a VirtualService leaves to another: they take the place of the one that names it (discovery.md §14). One level
//! deep: what a delegate leaves to others is left out.

mod matches;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::istio::networking::v1alpha3::{Destination, HttpMatchRequest, HttpRoute};
use api::model::{Configured, ObjectRef};
use api::names::full_host;
use api::networking::{DiscoveryKind as _, VirtualService};
use prost::Message as _;

use self::matches::{Contradiction, combined, fully_named, joined};
use super::Rule;
use super::exported::Exported;
use crate::common::conflict::{Conflict, DELEGATE, TOO_LARGE};

/// Bytes that the routes of one rule may come to by its delegates, and those of all rules of a namespace. Chosen: a rule of the
/// longest there may be (1 MiB) fits four times; a thousand rules that leave all to one do not. Read, routes take twenty times as
/// much memory.
const ROOM: usize = 2 << 20;
const ROOM_OF_NAMESPACE: usize = 4 << 20;
/// Bytes of [`ROOM`] that comparing two matches costs, and again for each gateway that they name.
const COMPARED: usize = 64;

/// A delegate by its namespace and name.
type Delegates = BTreeMap<(Arc<str>, Arc<str>), usize>;

/// Puts the routes of delegates into the rules that name them. Returns a conflict for each delegate that is left out.
pub(super) fn resolve(all: &mut [Exported<VirtualService>], domain: &str) -> Vec<Conflict> {
    let delegates: Delegates = all
        .iter()
        .enumerate()
        .filter(|(_, one)| one.rule.spec().hosts.is_empty())
        .map(|(at, one)| {
            (
                (one.rule.namespace().clone(), one.rule.from.name.clone()),
                at,
            )
        })
        .collect();
    let mut conflicts = Vec::new();
    let mut spent: HashMap<Arc<str>, usize> = HashMap::new();
    // Delegates have no hosts and are never resolved themselves, so the order of rules does not matter.
    for at in 0..all.len() {
        let Some(rule) = all.get(at).map(|one| one.rule.clone()) else {
            continue;
        };
        let mut http = rule.spec().http.iter();
        if rule.spec().hosts.is_empty() || !http.any(|route| route.delegate.is_some()) {
            continue;
        }
        let of_namespace = spent.entry(rule.namespace().clone()).or_default();
        let room = ROOM.min(ROOM_OF_NAMESPACE.saturating_sub(*of_namespace));
        let mut resolving = Resolving {
            all,
            delegates: &delegates,
            domain,
            rule: &rule,
            room,
            with: Vec::new(),
            conflicts: &mut conflicts,
        };
        let http = resolving.http();
        *of_namespace += room - resolving.room;
        let with = resolving.with;
        let object = Configured {
            spec: VirtualService {
                http,
                ..rule.spec().clone()
            },
            ..(*rule.object).clone()
        };
        let resolved = Rule {
            object: Arc::new(object),
            from: rule.from.clone(),
            with,
            hosts: rule.hosts.clone(),
        };
        if let Some(one) = all.get_mut(at) {
            one.rule = Arc::new(resolved);
        }
    }
    conflicts
}

/// One rule while its delegates are looked for.
struct Resolving<'a> {
    all: &'a [Exported<VirtualService>],
    delegates: &'a Delegates,
    domain: &'a str,
    rule: &'a Rule<VirtualService>,
    room: usize,
    with: Vec<ObjectRef>,
    conflicts: &'a mut Vec<Conflict>,
}

/// A rule has no room for more routes of delegates.
struct TooLarge;

impl<'a> Resolving<'a> {
    fn lose(&mut self, metric: &'static str, what: &str) {
        let message = format!("of {}: {what}", self.rule.from);
        let conflict = Conflict::new(metric, self.rule.from.to_string(), message);
        self.conflicts.push(conflict.because_of(&self.rule.from));
    }

    fn http(&mut self) -> Vec<HttpRoute> {
        let mut routes = Vec::new();
        for (at, root) in self.rule.spec().http.iter().enumerate() {
            match &root.delegate {
                None => routes.push(root.clone()),
                Some(to) => {
                    let namespace = if to.namespace.is_empty() {
                        self.rule.namespace().clone()
                    } else {
                        to.namespace.as_str().into()
                    };
                    let key = (namespace, Arc::from(to.name.as_str()));
                    self.leave(at, root, &key, &mut routes);
                }
            }
        }
        routes
    }

    /// Adds the routes that the delegate of a route has in its place.
    fn leave(
        &mut self,
        at: usize,
        root: &HttpRoute,
        key: &(Arc<str>, Arc<str>),
        routes: &mut Vec<HttpRoute>,
    ) {
        // It is named where it changes, too: it may become one.
        self.with.push(ObjectRef {
            kind: VirtualService::NAME,
            namespace: key.0.clone(),
            name: key.1.clone(),
        });
        let delegate = match self.delegate(key) {
            Ok(delegate) => delegate,
            Err(why) => return self.lose(DELEGATE, &format!("http[{at}] is left out: {why}")),
        };
        for leaf in delegate.spec().http.iter().enumerate() {
            match self.route((at, root), leaf, delegate) {
                Ok(route) => routes.extend(route),
                Err(TooLarge) => return self.too_large(),
            }
        }
    }

    /// The rule that a route is left to, or the reason why it cannot be.
    fn delegate(&self, key: &(Arc<str>, Arc<str>)) -> Result<&'a Rule<VirtualService>, String> {
        let name = format!("{}/{}", key.0, key.1);
        let rule = self.delegates.get(key).and_then(|at| self.all.get(*at));
        let Some(delegate) = rule else {
            return Err(format!("there is no VirtualService {name} without hosts"));
        };
        if !delegate.to.has(Some(self.rule.namespace())) {
            return Err(format!("{name} is not exported to its namespace"));
        }
        Ok(&delegate.rule)
    }

    /// The requests of both a route and one of its delegate; `None`: there are none, which is reported.
    fn route(
        &mut self,
        (root_at, root): (usize, &HttpRoute),
        (leaf_at, leaf): (usize, &HttpRoute),
        delegate: &Rule<VirtualService>,
    ) -> Result<Option<HttpRoute>, TooLarge> {
        let namespace = delegate.namespace();
        let name = format!("{namespace}/{}", delegate.from.name);
        if leaf.delegate.is_some() {
            let why = format!(
                "http[{leaf_at}] of {name} is left out: it leaves requests to others itself"
            );
            self.lose(DELEGATE, &why);
            return Ok(None);
        }
        // The comparison is paid for before it is made: both sides may have any number of matches.
        self.spend(cost_of_comparison(root, leaf))?;
        let roots = fully_named(&root.r#match, self.rule.namespace());
        let leaves = fully_named(&leaf.r#match, namespace);
        let matches = match combined(roots, leaves) {
            Ok(matches) => matches,
            Err(Contradiction(of)) => {
                let why = format!(
                    "http[{leaf_at}] of {name} is left out: no request meets both its match[{of}] and a match of http[{root_at}], or no \
                     one match says which do"
                );
                self.lose(DELEGATE, &why);
                return Ok(None);
            }
        };
        let route = both(root, leaf, matches, namespace, self.domain);
        self.spend(route.encoded_len())?;
        Ok(Some(route))
    }

    fn spend(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.room = self.room.checked_sub(bytes).ok_or(TooLarge)?;
        Ok(())
    }

    fn too_large(&mut self) {
        let why = format!(
            "routes of delegates are left out: they are larger than {} MiB, or those of its namespace than {} MiB",
            ROOM >> 20,
            ROOM_OF_NAMESPACE >> 20
        );
        self.lose(TOO_LARGE, &why);
    }
}

/// Bytes that the comparison of all matches of two routes costs.
fn cost_of_comparison(root: &HttpRoute, leaf: &HttpRoute) -> usize {
    let (roots, leaves) = (&root.r#match, &leaf.r#match);
    let pairs = roots.len().max(1).saturating_mul(leaves.len().max(1));
    let gateways = roots.iter().chain(leaves).map(|one| one.gateways.len());
    pairs.saturating_mul(COMPARED * (1 + gateways.max().unwrap_or_default()))
}

/// The delegate's route; what it does not say is as its rule says it. Hosts are those of its own namespace.
fn both(
    root: &HttpRoute,
    leaf: &HttpRoute,
    matches: Vec<HttpMatchRequest>,
    namespace: &str,
    domain: &str,
) -> HttpRoute {
    let mut route = leaf.clone();
    let full = |to: &mut Destination| to.host = full_host(&to.host, namespace, domain);
    let destinations = route.route.iter_mut();
    destinations
        .filter_map(|one| one.destination.as_mut())
        .chain(route.mirror.as_mut())
        .chain(
            route
                .mirrors
                .iter_mut()
                .filter_map(|one| one.destination.as_mut()),
        )
        .for_each(full);
    // Those of the rule have the namespace of the rule, which is where they are looked for.
    if route.mirror.is_none() && route.mirrors.is_empty() {
        route.mirror.clone_from(&root.mirror);
        route.mirrors.clone_from(&root.mirrors);
        route.mirror_percent = root.mirror_percent;
        route.mirror_percentage.clone_from(&root.mirror_percentage);
    }
    HttpRoute {
        r#match: matches,
        name: joined(&root.name, &leaf.name),
        rewrite: route.rewrite.or_else(|| root.rewrite.clone()),
        timeout: route.timeout.or(root.timeout),
        retries: route.retries.or_else(|| root.retries.clone()),
        fault: route.fault.or_else(|| root.fault.clone()),
        cors_policy: route.cors_policy.or_else(|| root.cors_policy.clone()),
        headers: route.headers.or_else(|| root.headers.clone()),
        ..route
    }
}
