//! Pages and documents about the sinks.

use std::fmt::Write as _;

use api::counted;
use serde_json::{Map, Value, json};

use crate::html::{self, ROWS, escaped};
use crate::log;
use crate::mcp::{Direction, StreamStatus, Subscribed};

/// A stream as a document.
pub(super) fn debug_view(peer: &StreamStatus) -> Value {
    let collections = peer.collections.iter().map(|one| {
        let nack = one.last_nack.as_ref().map(|(at, nack)| {
            json!({
                "time": log::stamp(*at), "nonce": nack.nonce.to_string(),
                "version": nack.version.to_string(), "code": nack.code, "message": &*nack.message,
            })
        });
        let document = json!({
            "sent": one.sent,
            "acked": one.acked,
            "pending_nonce": one.pending_nonce.map(|nonce| nonce.to_string()),
            "incremental": one.incremental,
            "nacks": one.nacks,
            "last_nack": nack,
        });
        (one.collection.to_string(), document)
    });
    json!({
        "address": peer.address,
        "identity": peer.identity,
        "node": peer.node.as_deref(),
        "direction": peer.direction.as_str(),
        "since": log::stamp(peer.since),
        "collections": collections.collect::<Map<_, _>>(),
    })
}

/// Renders all sinks on the page.
pub(super) fn draw(page: &mut String, peers: &[StreamStatus]) {
    // Writing to a string cannot fail.
    let streams = counted(peers.len(), "stream");
    let _written = writeln!(page, "<h2>Sinks: {streams}</h2>");
    let columns = [
        "sink",
        "address",
        "identity",
        "since",
        "collections",
        "in sync",
        "refused last",
    ];
    let empty = peers.is_empty().then_some("No sink is connected.");
    html::table(page, &columns, empty, |page| {
        for peer in peers.iter().take(ROWS) {
            row(page, peer);
        }
        html::more(page, peers.len());
    });
}

fn row(page: &mut String, peer: &StreamStatus) {
    let dialled = match peer.direction {
        Direction::Accepted => "",
        Direction::Dialled => " (dialled)",
    };
    let behind: Vec<_> = peer
        .collections
        .iter()
        .filter(|one| !is_in_sync(one))
        .collect();
    let sync = match behind.is_empty() {
        true => "<span class=\"good\">yes</span>".to_owned(),
        false => format!("<span class=\"bad\">{} are not</span>", behind.len()),
    };
    let refused = peer.collections.iter().filter_map(|one| {
        let (at, nack) = one.last_nack.as_ref()?;
        Some((at, &one.collection, nack))
    });
    let refused = refused
        .max_by_key(|(at, ..)| **at)
        .map(|(at, collection, nack)| {
            let message = escaped(&nack.message);
            format!(
                "{} {}: {message} (code {})",
                log::stamp(*at),
                escaped(collection),
                nack.code
            )
        });
    let _written = writeln!(
        page,
        "<tr><td>{}<td>{}{dialled}<td>{}<td>{}<td>{}<td>{sync}<td>{}</tr>",
        escaped(peer.node.as_deref().unwrap_or_default()),
        escaped(&peer.address),
        escaped(&peer.identity.join(", ")),
        log::stamp(peer.since),
        peer.collections.len(),
        refused.unwrap_or_default(),
    );
}

/// Returns true if the sink has acknowledged the last response.
fn is_in_sync(one: &Subscribed) -> bool {
    one.sent.is_some() && one.sent == one.acked && one.pending_nonce.is_none()
}
