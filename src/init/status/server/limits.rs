//! Limits of the status port: connections, times, bytes.

#![forbid(unsafe_code)]

use std::time::Duration;

/// Connections at once. Chosen: heads of 8 KiB in all of them are half a megabyte.
pub(crate) const PLACES: usize = 64;
/// Time for a request's head, from the connection on. Chosen: five times a probe's default time-out.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause in an exchange: before the first byte of an answer and between two pieces of it, on the client's or the
/// source's side. Source: Prometheus' default `scrape_timeout`.
pub(super) const PAUSE: Duration = Duration::from_secs(10);
/// Time for which a connection lingers after the answer to a request that was not read whole: closed at once, it would be
/// reset, and the client would lose the answer. Chosen: longer than a round trip.
pub(super) const LINGER: Duration = Duration::from_secs(1);
/// Bytes of such a request that are read and dropped meanwhile. Chosen: a socket buffer's worth.
pub(super) const LINGER_BYTES: usize = 64 * 1024;
/// Age from which the oldest request is evicted when all places are taken: a client that reads a byte in every `PAUSE`
/// must not keep kubelet out. Chosen: three of Prometheus' default `scrape_timeout`.
pub(super) const FAIR_SHARE: Duration = Duration::from_secs(30);
/// Time after which an answer that its client does not read is evicted when all places are taken. Source: Kubernetes'
/// default `timeoutSeconds` of a probe.
pub(super) const UNREAD: Duration = Duration::from_secs(1);
/// Pages, statuses and scrapes at once; more are refused (503). Chosen: two Prometheus have two, and each may hold up
/// to a page's bytes for as long as its client does not read them.
pub(super) const PAGES: usize = 16;
/// Places reserved for probes from loopback and from the node. Chosen: a pod of five containers has ten.
pub(super) const KEPT: usize = 8;
/// Places that application probes and pages cannot take, left to requests that end at once. Chosen: a request that is
/// being read, and two readiness probes.
pub(super) const SPARE: usize = 3;
/// Pause after `accept` itself fails (no descriptor left, say). Chosen: the loop does not spin.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Helper programs that run at once; further ones are queued. Chosen: two probes each of four containers.
pub(super) const HELPERS: usize = 8;
/// Helpers of these that may run for clients that are neither loopback nor the node. Chosen: half.
pub(super) const STRANGERS_HELPERS: usize = HELPERS / 2;
/// The same where nobody has said which address is the node's, for those that say to be kubelet and for the first of any
/// other address. Chosen: two are left to loopback.
pub(super) const LEARNED_HELPERS: usize = 6;
