//! What is allowed at once, and how long.

#![forbid(unsafe_code)]

use std::time::Duration;

/// Connections at once. Chosen: heads of 8 KiB in all of them are half a megabyte.
pub(crate) const PLACES: usize = 64;
/// For a head, from the connection on. Chosen: five times a probe's default time-out.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// To the first byte of an answer, and for every pause in it, whoever makes it. Prometheus' default `scrape_timeout`.
pub(super) const PAUSE: Duration = Duration::from_secs(10);
/// After an answer to a request that was not read whole: a close at once would reset the connection, and the client lose
/// the answer. Chosen: longer than a round trip.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// Bytes of such a request that are read and thrown away. Chosen: a socket buffer's worth.
pub(super) const LINGER_BYTES: usize = 64 * 1024;
/// When all places are taken by whole requests, the oldest gives way once it is so old: a reader that takes a byte in
/// every pause must not keep kubelet out. Chosen: three of Prometheus' default `scrape_timeout`.
pub(super) const FAIR_SHARE: Duration = Duration::from_secs(30);
/// When all places are taken, an answer that its client has not taken within this time gives way. Kubernetes' default
/// `timeoutSeconds` of a probe.
pub(super) const UNREAD: Duration = Duration::from_secs(1);
/// Pages, statuses and scrapes at once; more are refused (503). Chosen: two Prometheus have two, and each may hold up
/// to a page's bytes for as long as its client does not read them.
pub(super) const PAGES: usize = 16;
/// Places that strangers leave to probes from loopback and from the node. Chosen: a pod of five containers has ten.
pub(super) const KEPT: usize = 8;
/// Places that probes of the application and pages leave to everything else, which is over soon: a request that is read,
/// and readiness for two.
pub(super) const SPARE: usize = 3;
/// After an error of `accept` itself (no descriptor left, say). Chosen: no spin.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Helper programs at once; others wait for their turn. Chosen: two probes each of four containers.
pub(super) const HELPERS: usize = 8;
/// Of these so many are run for strangers. Chosen: half.
pub(super) const STRANGERS_HELPERS: usize = HELPERS / 2;
