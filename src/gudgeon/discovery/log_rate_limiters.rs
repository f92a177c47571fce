//! Limits on log lines that others cause, all of them together: any client that reaches the port may begin as many streams as it
//! likes, and any author of objects may let each of them lose against another one.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sources::aggregate::Report;
use tracing::warn;
use xds::snapshot::{Conflict, HTTP_OVER_HTTPS, Snapshot};

use super::logged_conflicts::{LoggedConflicts, describe};
use crate::log_rate_limiter::LogRateLimiter;
use crate::secrets::redact_text;

#[derive(Debug)]
pub(crate) struct LogRateLimiters {
    /// Warnings about the fields of nodes.
    pub(crate) nodes: LogRateLimiter,
    /// Requests for types that are not served.
    pub(crate) unknown: LogRateLimiter,
    pub(crate) nacks: LogRateLimiter,
    /// Streams of clients that may not speak for their node, or that are beyond bounds.
    pub(crate) refused: LogRateLimiter,
    /// Streams whose clients do not read.
    pub(crate) slow: LogRateLimiter,
    /// Proxies without certificates.
    pub(crate) plaintext: LogRateLimiter,
    /// Objects that lose against those of other sources.
    lost: LogRateLimiter,
    /// Rules that nothing enforces, by their number.
    pub(crate) rules: LogRateLimiter,
    /// Conflicts by which parts were left out of resources.
    conflicts: LogRateLimiter,
    /// Conflicts that were logged already.
    pub(super) logged_conflicts: Mutex<LoggedConflicts>,
    /// Gateways between networks that were said to be of no use.
    gateways: Mutex<BTreeSet<String>>,
}

impl LogRateLimiters {
    /// Gateways between networks that this snapshot has no address of, each once for as long as that is so.
    pub(super) fn lost_gateways(&self, snapshot: &Snapshot) {
        let now: BTreeSet<String> = snapshot.lost_gateways().map(str::to_owned).collect();
        let mut logged = self.gateways.lock().unwrap_or_else(PoisonError::into_inner);
        for gateway in now.difference(&logged) {
            warn!("{gateway}");
        }
        *logged = now;
    }

    /// Logs each conflict once for as long as it stands. Returns the time of the next look, which is due even if nothing is made.
    pub(super) fn conflicts(&self, now: Duration, snapshot: &Snapshot) -> Option<Duration> {
        let all = conflicts_to_log(snapshot);
        let mut logged = self
            .logged_conflicts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for conflict in logged.new_conflicts(now, &all) {
            if let Some(more) = self.conflicts.suffix_if_allowed() {
                warn!("{}{more}", describe(conflict));
            }
        }
        logged.deadline()
    }

    /// Logs objects that others take the place of, from now on.
    pub(super) fn left_out(&self, reports: &[Report]) {
        for report in reports {
            if let Some(more) = self.lost.suffix_if_allowed() {
                let Report {
                    kind,
                    namespace,
                    name,
                    message,
                    source,
                    ..
                } = report;
                let line = format!("{source}: {kind} {namespace}/{name}: {message}");
                warn!("{}{more}", redact_text(&line));
            }
        }
    }
}

/// The conflicts of a snapshot that are logged as they are found: its gateways between networks, and ports of ServiceEntries that are
/// left to TLS, are logged before any proxy asks.
fn conflicts_to_log(snapshot: &Snapshot) -> Vec<Conflict> {
    let gateways: BTreeSet<&str> = snapshot.lost_gateways().collect();
    let mut all = snapshot.conflicts();
    all.retain(|conflict| {
        !gateways.contains(&*conflict.message) && !is_logged_by_registry(conflict)
    });
    all
}

fn is_logged_by_registry(conflict: &Conflict) -> bool {
    conflict.metric == HTTP_OVER_HTTPS && conflict.services.is_empty()
}

impl Default for LogRateLimiters {
    fn default() -> Self {
        Self {
            nodes: LogRateLimiter::new(100),
            unknown: LogRateLimiter::new(20),
            nacks: LogRateLimiter::new(100),
            refused: LogRateLimiter::new(20),
            slow: LogRateLimiter::new(20),
            plaintext: LogRateLimiter::new(100),
            lost: LogRateLimiter::new(100),
            rules: LogRateLimiter::new(10),
            conflicts: LogRateLimiter::new(100),
            logged_conflicts: Mutex::default(),
            gateways: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::model::World;

    use super::*;

    /// The gateways of a snapshot are logged when it is made.
    #[test]
    fn a_gateway_without_an_address_is_logged_once() {
        let mut world = World::new(Arc::new(api::mesh::discovery_defaults()));
        let text = "networks:\n  a: {gateways: [{address: lb.example, port: 15443}]}\n";
        let networks = api::mesh::parse_networks(text).unwrap().config;
        world.networks = Arc::new(networks);
        let snapshot = Snapshot::new(world, Arc::default());
        assert_eq!(snapshot.lost_gateways().count(), 1);
        assert_eq!(snapshot.conflicts().len(), 1);
        assert_eq!(conflicts_to_log(&snapshot), []);
    }

    #[test]
    fn a_port_that_is_left_to_tls_is_logged_once() {
        let mut conflict = Conflict {
            metric: HTTP_OVER_HTTPS,
            key: "api.example".to_owned(),
            message: "is left out".to_owned(),
            proxy: Arc::default(),
            objects: Vec::new(),
            services: Vec::new(),
            occurrences: 1,
        };
        assert!(is_logged_by_registry(&conflict));
        // A Service of Kubernetes has no entry whose report logs it.
        conflict.services = vec![api::model::ServiceKey::new("b.n.svc.cluster.local", "n")];
        assert!(!is_logged_by_registry(&conflict));
    }
}
