//! Readiness of the whole, with its reasons.

use std::sync::PoisonError;
use std::time::Duration;

use sources::contribution::SyncState;

use super::hub::Hub;
use crate::log;
use crate::mcp::PortAccess;

/// A source is reported as stale after this time.
pub(super) const LOST: Duration = Duration::from_secs(5);

/// Returns the lines of readiness: the lost sources, or the reason why discovery is not ready.
pub(super) fn readiness(hub: &Hub) -> Result<String, String> {
    if hub.lifecycle.is_draining() {
        return Err("draining".to_owned());
    }
    if !hub.lifecycle.is_serving() {
        let missing = missing(hub);
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
    // The other objects are served, so the role stays ready.
    let left_out = hub.facts.without_room().into_iter();
    let left_out =
        left_out.map(|(source, left_out)| format!("no room: {source} leaves out {left_out}"));
    let lines: Vec<_> = lines.chain(left_out).chain(refuses_all(hub)).collect();
    if lines.is_empty() {
        return Ok("ok".to_owned());
    }
    Ok(lines.join("\n"))
}

/// A line for each source that is not synced yet.
fn missing(hub: &Hub) -> Vec<String> {
    let awaited = hub.awaited.lock().unwrap_or_else(PoisonError::into_inner);
    let all = hub.source_statuses().into_iter();
    let all = all.filter(|status| status.sync_state == SyncState::Syncing);
    all.map(|status| {
        let source = status.source;
        match awaited.get(&source) {
            Some(what) => format!("waiting for {source}: {what}"),
            None => format!("waiting for {source}"),
        }
    })
    .collect()
}

/// The reason for which the listener of MCP sources refuses every client.
pub(super) fn refuses_all(hub: &Hub) -> Option<String> {
    hub.port_access.get().and_then(PortAccess::why_nobody)
}

/// Sources that have been lost for a while, and since when.
pub(super) fn stale(hub: &Hub) -> Vec<(String, Duration)> {
    let now = hub.clock.now();
    let since = hub.sync_states.since();
    let sources = hub.source_statuses().into_iter();
    sources
        .filter(|status| matches!(status.sync_state, SyncState::Stale { .. }))
        .filter_map(|status| {
            let since = *since.get(&status.source)?;
            (now.saturating_sub(since) >= LOST).then(|| (status.source.to_string(), since))
        })
        .collect()
}
