//! PeerAuthentication: whether a workload takes mutual TLS, port by port (discovery.md §18).
//!
//! Clients and servers hear of a change at different times. For a while after one, what was said before counts, too: clients
//! speak mutual TLS where it is taken by both, and servers take whatever either of both lets clients speak.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::model::{Labels, ObjectRef};
use api::security::PeerAuthentication;
use api::security::peer_authentication::MutualTls;
use api::security::peer_authentication::mutual_tls::Mode as Written;

use crate::scope::Rule;
use crate::scope::policies::{PeerPolicies, Policies};

/// The connections that a port accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MtlsMode {
    /// Plain connections alone.
    Disable,
    /// Both.
    Permissive,
    /// Mutual TLS alone.
    Strict,
}

/// The modes that the policies of one workload set; `None` where no policy sets one.
#[derive(Clone, Debug, Default)]
struct PolicyModes {
    /// The most specific policy.
    from: Option<Arc<Rule<PeerAuthentication>>>,
    workload: Option<MtlsMode>,
    /// The policy that sets it.
    of_workload: Option<Arc<Rule<PeerAuthentication>>>,
    ports: BTreeMap<u16, MtlsMode>,
}

impl PolicyModes {
    /// The modes of the policies that hold for a workload, in order: the oldest counts of those for the whole mesh, of those for
    /// its namespace, and of those for the workload itself.
    fn of(policies: &[Arc<Rule<PeerAuthentication>>], root: &str) -> Self {
        let is_whole = |rule: &Rule<PeerAuthentication>| {
            let selector = rule.spec().selector.as_ref();
            selector.is_none_or(|selector| selector.match_labels.is_empty())
        };
        let is_root = |rule: &Rule<PeerAuthentication>| **rule.namespace() == *root;
        let first = |is: &dyn Fn(&Rule<PeerAuthentication>) -> bool| {
            let all = policies.iter().filter(|rule| is(rule));
            let oldest = all.min_by(|one, other| one.order(other));
            oldest.cloned()
        };
        let mesh = first(&|rule| is_whole(rule) && is_root(rule));
        let namespace = first(&|rule| is_whole(rule) && !is_root(rule));
        let own = first(&|rule| !is_whole(rule));
        let levels = [&own, &namespace, &mesh].into_iter().flatten();
        let of_level = |rule: &Arc<Rule<_>>| {
            let spec: &PeerAuthentication = rule.spec();
            Some((mode(spec.mtls.as_ref()?)?, rule.clone()))
        };
        let (workload, of_workload) = levels.into_iter().find_map(of_level).unzip();
        // As in Istio, ports have modes in a policy with a selector alone.
        let ports = own.iter().flat_map(|rule| &rule.spec().port_level_mtls);
        let ports =
            ports.filter_map(|(port, spec)| Some((u16::try_from(*port).ok()?, mode(spec)?)));
        let ports = ports.collect();
        Self {
            from: own.or(namespace).or(mesh),
            workload,
            of_workload,
            ports,
        }
    }

    /// The policy that sets the mode of a port.
    fn deciding(&self, port: u16) -> Option<&ObjectRef> {
        let policy = match self.ports.contains_key(&port) {
            true => &self.from,
            false => &self.of_workload,
        };
        policy.as_ref().map(|rule| &rule.from)
    }

    /// The mode of a port, or of the workload if the port has none of its own.
    fn of_port(&self, port: u16) -> Option<MtlsMode> {
        self.ports.get(&port).copied().or(self.workload)
    }
}

/// The modes of one workload, for itself as a server and for its clients.
#[derive(Clone, Debug)]
pub(crate) struct MtlsModes {
    /// The mesh's mode, where no policy sets one.
    usual: MtlsMode,
    now: PolicyModes,
    before: Vec<PolicyModes>,
}

impl MtlsModes {
    pub(crate) fn new(
        policies: &Policies,
        (namespace, labels): (&Arc<str>, &Labels),
        usual: MtlsMode,
    ) -> Self {
        let (now, before) = policies.peers(namespace, labels);
        let modes = |all: PeerPolicies| PolicyModes::of(&all, policies.root());
        Self {
            usual,
            now: modes(now),
            before: before.into_iter().map(modes).collect(),
        }
    }

    /// The policy that holds now, where there is one.
    pub(crate) fn from(&self) -> Option<&ObjectRef> {
        self.now.from.as_ref().map(|rule| &rule.from)
    }

    /// The policy that sets the mode of a port now, where one does.
    pub(crate) fn deciding(&self, port: u16) -> Option<&ObjectRef> {
        self.now.deciding(port)
    }

    /// Returns the policies that hold now in words that change with what they select and say.
    pub(crate) fn describe(&self) -> String {
        let PolicyModes {
            from,
            workload,
            of_workload: _,
            ports,
        } = &self.now;
        let name = self.from().map(ToString::to_string);
        let name = name.as_deref().unwrap_or("mesh");
        let selector = from.as_ref().and_then(|rule| rule.spec().selector.as_ref());
        let selector = selector.map(|selector| &selector.match_labels);
        format!("{name} {selector:?} {workload:?} {ports:?}")
    }

    /// Returns true if a policy sets the mode of a port, now or a while ago; `None`: of the ports without one of their own.
    pub(crate) fn has_mode(&self, port: Option<u16>) -> bool {
        let mode = |modes: &PolicyModes| match port {
            Some(port) => modes.of_port(port),
            None => modes.workload,
        };
        let mut all = self.before.iter().chain([&self.now]);
        all.any(|modes| mode(modes).is_some())
    }

    /// `None`: the workload's default mode.
    fn modes(&self, port: Option<u16>) -> (MtlsMode, Vec<MtlsMode>) {
        let of = |modes: &PolicyModes| {
            let mode = match port {
                Some(port) => modes.of_port(port),
                None => modes.workload,
            };
            mode.unwrap_or(self.usual)
        };
        (of(&self.now), self.before.iter().map(of).collect())
    }

    /// The mode of the server at a port; `None`: at every port without one of its own.
    pub(crate) fn of_server(&self, port: Option<u16>) -> MtlsMode {
        let (now, before) = self.modes(port);
        of_server(now, &before)
    }

    /// The mode of clients at a port.
    pub(crate) fn of_clients(&self, port: u16) -> MtlsMode {
        let (now, before) = self.modes(Some(port));
        of_clients(now, &before)
    }

    /// Ports with a mode of their own.
    pub(crate) fn ports(&self) -> BTreeSet<u16> {
        let all = self.before.iter().chain([&self.now]);
        all.flat_map(|modes| modes.ports.keys().copied()).collect()
    }
}

/// `None`: what is above it holds.
fn mode(settings: &MutualTls) -> Option<MtlsMode> {
    match settings.mode() {
        Written::Unset => None,
        Written::Disable => Some(MtlsMode::Disable),
        Written::Permissive => Some(MtlsMode::Permissive),
        Written::Strict => Some(MtlsMode::Strict),
    }
}

/// Returns true if a policy makes any workload accept mutual TLS.
pub(crate) fn takes_tls(policy: &PeerAuthentication) -> bool {
    let all = policy.mtls.iter().chain(policy.port_level_mtls.values());
    all.filter_map(mode).any(|mode| mode != MtlsMode::Disable)
}

/// The mode of a server while some of its clients still go by earlier policies.
fn of_server(now: MtlsMode, before: &[MtlsMode]) -> MtlsMode {
    let mut before = before.iter();
    let takes_more = match now {
        MtlsMode::Disable => before.any(|mode| *mode != MtlsMode::Disable),
        MtlsMode::Permissive => false,
        // Who may do both does mutual TLS already.
        MtlsMode::Strict => before.any(|mode| *mode == MtlsMode::Disable),
    };
    if takes_more {
        MtlsMode::Permissive
    } else {
        now
    }
}

/// The mode of its clients meanwhile.
fn of_clients(now: MtlsMode, before: &[MtlsMode]) -> MtlsMode {
    if before.contains(&MtlsMode::Disable) {
        return MtlsMode::Disable;
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_leaves_clients_a_way() {
        use MtlsMode::{Disable, Permissive, Strict};
        for (before, now, server, clients) in [
            (Disable, Disable, Disable, Disable),
            (Disable, Permissive, Permissive, Disable),
            (Disable, Strict, Permissive, Disable),
            (Permissive, Disable, Permissive, Disable),
            (Permissive, Permissive, Permissive, Permissive),
            (Permissive, Strict, Strict, Strict),
            (Strict, Disable, Permissive, Disable),
            (Strict, Permissive, Permissive, Permissive),
            (Strict, Strict, Strict, Strict),
        ] {
            assert_eq!(of_server(now, &[before]), server, "{before:?} {now:?}");
            assert_eq!(of_clients(now, &[before]), clients, "{before:?} {now:?}");
            assert_eq!(of_server(now, &[]), now);
        }
        // Of two changes in a row each one counts.
        let both = [Permissive, Disable];
        assert_eq!(of_server(Strict, &both), Permissive);
        assert_eq!(of_clients(Strict, &both), Disable);
    }
}
