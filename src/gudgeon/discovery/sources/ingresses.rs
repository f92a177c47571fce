//! Ingresses of the local API server, while the mesh makes rules of them.

use std::sync::Arc;

use api::mesh::mesh_config::IngressControllerMode;
use sources::contribution::Ingresses;
use sources::kubernetes::{Cluster, WatchTiming, ingresses as watch_ingresses};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::own_rules::ClusterRules;
use crate::discovery::hub::Hub;

fn is_enabled(hub: &Hub) -> bool {
    hub.world().mesh.ingress_controller_mode() != IngressControllerMode::Off
}

/// Sets the Ingresses. Returns the number of the snapshot by then: one that has them has a later number.
async fn set(hub: &Arc<Hub>, all: Arc<Ingresses>) -> Option<u64> {
    let (to, number) = oneshot::channel();
    let this = Arc::clone(hub);
    hub.update(move |registries| {
        let _nobody_waits = to.send(this.current.number());
        registries.set_ingresses(all)
    });
    number.await.ok()
}

/// Watches them from now on, whenever they are wanted and rules are read here.
pub(super) fn start(
    hub: &Arc<Hub>,
    cluster: Cluster,
    namespace: Option<String>,
    pace: WatchTiming,
    mut own: ClusterRules,
    loops: &mut JoinSet<()>,
) {
    let waits = hub.edge.begin();
    let hub = Arc::clone(hub);
    loops.spawn(async move {
        let mut snapshots = hub.current.watch();
        let (to, mut ingresses) = watch::channel(None::<Arc<Ingresses>>);
        let mut running = JoinSet::new();
        let mut waits = Some(waits);
        loop {
            let count = *own.counts.borrow_and_update();
            let is_wanted = count && is_enabled(&hub);
            if is_wanted && running.is_empty() {
                let (cluster, namespace) = (cluster.clone(), namespace.clone());
                running.spawn(watch_ingresses(cluster, namespace, pace, to.clone()));
            } else if !is_wanted {
                running.abort_all();
                // The watch must have ended, or it could send Ingresses after they were taken back.
                while running.join_next().await.is_some() {}
                to.send_if_modified(|known| known.take().is_some());
                waits = None;
            }
            let now = ingresses.borrow_and_update().clone();
            let is_known = now.is_some();
            let all = now.unwrap_or_default();
            let Some(last) = set(&hub, Arc::clone(&all)).await else {
                return;
            };
            own.ingresses_are_put(count && (is_known || !is_wanted));
            // They are served with the next snapshot, which is made at once where there is none yet.
            if is_known && waits.is_some() {
                let is_served = all.is_empty() || snapshots.borrow().is_none();
                while !is_served && hub.current.number() == last {
                    if snapshots.changed().await.is_err() {
                        return;
                    }
                }
                waits = None;
            }
            tokio::select! {
                changed = snapshots.changed() => if changed.is_err() { return },
                changed = own.counts.changed() => if changed.is_err() { return },
                _ = ingresses.changed() => {}
            }
        }
    });
}
