//! Discovery with its real client: Envoy under pintle, with the bootstrap that pintle generates from its flags. Each test
//! checks requests and connections through it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::too_many_lines,
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "a test may panic, starts programs and reads files"
)]
#![forbid(unsafe_code)]

mod away;
mod backend;
mod bare;
mod conformance;
mod custom;
mod edge_security;
mod endurance;
mod families;
#[path = "../discovery/galley.rs"]
mod galley;
mod gateways;
mod hostile_tenants;
mod inbound_listeners;
mod injected;
mod interception;
#[path = "../discovery/issuer.rs"]
mod issuer;
mod kills;
mod kinds;
mod locality;
mod logged;
mod missing_files;
mod network;
mod occupied_ports;
mod patches;
mod peers;
#[path = "../discovery/place.rs"]
mod place;
mod policies;
mod proxy;
mod rebinding;
mod redirect;
mod relay;
mod rotation;
mod rules;
mod scopes;
mod secured;
mod served;
mod shutdown;
mod signer;
mod sockets;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod tokens;
mod traffic;
mod walk;
