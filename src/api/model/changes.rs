//! The objects that an update changed, by kind, and the pushes that follow from the kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::{ClusterId, PushRequest, ServiceKey, TriggerReason, WorkloadKey};

/// Names of one kind at most. Beyond them a full push costs no more than one of the names.
const MAX_NAMES: usize = 10_000;
/// Names of one kind in the log.
const MAX_SHOWN: usize = 3;

/// A kind of objects that an update changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangedKind {
    /// Endpoints of services that are as they were.
    Endpoints,
    /// Workloads, each seen by its own proxies only.
    Workload,
    Service,
    /// A kind of configuration, as the table of kinds has it.
    Configuration(&'static str),
    Credential,
    Ingress,
    MeshConfig,
    MeshNetworks,
}

impl ChangedKind {
    /// Returns the reason for a full push; `None`: kinds of endpoints, whose services decide it.
    #[must_use]
    pub const fn full(self) -> Option<TriggerReason> {
        match self {
            Self::Endpoints | Self::Workload => None,
            Self::Service => Some(TriggerReason::Service),
            Self::Configuration(_) | Self::Credential | Self::Ingress => {
                Some(TriggerReason::Config)
            }
            Self::MeshConfig | Self::MeshNetworks => Some(TriggerReason::Global),
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Endpoints => "Endpoints",
            Self::Workload => "Pod",
            Self::Service => "Service",
            Self::Configuration(kind) => kind,
            Self::Credential => "Secret",
            Self::Ingress => "Ingress",
            Self::MeshConfig => "MeshConfig",
            Self::MeshNetworks => "MeshNetworks",
        }
    }
}

/// The name of a changed object. A service is named by its host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangedName {
    /// The cluster of a workload.
    cluster: Option<ClusterId>,
    namespace: Arc<str>,
    name: Arc<str>,
}

impl From<&ServiceKey> for ChangedName {
    fn from(key: &ServiceKey) -> Self {
        Self {
            cluster: None,
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&key.hostname),
        }
    }
}

impl From<&WorkloadKey> for ChangedName {
    fn from(key: &WorkloadKey) -> Self {
        Self {
            cluster: Some(key.cluster.clone()),
            namespace: Arc::clone(&key.namespace),
            name: Arc::clone(&key.name),
        }
    }
}

/// An object by namespace and name.
impl From<&(Arc<str>, Arc<str>)> for ChangedName {
    fn from((namespace, name): &(Arc<str>, Arc<str>)) -> Self {
        Self {
            cluster: None,
            namespace: Arc::clone(namespace),
            name: Arc::clone(name),
        }
    }
}

/// Returns the objects whose served versions an update changed. An object that another source overrides changes nothing.
///
/// Names are shared with the objects. `None`: more than `MAX_NAMES` names, or a kind of which there is one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    kinds: BTreeMap<ChangedKind, Option<BTreeSet<ChangedName>>>,
}

impl Changes {
    /// Adds an object.
    pub fn add(&mut self, kind: ChangedKind, name: impl Into<ChangedName>) {
        let names = self
            .kinds
            .entry(kind)
            .or_insert_with(|| Some(BTreeSet::new()));
        // `None` stays: any object of the kind may have changed already.
        if let Some(known) = names {
            known.insert(name.into());
            if known.len() > MAX_NAMES {
                *names = None;
            }
        }
    }

    /// Adds a kind of which there is one object.
    pub fn add_single(&mut self, kind: ChangedKind) {
        self.kinds.insert(kind, None);
    }

    /// Adds all objects of another update.
    pub fn extend(&mut self, other: &Self) {
        for (kind, names) in &other.kinds {
            match names {
                Some(names) => names.iter().for_each(|name| self.add(*kind, name.clone())),
                None => self.add_single(*kind),
            }
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns the changed objects of a kind. `None`: any of them may have changed.
    #[must_use]
    pub fn names(&self, kind: ChangedKind) -> Option<&BTreeSet<ChangedName>> {
        const NOTHING: &BTreeSet<ChangedName> = &BTreeSet::new();
        self.kinds.get(&kind).map_or(Some(NOTHING), Option::as_ref)
    }

    /// Returns the pushes that follow from the kinds: endpoints alone for kinds of endpoints, else a full one for each reason.
    /// Endpoints are named beside it: they wait less than the rest. `only_assignments` returns true for a service of whose
    /// resources the endpoints change nothing but assignments.
    #[must_use]
    pub fn pushes(&self, only_assignments: impl Fn(&ServiceKey) -> bool) -> Vec<PushRequest> {
        let mut full = BTreeSet::new();
        let (mut hosts, mut proxies) = (BTreeSet::new(), Vec::new());
        for (kind, names) in &self.kinds {
            match (kind, names) {
                (ChangedKind::Endpoints, Some(names)) => {
                    for key in names.iter().map(ChangedName::service) {
                        if only_assignments(&key) {
                            hosts.insert(key.hostname);
                        } else {
                            full.insert(TriggerReason::Endpoint);
                        }
                    }
                }
                (ChangedKind::Endpoints, None) => drop(full.insert(TriggerReason::Endpoint)),
                (ChangedKind::Workload, Some(names)) => {
                    proxies.extend(names.iter().filter_map(ChangedName::workload));
                }
                (ChangedKind::Workload, None) => drop(full.insert(TriggerReason::Proxy)),
                (kind, _) => full.extend(kind.full()),
            }
        }
        if !full.is_empty() {
            // A full push reaches every proxy.
            proxies.clear();
        }
        let endpoints = (!hosts.is_empty()).then_some(PushRequest::Endpoints(hosts));
        let full = full.into_iter().map(PushRequest::Full);
        let proxies = proxies.into_iter().map(PushRequest::Proxy);
        full.chain(endpoints).chain(proxies).collect()
    }
}

impl ChangedName {
    /// Returns the key, if this is the name of a service.
    #[must_use]
    pub fn service(&self) -> ServiceKey {
        ServiceKey {
            hostname: Arc::clone(&self.name),
            namespace: Arc::clone(&self.namespace),
        }
    }

    /// Returns the namespace and the name, if this is the name of an object.
    #[must_use]
    pub fn object(&self) -> (Arc<str>, Arc<str>) {
        (Arc::clone(&self.namespace), Arc::clone(&self.name))
    }

    fn workload(&self) -> Option<WorkloadKey> {
        Some(WorkloadKey {
            cluster: self.cluster.clone()?,
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.name),
        })
    }
}

impl fmt::Display for ChangedName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}", self.namespace, self.name)
    }
}

/// In one line, with the first names of each kind.
impl fmt::Display for Changes {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, names)) in self.kinds.iter().enumerate() {
            let comma = if at == 0 { "" } else { "; " };
            write!(to, "{comma}{}", kind.as_str())?;
            let Some(names) = names else { continue };
            let mut first = names.iter().take(MAX_SHOWN);
            first.try_for_each(|name| write!(to, " {name}"))?;
            let more = names.len().saturating_sub(MAX_SHOWN);
            if more > 0 {
                write!(to, " and {more} more")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(host: &str) -> ServiceKey {
        ServiceKey::new(host, "demo")
    }

    fn pod(name: &str) -> WorkloadKey {
        WorkloadKey {
            cluster: "east".into(),
            namespace: "demo".into(),
            name: name.into(),
        }
    }

    fn endpoints(hosts: &[&str]) -> PushRequest {
        PushRequest::Endpoints(hosts.iter().map(|host| (*host).into()).collect())
    }

    #[test]
    fn kinds_of_endpoints_need_no_full_push() {
        let mut changes = Changes::default();
        assert!(changes.is_empty() && changes.pushes(|_| true).is_empty());
        changes.add(ChangedKind::Endpoints, &service("b"));
        changes.add(ChangedKind::Endpoints, &service("a"));
        changes.add(ChangedKind::Endpoints, &service("a"));
        changes.add(ChangedKind::Workload, &pod("a-1"));
        let pushes = [endpoints(&["a", "b"]), PushRequest::Proxy(pod("a-1"))];
        assert_eq!(changes.pushes(|_| true), pushes);
        assert_eq!(changes.to_string(), "Endpoints demo/a demo/b; Pod demo/a-1");
        // Where clusters or listeners are made of some, these need one, which reaches every proxy.
        let pushes = [
            PushRequest::Full(TriggerReason::Endpoint),
            endpoints(&["b"]),
        ];
        assert_eq!(changes.pushes(|key| &*key.hostname != "a"), pushes);
        // Each other kind needs one, whatever else changes.
        let single = |kind| matches!(kind, ChangedKind::MeshConfig | ChangedKind::MeshNetworks);
        for (kind, reason) in [
            (ChangedKind::Service, TriggerReason::Service),
            (ChangedKind::Configuration("Sidecar"), TriggerReason::Config),
            (ChangedKind::Credential, TriggerReason::Config),
            (ChangedKind::Ingress, TriggerReason::Config),
            (ChangedKind::MeshConfig, TriggerReason::Global),
            (ChangedKind::MeshNetworks, TriggerReason::Global),
        ] {
            let mut changes = changes.clone();
            match single(kind) {
                true => changes.add_single(kind),
                false => changes.add(kind, &service("c")),
            }
            let pushes = [PushRequest::Full(reason), endpoints(&["a", "b"])];
            assert_eq!(changes.pushes(|_| true), pushes, "{kind:?}");
        }
    }

    #[test]
    fn a_reason_is_named_once() {
        let mut changes = Changes::default();
        let name = (Arc::from("demo"), Arc::from("a"));
        changes.add(ChangedKind::Configuration("Sidecar"), &name);
        changes.add(ChangedKind::Configuration("Gateway"), &name);
        changes.add(ChangedKind::Service, &service("a"));
        let pushes = [TriggerReason::Service, TriggerReason::Config].map(PushRequest::Full);
        assert_eq!(changes.pushes(|_| true), pushes);
    }

    #[test]
    fn updates_add_up_and_name_their_objects() {
        let (gateway, other) = (
            ChangedKind::Configuration("Gateway"),
            ChangedKind::Configuration("Sidecar"),
        );
        let mut all = Changes::default();
        for name in ["a", "b"] {
            let mut changes = Changes::default();
            changes.add(gateway, &(Arc::from("demo"), Arc::from(name)));
            changes.add(ChangedKind::Service, &service(name));
            changes.add_single(ChangedKind::MeshConfig);
            all.extend(&changes);
        }
        let names = all.names(gateway).unwrap().iter();
        let names: Vec<_> = names.map(ChangedName::object).collect();
        assert_eq!(names, ["a", "b"].map(|name| ("demo".into(), name.into())));
        let services = all.names(ChangedKind::Service).unwrap().iter();
        assert!(
            services
                .map(ChangedName::service)
                .eq(["a", "b"].map(service))
        );
        assert!(all.names(other).unwrap().is_empty());
        assert_eq!(all.names(ChangedKind::MeshConfig), None);
        // What is unknown once stays so.
        let mut single = Changes::default();
        single.add_single(gateway);
        single.extend(&all);
        all.extend(&single);
        assert_eq!((single.names(gateway), all.names(gateway)), (None, None));
    }

    #[test]
    fn names_have_a_bound() {
        for (kind, reason) in [
            (ChangedKind::Endpoints, TriggerReason::Endpoint),
            (ChangedKind::Workload, TriggerReason::Proxy),
            (ChangedKind::Service, TriggerReason::Service),
        ] {
            let mut changes = Changes::default();
            for at in 0..MAX_NAMES {
                add(&mut changes, kind, &at.to_string());
            }
            // The same once more takes no room.
            add(&mut changes, kind, "0");
            let before = changes.clone();
            assert!(before.kinds[&kind].is_some(), "{kind:?}");
            assert!(before.to_string().ends_with(" and 9997 more"));
            add(&mut changes, kind, "more");
            assert_eq!(changes.kinds[&kind], None);
            assert_eq!(changes.pushes(|_| true), [PushRequest::Full(reason)]);
            add(&mut changes, kind, "more");
            assert_eq!(changes.kinds[&kind], None);
        }
    }

    fn add(changes: &mut Changes, kind: ChangedKind, name: &str) {
        if kind == ChangedKind::Workload {
            changes.add(kind, &pod(name));
        } else {
            changes.add(kind, &service(name));
        }
    }
}
