//! Tests of the program's variables in listeners and clusters.

use std::time::Duration;

use super::*;
use crate::node::Dns;
use crate::settings::DnsRefresh;

/// Milliseconds for which a listener waits for the first bytes.
fn patience(view: &dyn View, name: &str) -> i32 {
    let listener = Listener::decode(&*view.get(Type::Listener, name).unwrap().body).unwrap();
    assert!(listener.continue_on_listener_filters_timeout, "{name}");
    let timeout = listener.listener_filters_timeout.unwrap();
    i32::try_from(timeout.seconds).unwrap() * 1000 + timeout.nanos / 1_000_000
}

#[test]
fn listeners_of_both_directions_wait_for_the_first_bytes_as_long_as_each_is_told() {
    for (mesh, variable, outbound, inbound) in [
        ("", None, 100, 100),
        ("protocolDetectionTimeout: 2s", None, 2000, 2000),
        ("", Some(1000), 100, 1000),
        ("protocolDetectionTimeout: 2s", Some(0), 2000, 0),
    ] {
        let settings = Settings {
            inbound_detection_timeout: variable.map(Duration::from_millis),
            ..Settings::default()
        };
        let mut world = world(mesh);
        let auto = service("auto", &[(8080, "")], Resolution::Static);
        add(&mut world, auto, Vec::new());
        let snapshot = Snapshot::new(world, Arc::new(settings));
        let view = snapshot.view(&node(CLIENT, "REDIRECT"));
        let row = format!("{mesh:?} {variable:?}");
        assert_eq!(patience(&*view, "0.0.0.0_8080"), outbound, "{row}");
        assert_eq!(patience(&*view, "virtualInbound"), inbound, "{row}");
    }
}

/// Returns true if a proxy keeps a name as long as its record says.
#[allow(deprecated, reason = "proxies before 1.34 know the fields alone")]
fn respects_ttl(view: &dyn View, name: &str) -> bool {
    let cluster = Cluster::decode(&*view.get(Type::Cluster, name).unwrap().body).unwrap();
    assert!(cluster.dns_refresh_rate.is_some());
    cluster.respect_dns_ttl
}

#[test]
fn names_are_resolved_again_when_their_records_say_so_unless_that_is_switched_off() {
    for (dns_refresh, respects) in [(DnsRefresh::ByTtl, true), (DnsRefresh::AtRate, false)] {
        let settings = Settings {
            dns_refresh,
            ..Settings::default()
        };
        let mut world = world("");
        let name = service("a.example", &[(80, "HTTP")], Resolution::Dns);
        add(&mut world, name, vec![endpoint("b.example", 80, "p80")]);
        let snapshot = Snapshot::new(world, Arc::new(settings));
        let mut client = (*node(CLIENT, "REDIRECT")).clone();
        client.dns = Dns::Fields;
        let view = snapshot.view(&Arc::new(client));
        assert_eq!(respects_ttl(&*view, "outbound|80||a.example"), respects);
    }
}
