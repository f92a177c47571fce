//! Case 43 by requests: a server shuts down, and its Envoys go on to another one with the same objects.

use std::collections::BTreeSet;

use crate::backend::{Backend, Load};
use crate::place::{Place, entry, until};
use crate::proxy::{Address, Proxy, Setup, in_sync, in_sync_with, updates};
use crate::relay::Relay;

const HOST: &str = "b.demo.svc.cluster.local";
const PORT: u16 = 18083;

#[test]
fn envoy_goes_on_to_another_server_and_is_sent_nothing_again() {
    let ip = Address::new();
    let (one, two) = (Backend::new(ip.ip, "one"), Backend::new(ip.ip, "two"));
    let own = ip.ip.to_string();
    let world = |all: &[(&str, u16)]| entry(HOST, PORT, "HTTP", all);
    let [mut first, second] = [(); 2].map(|()| {
        Place::new()
            .with("config/b.yaml", &world(&[(&own, one.port)]))
            .arg("--drainDuration=1s")
            .start()
    });
    let relays = [(); 2].map(|()| Relay::new(first.address()));
    let state = Setup::new("state", relays[0].port);
    let delta = Setup::new("delta", relays[1].port).delta();
    let mut proxies = [state.begin(), delta.begin()];
    proxies.iter_mut().for_each(Proxy::until_ready);
    let rows = proxies.each_ref().map(|proxy| in_sync(&first, &proxy.name));
    let taken = proxies.each_ref().map(updates);
    let loads = proxies
        .each_ref()
        .map(|proxy| Load::new(proxy.ip, HOST, PORT));

    for relay in &relays {
        assert!(relay.farewells().is_empty());
        relay.lead(second.address());
    }
    first.signal("TERM");
    assert_eq!(first.wait().code(), Some(0));
    for (relay, (proxy, before)) in relays.iter().zip(proxies.iter().zip(&rows)) {
        let farewells = until("a farewell", || {
            Some(relay.farewells()).filter(|all| !all.is_empty())
        });
        assert!(farewells.iter().all(|code| *code == 0), "{farewells:?}");
        let after = in_sync_with(&second, &proxy.name, |row| row["route_acked"].is_string());
        for kind in ["cluster", "endpoint", "listener", "route"] {
            let (sent, acked) = (format!("{kind}_sent"), format!("{kind}_acked"));
            assert_eq!(before[&sent], after[&sent], "{kind} of {}", proxy.name);
            assert_eq!(after[&sent], after[&acked], "{kind} of {}", proxy.name);
        }
    }
    for kind in ["cds", "eds", "lds", "rds"] {
        let metric = format!("pilot_xds_pushes{{type=\"{kind}\"}}");
        assert_eq!(second.metric(&metric), 0.0, "{kind}");
    }
    assert_eq!(proxies.each_ref().map(updates), taken);

    // Changes arrive from the new server.
    let both = [(&*own, one.port), (&*own, two.port)];
    second.place.write("config/b.yaml", &world(&both));
    for proxy in &proxies {
        let mut answered = BTreeSet::new();
        until("both endpoints", || {
            answered.insert(proxy.get(HOST, PORT)?);
            (answered.len() == 2).then_some(())
        });
    }
    assert_eq!(proxies.each_ref().map(updates), taken);
    for load in loads {
        load.end_after(20);
    }
}
