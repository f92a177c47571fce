//! The gauges that are read at each scrape.

use std::collections::{BTreeSet, HashMap};

use api::model::{Resolution, Service};
use xds::node::clipped;
use xds::snapshot::REJECTED_CONFIG;
use xds::stream::SentResources;
use xds::view::Type;

use super::debug::EndpointsByPort;
use super::hub::Hub;
use super::metrics::{EdsCluster, Gauges};
use super::readiness::stale;
use super::source_facts::Object;

/// Reads the gauges.
pub(super) fn read(hub: &Hub) -> Gauges {
    let now = hub.clock.now();
    let mut gauges = Gauges {
        stale: stale(hub)
            .into_iter()
            .map(|(source, since)| (source, now.saturating_sub(since).as_secs()))
            .collect(),
        refused: refused(hub),
        routes: hub.facts.routes(),
        without_effect: without_effect(hub),
        podless: hub.facts.podless(),
        totals: hub.facts.totals(),
        keyless: hub.jwks.without_keys(),
        files: hub.files.get(),
        ..Gauges::default()
    };
    sessions(hub, &mut gauges);
    let Some(snapshot) = hub.snapshot() else {
        return gauges;
    };
    for conflict in snapshot.conflicts() {
        *gauges.conflicts.entry(conflict.metric).or_insert(0) += conflict.occurrences;
        // This metric counts each object by its name.
        let objects = conflict.objects.into_iter();
        for object in objects.filter(|_| conflict.metric == REJECTED_CONFIG) {
            let name = format!("{}/{}", object.namespace, object.name);
            gauges.refused.insert((object.kind.into(), name));
        }
    }
    let world = snapshot.world();
    gauges.services = world.services.len();
    for service in world.services.values().filter(|one| is_eds(hub, one)) {
        let endpoints = EndpointsByPort::new(world, service);
        for port in &service.ports {
            let served = || endpoints.served(port);
            let count = served().count();
            gauges.empty += usize::from(count == 0);
            if hub.options.cluster_metrics {
                let name = xds::cluster_names::outbound(port.number, "", &service.key.hostname);
                let localities = served().map(|endpoint| &endpoint.locality);
                let localities: BTreeSet<_> = localities.collect();
                gauges.instances.push(EdsCluster {
                    name,
                    localities: localities.len(),
                    endpoints: count,
                });
            }
        }
    }
    gauges
}

/// Returns true if sidecars ask for its endpoints. Others are resolved by name, or keep the original destination.
fn is_eds(hub: &Hub, service: &Service) -> bool {
    let is_headless = || service.is_headless() && hub.options.settings.headless.eds;
    service.resolution == Resolution::Static || is_headless()
}

/// Every kind that nothing acts on, with the number of its objects.
fn without_effect(hub: &Hub) -> Vec<(&'static str, usize)> {
    let all = hub.facts.rules();
    all.without_effect().collect()
}

/// Objects that are not valid, and those that lose against another one.
fn refused(hub: &Hub) -> BTreeSet<Object> {
    let mut refused = hub.facts.refused();
    for report in hub.with_registries(sources::aggregate::Registries::reports) {
        let name = format!("{}/{}", report.namespace, report.name);
        refused.insert((report.kind.into(), name));
    }
    refused
}

fn sessions(hub: &Hub, gauges: &mut Gauges) {
    // By the place of the list: streams that were sent the same share it, and thousands of them have thousands of resources.
    let mut lists: HashMap<usize, (SentResources, usize)> = HashMap::new();
    for session in hub.sessions.all() {
        gauges.streams += 1;
        gauges.pending += usize::from(session.is_pending());
        session.with_stream(|stream| {
            gauges.homeless += usize::from(!stream.serves());
            for kind in Type::ALL {
                let list = stream.resources(kind);
                let (_, streams) = lists.entry(list.place()).or_insert((list, 0));
                *streams += 1;
                if let Some(nack) = stream.status(kind).and_then(|status| status.nack) {
                    let [node, message] = [&session.node.id, &nack.message];
                    let [node, message] = [node, message].map(|text| clipped(text).to_owned());
                    gauges.current_nacks.push((kind.as_str(), node, message));
                }
            }
        });
    }
    // By the place of the bytes: lists that differ share those of the resources that they have in common.
    let mut bytes: HashMap<usize, (usize, usize)> = HashMap::new();
    for (list, streams) in lists.values() {
        for resource in list.iter() {
            let body = &resource.body;
            // Of resources that a client has brought along, the version alone is known.
            if body.is_empty() {
                continue;
            }
            let (_, all) = bytes
                .entry(body.as_ptr() as usize)
                .or_insert((body.len(), 0));
            *all += streams;
        }
    }
    gauges.snapshot_bytes = bytes.values().map(|(length, _)| length).sum();
    gauges.shared = bytes.values().filter(|(_, streams)| *streams > 1).count();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use api::model::Registry;
    use sources::contribution::{SourceId, SyncState};
    use tokio::time::advance;

    use super::*;
    use crate::discovery::readiness::readiness;
    use crate::discovery::testing::hub;
    use crate::exposition::ExpositionFormat;

    #[tokio::test(start_paused = true)]
    async fn a_source_is_stale_for_as_long_as_it_is_lost() {
        let hub = hub();
        let id = SourceId {
            registry: Registry::Consul,
            cluster: "east".into(),
        };
        let lost = |error: &str| SyncState::Stale {
            error: error.into(),
        };
        let stale_line = || {
            let text = hub.metrics.text(&read(&hub), ExpositionFormat::Text);
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("gudgeon_source_stale_seconds{"));
            line.map(ToOwned::to_owned)
        };
        hub.set_sync_state(&id, SyncState::Synced);
        advance(Duration::from_secs(60)).await;
        hub.set_sync_state(&id, lost("no answer"));
        advance(Duration::from_millis(4900)).await;
        assert_eq!(stale_line(), None);
        assert_eq!(readiness(&hub).as_deref(), Ok("ok"));
        // Lost as before.
        hub.set_sync_state(&id, lost("no route"));
        advance(Duration::from_secs(2)).await;
        let line = "gudgeon_source_stale_seconds{source=\"Consul/east\"} 6";
        assert_eq!(stale_line().as_deref(), Some(line));
        let ready = readiness(&hub).unwrap();
        assert!(ready.starts_with("stale: Consul/east since "), "{ready}");
        hub.set_sync_state(&id, SyncState::Synced);
        assert_eq!(stale_line(), None);
    }
}
