//! Readiness of the whole, and the gauges that are read when somebody asks.

use std::collections::{BTreeSet, HashMap};
use std::sync::PoisonError;
use std::time::Duration;

use api::model::{Resolution, Service};
use sources::registry::SyncState;
use xds::node::clipped;
use xds::snapshot::REJECTED_CONFIG;
use xds::view::Type;

use super::debug::EndpointsByPort;
use super::facts::Object;
use super::hub::Hub;
use super::metrics::Gauges;
use crate::log;
use crate::mcp::PortAccess;

/// A source that has been lost for so long is told of.
pub(super) const LOST: Duration = Duration::from_secs(5);

/// The lines of readiness: which source is lost, or why it is not ready.
pub(super) fn readiness(hub: &Hub) -> Result<String, String> {
    if hub.is_draining() {
        return Err("draining".to_owned());
    }
    if !hub.serves() {
        let missing: Vec<String> = hub.look(|registries| {
            let awaited = hub.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            let words = |source| match awaited.get(source) {
                Some(what) => format!("waiting for {source}: {what}"),
                None => format!("waiting for {source}"),
            };
            registries.missing().map(words).collect()
        });
        let awaited = hub.jwks.awaited(hub.clock.now());
        if missing.is_empty() && awaited > 0 {
            let sets = api::counted(awaited, "jwksUri");
            return Err(format!("waiting for keys of {sets}"));
        }
        if missing.is_empty() {
            return Err("starting".to_owned());
        }
        let lines = missing.into_iter().chain(refuses_all(hub));
        return Err(lines.collect::<Vec<_>>().join("\n"));
    }
    let lines = stale(hub).into_iter().map(|(source, since)| {
        let since = log::stamp(hub.clock.wall(since));
        format!("stale: {source} since {since}")
    });
    let lines: Vec<_> = lines.chain(refuses_all(hub)).collect();
    if lines.is_empty() {
        return Ok("ok".to_owned());
    }
    Ok(lines.join("\n"))
}

/// Why the port where sources of configuration dial lets nobody in.
pub(super) fn refuses_all(hub: &Hub) -> Option<String> {
    hub.port_access.get().and_then(PortAccess::why_nobody)
}

/// Sources that have been lost for a while, and since when.
pub(super) fn stale(hub: &Hub) -> Vec<(String, Duration)> {
    let now = hub.clock.now();
    let sources = hub.look(sources::registry::Registries::sources);
    let since = hub.standing_since();
    sources
        .into_iter()
        .filter(|status| matches!(status.standing, SyncState::Stale { .. }))
        .filter_map(|status| {
            let since = *since.get(&status.source)?;
            (now.saturating_sub(since) >= LOST).then(|| (status.source.to_string(), since))
        })
        .collect()
}

/// For the metrics.
pub(super) fn read(hub: &Hub) -> Gauges {
    let now = hub.clock.now();
    let mut gauges = Gauges {
        stale: stale(hub)
            .into_iter()
            .map(|(source, since)| (source, now.saturating_sub(since).as_secs()))
            .collect(),
        rejected: rejected(hub),
        routes: hub.facts.routes(),
        inert: inert(hub),
        podless: hub.facts.podless(),
        totals: hub.facts.totals(),
        keyless: hub.jwks.without_keys(),
        ..Gauges::default()
    };
    sessions(hub, &mut gauges);
    let Some(snapshot) = hub.snapshot() else {
        return gauges;
    };
    for conflict in snapshot.conflicts() {
        *gauges.conflicts.entry(conflict.metric).or_insert(0) += 1;
        // Of this one each object is counted by its name.
        let objects = conflict.objects.into_iter();
        for object in objects.filter(|_| conflict.metric == REJECTED_CONFIG) {
            let name = format!("{}/{}", object.namespace, object.name);
            gauges.rejected.insert((object.kind.into(), name));
        }
    }
    let world = snapshot.world();
    gauges.services = world.services.len();
    for service in world.services.values().filter(|one| is_eds(hub, one)) {
        let endpoints = EndpointsByPort::new(world, service);
        for port in &service.ports {
            let count = endpoints.served(port).count();
            gauges.empty += usize::from(count == 0);
            if hub.options.cluster_metrics {
                let name = format!("outbound|{}||{}", port.number, service.key.hostname);
                gauges.instances.push((name, count));
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
fn inert(hub: &Hub) -> Vec<(&'static str, usize)> {
    let all = hub.facts.rules();
    let all = all.without_effect();
    all.map(|(kind, count)| (kind.kind, count)).collect()
}

/// Objects that are not valid, and those that lose against another one.
fn rejected(hub: &Hub) -> BTreeSet<Object> {
    let mut rejected = hub.facts.rejected();
    for report in hub.look(sources::registry::Registries::reports) {
        let name = format!("{}/{}", report.namespace, report.name);
        rejected.insert((report.kind.into(), name));
    }
    rejected
}

fn sessions(hub: &Hub, gauges: &mut Gauges) {
    // By the place of the bytes: streams that were sent the same share them.
    let mut bytes: HashMap<usize, (usize, usize)> = HashMap::new();
    for session in hub.sessions() {
        gauges.streams += 1;
        gauges.pending += usize::from(session.is_pending());
        session.look(|stream| {
            gauges.homeless += usize::from(!stream.serves());
            for kind in Type::ALL {
                for resource in stream.resources(kind) {
                    let body = &resource.body;
                    // Of what a client brought along only the version is known.
                    if body.is_empty() {
                        continue;
                    }
                    let (_, streams) = bytes
                        .entry(body.as_ptr() as usize)
                        .or_insert((body.len(), 0));
                    *streams += 1;
                }
                if let Some(nack) = stream.status(kind).and_then(|status| status.nack) {
                    let [node, words] = [&session.node.id, &nack.message];
                    let [node, words] = [node, words].map(|text| clipped(text).to_owned());
                    gauges.refusals.push((kind.word(), node, words));
                }
            }
        });
    }
    gauges.snapshot_bytes = bytes.values().map(|(length, _)| length).sum();
    gauges.shared = bytes.values().filter(|(_, streams)| *streams > 1).count();
}

#[cfg(test)]
mod tests {
    use api::model::Registry;
    use sources::registry::SourceId;
    use tokio::time::advance;

    use super::*;
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
        let shown = || {
            let text = hub.metrics.text(&read(&hub), ExpositionFormat::Text);
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("gudgeon_source_stale_seconds{"));
            line.map(ToOwned::to_owned)
        };
        hub.stand(&id, SyncState::Synced);
        advance(Duration::from_secs(60)).await;
        hub.stand(&id, lost("no answer"));
        advance(Duration::from_millis(4900)).await;
        assert_eq!(shown(), None);
        assert_eq!(readiness(&hub).as_deref(), Ok("ok"));
        // Lost as before.
        hub.stand(&id, lost("no route"));
        advance(Duration::from_secs(2)).await;
        let line = "gudgeon_source_stale_seconds{source=\"Consul/east\"} 6";
        assert_eq!(shown().as_deref(), Some(line));
        let ready = readiness(&hub).unwrap();
        assert!(ready.starts_with("stale: Consul/east since "), "{ready}");
        hub.stand(&id, SyncState::Synced);
        assert_eq!(shown(), None);
    }
}
