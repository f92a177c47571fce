//! Ports that a proxy of the mesh listens at by itself, by the numbers that Istio gives to them.
//!
//! Resources, the mesh configuration and injection ask three questions of them, and so use different parts:
//!
//! * Discovery asks which ports a listener of a service would be in the way of: [`LISTENED`], and the ports of a mesh configuration
//!   instead. A service may be at [`OF_OTHER_AGENTS`]: pintle listens at none of these, and clients elsewhere call it there.
//! * `proxyListenPort` is checked against [`LISTENED`] but for [`OUTBOUND`], which is that field's own default.
//! * Injection asks which port of an annotation no application can have: [`LISTENED`] and [`OF_OTHER_AGENTS`]. A proxy image may be
//!   Istio's, and a scrape of its agent could come round to the proxy again.

/// Envoy's administration page; it listens on the loopback only.
pub const ADMIN: u16 = 15000;
/// Envoy's listener of intercepted outbound connections, unless the mesh's `proxyListenPort` is another.
pub const OUTBOUND: u16 = 15001;
/// Envoy's listener of intercepted inbound connections.
pub const INBOUND: u16 = 15006;
/// The agent's (pintle's) status, with the metrics of proxy and application merged, where a pod's `statusPort` is not another.
pub const STATUS: u16 = 15020;
/// The port that the kubelet and load balancers ask for health.
pub const HEALTH: u16 = 15021;
/// Envoy's own metrics, by the listener of its bootstrap.
pub const METRICS: u16 = 15090;

/// Ports that Envoy, or pintle beside it, listens at.
pub const LISTENED: [u16; 6] = [ADMIN, OUTBOUND, INBOUND, STATUS, HEALTH, METRICS];

/// Ports of the agents of later releases of Istio, which pintle does not use: debugging (15004), tunnels by HBONE (15008) and DNS
/// (15053).
pub const OF_OTHER_AGENTS: [u16; 3] = [15004, 15008, 15053];
