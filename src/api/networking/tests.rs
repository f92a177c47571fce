//! Objects as people write them, as discovery's types, and what is said of those that are wrong.

use super::*;
use crate::config::{document, named};
use crate::yaml;

/// Judged as it is written, in a document.
fn checked<T: DiscoveryKind>(spec: &str) -> Checked<T> {
    let row = named("networking.istio.io", T::NAME).unwrap();
    let spec = yaml::read(spec, document::LIMITS).unwrap().unwrap();
    check(&serde_json::json!({
        "apiVersion": format!("{}/{}", row.group, row.versions[0]),
        "kind": T::NAME,
        "metadata": {"name": "a", "namespace": "n"},
        "spec": spec.to_json(),
    }))
}

fn good<T: DiscoveryKind>(spec: &str) -> T {
    let Checked {
        spec: read,
        findings,
    } = checked::<T>(spec);
    assert_eq!(findings, [], "{spec}");
    read.unwrap()
}

fn wrong<T: DiscoveryKind>(spec: &str) -> Vec<String> {
    let Checked {
        spec: read,
        findings,
    } = checked::<T>(spec);
    assert!(read.is_none(), "it is taken: {spec}");
    findings.iter().map(ToString::to_string).collect()
}

#[test]
fn a_service_entry_is_read() {
    let entry: ServiceEntry = good(
        "hosts: [a.example, b.example]\naddresses: [10.0.0.1, 10.1.0.0/16]\n\
         ports:\n- {number: 80, name: http, protocol: HTTP, targetPort: 8080}\n- {number: 9000, name: raw, protocol: TLS}\n\
         location: MESH_INTERNAL\nresolution: STATIC\n\
         endpoints:\n- {address: 10.2.0.1, ports: {http: 8081}, labels: {app: a}, locality: eu/west, weight: 0}\n\
         - address: 10.2.0.2\n  serviceAccount: a\n  network: west\n\
         exportTo: ['*']\nsubjectAltNames: [spiffe://cluster.local/ns/demo/sa/a]\n",
    );
    assert_eq!(entry.endpoints[0].weight, Some(0));
    assert_eq!(entry.endpoints[1].weight, None);
    assert_eq!(entry.ports[0].target_port, 8080);
    assert_eq!(entry.resolution(), service_entry::Resolution::Static);
}

/// The rules have tables of their own, in [`config`]: what discovery has is judged by them, fields first.
#[test]
fn networking_types_report_the_findings_of_the_rules() {
    assert_eq!(
        wrong::<ServiceEntry>("{hosts: [a_], ports: [{number: 80, name: http, protocl: HTTP}]}"),
        [
            "spec.hosts[0]: \"a_\" is not a host name: \"a_\" is not a DNS label",
            "spec.ports[0].protocl: unknown field, did you mean \"protocol\"?",
        ]
    );
    assert_eq!(
        wrong::<WorkloadEntry>("{address: 10.0.0.1, weight: -1}"),
        ["spec.weight: -1 is not in 0..4294967295"]
    );
    assert_eq!(wrong::<Sidecar>("{}"), ["spec: is empty"]);
    let Checked { spec, findings } = checked::<WorkloadEntry>("{network: n}");
    assert!(spec.is_some());
    assert_eq!(findings.len(), 1);
}

/// An object of another kind is refused.
#[test]
fn another_kind_is_not_taken() {
    let gateway = serde_json::json!({
        "apiVersion": "networking.istio.io/v1", "kind": "WorkloadEntry",
        "metadata": {"name": "a"}, "spec": {"address": "10.0.0.1"},
    });
    assert_eq!(check::<Sidecar>(&gateway).spec, None);
    assert!(check::<WorkloadEntry>(&gateway).spec.is_some());
}

#[test]
fn a_sidecar_is_read() {
    let sidecar: Sidecar = good(
        "workloadSelector: {labels: {app: a}}\ningress:\n- port: {number: 8080, protocol: HTTP, name: http}\n  bind: 127.0.0.2\n  \
         captureMode: NONE\n  defaultEndpoint: 127.0.0.1:80\negress:\n\
         - port: {number: 9080, protocol: HTTP, name: egress}\n  bind: 127.0.0.1\n  hosts: ['*/*.example']\n\
         - hosts: ['./*', 'istio-system/*', '~/*', 'demo/a.example']\n\
         outboundTrafficPolicy: {mode: REGISTRY_ONLY}\n",
    );
    assert_eq!(sidecar.ingress[0].capture_mode(), CaptureMode::None);
    assert_eq!(sidecar.egress.len(), 2);
}

#[test]
fn an_ingress_sends_to_this_machine() {
    let ip = |text: &str| EndpointAddress::Ip(text.parse().unwrap());
    for (text, place) in [
        ("127.0.0.1:80", Some((ip("127.0.0.1"), 80))),
        (":80", Some((ip("127.0.0.1"), 80))),
        ("127.1.2.3:80", Some((ip("127.1.2.3"), 80))),
        ("0.0.0.0:80", Some((ip("127.0.0.1"), 80))),
        ("[::1]:80", Some((ip("::1"), 80))),
        ("[::]:80", Some((ip("::1"), 80))),
        (
            "unix:///run/a",
            Some((EndpointAddress::Pipe("/run/a".into()), 0)),
        ),
        ("10.0.0.1:80", None),
        ("127.0.0.1", None),
        ("127.0.0.1:0", None),
        (":70000", None),
        ("localhost:80", None),
        ("", None),
    ] {
        assert_eq!(default_endpoint(text), place, "{text}");
    }
}
