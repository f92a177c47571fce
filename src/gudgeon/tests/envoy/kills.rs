//! Faults of the server: changes that make all clusters warm up, and a kill at every step of a push.

use std::net::SocketAddr;

use crate::backend::{Backend, Load};
use crate::place::{Discovery, Place, documents, entry, until};
use crate::proxy::{Address, Proxy, Setup, in_sync};
use crate::relay::Relay;

const PORT: u16 = 18080;
/// A push that adds, changes and removes is five: clusters, assignments, listeners, routes, clusters.
const MESSAGES: usize = 5;

/// A service that changes with each turn (in every other one its protocol is undeclared), and a new one.
fn world(turn: usize, endpoint: (&str, u16)) -> String {
    let protocol = if turn.is_multiple_of(2) { "HTTP" } else { "''" };
    let service = |name: &str, protocol| {
        let host = format!("{name}.demo.svc.cluster.local");
        entry(&host, PORT, protocol, &[endpoint])
    };
    documents(&[
        service("kept", protocol),
        service(&format!("new{turn}"), "HTTP"),
    ])
}

fn warming(proxy: &Proxy) -> u64 {
    proxy.stat("cluster_manager.warming_clusters")
}

fn is_well(discovery: &Discovery, proxies: &[Proxy], turn: usize) {
    for proxy in proxies {
        let (name, log) = (&proxy.name, || proxy.log());
        until(&format!("{name} in turn {turn}"), || {
            (proxy.get(&format!("new{turn}"), PORT)?.0 == 200 && warming(proxy) == 0).then_some(())
        });
        in_sync(discovery, name);
        assert_eq!(warming(proxy), 0, "{name} in turn {turn}: {}", log());
        until(&format!("the end of the old one in turn {turn}"), || {
            let old = proxy.get(&format!("new{}", turn.wrapping_sub(1)), PORT)?;
            (old.0 == 502).then_some(())
        });
    }
}

/// From the beginning: clusters that wait for their first assignments, and for a server.
#[test]
fn envoy_becomes_ready_wherever_the_server_ends_at_first() {
    let ip = Address::new();
    let backend = Backend::new(ip.ip, "one");
    let own = SocketAddr::from((ip.ip, 15010));
    let mut discovery = Place::new()
        .with(
            "config/all.yaml",
            &world(0, (&ip.ip.to_string(), backend.port)),
        )
        .arg(&format!("--grpcAddr={own}"))
        .start();
    // Clusters, assignments and listeners came; the next never did.
    for messages in 1..=3 {
        let relays = [Relay::new(own), Relay::new(own)];
        relays.iter().for_each(|relay| relay.stop_after(messages));
        let state = Setup::new(&format!("state-{messages}"), relays[0].port);
        let delta = Setup::new(&format!("delta-{messages}"), relays[1].port);
        let mut proxies = [state.begin(), delta.delta().begin()];
        for relay in &relays {
            until(&format!("message {messages}"), || {
                relay.is_stopped().then_some(())
            });
        }
        discovery.kill();
        relays.iter().for_each(Relay::cut);
        discovery.again();
        for proxy in &mut proxies {
            proxy.until_ready();
            until("an answer", || {
                (proxy.get("new0", PORT)?.0 == 200 && proxy.get("kept", PORT)?.0 == 200)
                    .then_some(())
            });
            assert_eq!(warming(proxy), 0, "{}", proxy.log());
        }
    }
}

/// Cases 8 and 9, in both protocols.
#[test]
fn envoy_gets_well_wherever_the_server_ends() {
    let ip = Address::new();
    let backend = Backend::new(ip.ip, "one");
    let at = ip.ip.to_string();
    // An address of its own: no other process takes the port while the server is away.
    let own = SocketAddr::from((ip.ip, 15010));
    let mut discovery = Place::new()
        .with("config/all.yaml", &world(0, (&at, backend.port)))
        .arg(&format!("--grpcAddr={own}"))
        .start();
    let relays = [Relay::new(own), Relay::new(own)];
    let state = Setup::new("state", relays[0].port);
    let delta = Setup::new("delta", relays[1].port).delta();
    let mut proxies = [state.begin(), delta.begin()];
    for proxy in &mut proxies {
        proxy.until_ready();
        let protocol = in_sync(&discovery, &proxy.name)["protocol"].clone();
        assert_eq!(protocol == "delta", proxy.name == "delta");
    }

    // All clusters change at once, and none of their assignments does.
    let mesh = "enableTracing: false\nconnectTimeout: 3s\n";
    discovery.place.write("mesh", mesh);
    for proxy in &proxies {
        until("the new timeout in all clusters", || {
            let all = proxy.ask("/config_dump?resource=dynamic_active_clusters");
            let fresh = all.matches("\"connect_timeout\": \"3s\"").count();
            (fresh > 2 && !all.contains("\"connect_timeout\": \"1s\"") && warming(proxy) == 0)
                .then_some(())
        });
    }

    let loads = [&proxies[0], &proxies[1]].map(|proxy| Load::new(proxy.ip, "kept", PORT));
    for turn in 1..=MESSAGES {
        for relay in &relays {
            relay.stop_after(turn - 1);
        }
        let world = world(turn, (&at, backend.port));
        discovery.place.write("config/all.yaml", &world);
        for (relay, proxy) in relays.iter().zip(&proxies) {
            until(&format!("message {turn} for {}", proxy.name), || {
                relay.is_stopped().then_some(())
            });
            if turn == 2 {
                // Clusters have come, their assignments have not.
                until("clusters that wait", || (warming(proxy) > 0).then_some(()));
            }
        }
        discovery.kill();
        relays.iter().for_each(Relay::cut);
        discovery.again();
        is_well(&discovery, &proxies, turn);
    }
    for load in loads {
        load.end_after(20);
    }
}
