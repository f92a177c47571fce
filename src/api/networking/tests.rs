//! Objects as people write them, and what is said of those that are wrong.

use super::*;
use crate::model::EndpointAddress;
use crate::yaml::{self, Limits};

const LIMITS: Limits = Limits {
    bytes: 1 << 16,
    depth: 32,
    nodes: 1_000,
};

fn spec(text: &str) -> Node {
    yaml::read(text, LIMITS).unwrap().unwrap()
}

fn good<T: Kind>(text: &str) -> T {
    let read = read::<T>(&spec(text)).unwrap();
    assert_eq!(read.warnings, Vec::<String>::new(), "{text}");
    read.config
}

fn cause<T: Kind>(text: &str) -> String {
    match read::<T>(&spec(text)) {
        Ok(_) => panic!("it is taken: {text}"),
        Err(invalid) => invalid.to_string(),
    }
}

const PORTS: &str = "ports: [{number: 80, name: http, protocol: HTTP}]\n";

#[test]
fn a_service_entry_is_read() {
    let entry: ServiceEntry = good(
        "hosts: [a.example, b.example]\naddresses: [10.0.0.1, 10.1.0.0/16]\n\
         ports:\n- {number: 80, name: http, protocol: HTTP, targetPort: 8080}\n- {number: 9000, name: raw}\n\
         location: MESH_INTERNAL\nresolution: STATIC\n\
         endpoints:\n- {address: 10.2.0.1, ports: {http: 8081}, labels: {app: a}, locality: eu/west, weight: 0}\n\
         - address: 10.2.0.2\n  serviceAccount: a\n  network: west\n\
         exportTo: ['*']\nsubjectAltNames: [spiffe://cluster.local/ns/demo/sa/a]\n",
    );
    assert_eq!(entry.endpoints[0].weight, Some(0));
    assert_eq!(entry.endpoints[1].weight, None);
    assert_eq!(entry.ports[0].target_port, 8080);
    assert_eq!(entry.resolution(), service_entry::Resolution::Static);
    for text in [
        "hosts: ['*.example']\nresolution: NONE\n",
        "hosts: [a.example]\nresolution: DNS\n",
        "hosts: [a.example]\nresolution: DNS\nendpoints: [{address: b.example}, {address: 10.0.0.1}]\n",
        "hosts: [a.example]\nresolution: STATIC\nendpoints: [{address: 'unix:///run/a'}]\n",
        "hosts: [a.example]\nresolution: STATIC\nworkloadSelector: {labels: {app: a}}\n",
        "hosts: [a.example]\nresolution: STATIC\n",
    ] {
        drop(good::<ServiceEntry>(&format!("{text}{PORTS}")));
    }
}

/// Each above one port.
const WRONG: [(&str, &str); 18] = [
    ("resolution: NONE\n", "hosts: want at least one"),
    (
        "hosts: ['*']\n",
        "hosts[0]: want a name or *.NAME, got \"*\"",
    ),
    (
        "hosts: [a.example, 10.0.0.1]\n",
        "hosts[1]: want a name or *.NAME, got \"10.0.0.1\"",
    ),
    (
        "hosts: [a.example, A.example]\n",
        "hosts[1]: \"A.example\" is there twice",
    ),
    (
        "hosts: ['*.a.example']\nresolution: STATIC\n",
        "hosts[0]: \"*.a.example\" stands for many: only with resolution NONE, got STATIC",
    ),
    (
        "hosts: [a.example]\naddresses: [b]\n",
        "addresses[0]: want an address or a range, got \"b\"",
    ),
    (
        "hosts: [a.example]\naddresses: [10.0.0.0/8]\nresolution: DNS\n",
        "addresses[0]: the range 10.0.0.0/8 is allowed with resolution NONE or STATIC, got DNS",
    ),
    (
        "hosts: [a.example]\nresolution: STATIC\nendpoints: [{address: b.example}]\n",
        "endpoints[0].address: want an address with resolution STATIC, got the name \"b.example\"",
    ),
    (
        "hosts: [a.example]\nresolution: STATIC\nendpoints: [{address: ''}]\n",
        "endpoints[0].address: want an address, a name or unix:///PATH, got \"\"",
    ),
    (
        "hosts: [a.example]\nresolution: DNS\nendpoints: [{address: 'unix:///a'}]\n",
        "endpoints[0].address: no socket of a path with resolution DNS",
    ),
    (
        "hosts: [a.example]\nresolution: STATIC\nendpoints: [{address: 'unix:///a', ports: {http: 1}}]\n",
        "endpoints[0].ports: none beside a socket of a path",
    ),
    (
        "hosts: [a.example]\nresolution: STATIC\nendpoints: [{address: 10.0.0.1, ports: {https: 1}}]\n",
        "endpoints[0].ports.https: the service has no port of this name",
    ),
    (
        "hosts: [a.example]\nresolution: STATIC\nendpoints: [{address: 10.0.0.1, ports: {http: 70000}}]\n",
        "endpoints[0].ports.http: want a port, 1 to 65535, got 70000",
    ),
    (
        "hosts: [a.example]\nendpoints: [{address: 10.0.0.1}]\n",
        "endpoints: none with resolution NONE",
    ),
    (
        "hosts: [a.example]\nresolution: DYNAMIC_DNS\n",
        "resolution: DYNAMIC_DNS is not served",
    ),
    (
        "hosts: [a.example]\nresolution: DNS_ROUND_ROBIN\nendpoints: [{address: a.b}, {address: c.d}]\n",
        "endpoints: one at most with resolution DNS_ROUND_ROBIN",
    ),
    (
        "hosts: [a.example]\nresolution: STATIC\nendpoints: [{address: 10.0.0.1}]\nworkloadSelector: {}\n",
        "workloadSelector: not beside endpoints",
    ),
    (
        "hosts: [a.example]\nresolution: STATIC\nworkloadSelector: {labels: {'*': a}}\n",
        "workloadSelector.labels: want names of labels, got \"*\"",
    ),
];

#[test]
fn a_service_entry_that_comes_to_too_much_is_refused() {
    let of = |hosts: u32, ports: u32, addresses: u32| {
        let list = |count: u32, item: &dyn Fn(u32) -> String| {
            (1..=count).map(item).collect::<Vec<_>>().join(", ")
        };
        let text = format!(
            "hosts: [{}]\nports: [{}]\naddresses: [{}]\n",
            list(hosts, &|at| format!("h{at}.a")),
            list(ports, &|at| format!("{{number: {at}, name: p{at}}}")),
            list(addresses, &|at| format!("10.0.0.{at}")),
        );
        let limits = Limits {
            nodes: 10_000,
            ..LIMITS
        };
        let spec = yaml::read(&text, limits).unwrap().unwrap();
        read::<ServiceEntry>(&spec)
            .map(drop)
            .map_err(|invalid| invalid.to_string())
    };
    assert_eq!(of(64, 64, 24), Ok(()));
    let refused = of(64, 65, 0).unwrap_err();
    assert!(
        refused.contains("hosts: 64 hosts with 65 ports are 4160 "),
        "{refused}"
    );
    let refused = of(64, 64, 25).unwrap_err();
    assert!(
        refused.contains("addresses: 64 hosts with 64 ports and 25 addresses "),
        "{refused}"
    );
    let refused = of(1, 164, 25).unwrap_err();
    assert!(
        refused.contains("addresses: 25 addresses with 164 ports that are not HTTP are 4100 "),
        "{refused}"
    );
}

#[test]
fn texts_that_stand_in_every_answer_are_bounded() {
    let long = "x".repeat(1025);
    let head = "hosts: [a.example]\nports: [{number: 80, name: a}]\nresolution: STATIC";
    let read_entry = |text: &str| {
        let spec = yaml::read(text, LIMITS).unwrap().unwrap();
        read::<ServiceEntry>(&spec)
            .map(drop)
            .map_err(|invalid| invalid.to_string())
    };
    for (rest, field) in [
        (
            format!("subjectAltNames: [a, {long}]"),
            "subjectAltNames[1]",
        ),
        (
            format!("endpoints: [{{address: 10.0.0.1, locality: {long}}}]"),
            "endpoints[0].locality",
        ),
        (
            format!("endpoints: [{{address: 10.0.0.1, serviceAccount: {long}}}]"),
            "endpoints[0].serviceAccount",
        ),
    ] {
        let refused = read_entry(&format!("{head}\n{rest}\n")).unwrap_err();
        let words = format!("{field}: want at most 1024 bytes, got 1025");
        assert!(refused.contains(&words), "{refused}");
        assert_eq!(
            read_entry(&format!("{head}\n{}\n", rest.replace(&long, &long[1..]))),
            Ok(())
        );
    }
    let spec = yaml::read(&format!("address: 10.0.0.1\nnetwork: {long}\n"), LIMITS)
        .unwrap()
        .unwrap();
    let refused = read::<WorkloadEntry>(&spec).unwrap_err().to_string();
    assert!(
        refused.contains("network: want at most 1024 bytes"),
        "{refused}"
    );
}

#[test]
fn a_service_entry_that_is_wrong_says_where() {
    for (text, said) in WRONG {
        let heard = cause::<ServiceEntry>(&format!("{text}{PORTS}"));
        let (_, heard) = heard.split_once(": ").unwrap();
        assert_eq!(heard, said, "{text}");
    }
    for (ports, said) in [
        ("ports: []\n", "ports: want at least one"),
        (
            "ports: [{number: 0, name: a}]\n",
            "ports[0].number: want a port, 1 to 65535, got 0",
        ),
        (
            "ports: [{number: 1}]\n",
            "ports[0].name: want letters, digits and dashes, got \"\"",
        ),
        (
            "ports: [{number: 1, name: a}, {number: 1, name: b}]\n",
            "ports[1].number: 1 is there twice",
        ),
        (
            "ports: [{number: 1, name: a}, {number: 2, name: a}]\n",
            "ports[1].name: \"a\" is there twice",
        ),
        (
            "ports: [{number: 1, name: a, targetPort: 65536}]\n",
            "ports[0].targetPort: want a port, 1 to 65535, got 65536",
        ),
    ] {
        let heard = cause::<ServiceEntry>(&format!("hosts: [a.example]\n{ports}"));
        assert_eq!(heard, format!("line 2: {said}"), "{ports}");
    }
}

#[test]
fn a_line_is_that_of_the_value() {
    let text =
        "hosts:\n- a.example\nresolution: STATIC\nendpoints:\n- address: 10.0.0.1\n- address: b\n";
    let heard = cause::<ServiceEntry>(&format!("{text}{PORTS}"));
    assert!(
        heard.starts_with("line 6: endpoints[1].address: "),
        "{heard}"
    );
}

#[test]
fn a_workload_entry_is_read() {
    let entry: WorkloadEntry = good("address: vm.example\nports: {http: 8080}\nweight: 3\n");
    assert_eq!(entry.weight, Some(3));
    for (text, said) in [
        (
            "labels: {a: b}\n",
            "line 1: address: want an address, a name or unix:///PATH, got \"\"",
        ),
        (
            "address: 10.0.0.1\nports: {a: 0}\n",
            "line 2: ports.a: want a port, 1 to 65535, got 0",
        ),
        (
            "address: unix://run\n",
            "line 1: address: want an address, a name or unix:///PATH, got \"unix://run\"",
        ),
        (
            "address: 10.0.0.1\nweight: -1\n",
            "line 2: weight: -1 is not in 0..4294967295",
        ),
    ] {
        assert_eq!(cause::<WorkloadEntry>(text), said, "{text}");
    }
}

const INGRESS: &str = "workloadSelector: {labels: {app: a}}\ningress:\n- ";

#[test]
fn a_sidecar_is_read() {
    let sidecar: Sidecar = good(&format!(
        "{INGRESS}port: {{number: 8080, protocol: HTTP, name: http}}\n  bind: 127.0.0.2\n  captureMode: NONE\n  \
         defaultEndpoint: 127.0.0.1:80\negress:\n- hosts: ['./*', 'istio-system/*', '~/*', 'demo/a.example']\n\
         - port: {{number: 9080, protocol: HTTP, name: egress}}\n  bind: 127.0.0.1\n  hosts: ['*/*.example']\n\
         outboundTrafficPolicy: {{mode: REGISTRY_ONLY}}\n"
    ));
    assert_eq!(sidecar.ingress[0].capture_mode(), CaptureMode::None);
    assert_eq!(sidecar.egress.len(), 2);
    drop(good::<Sidecar>("{}"));
}

#[test]
fn a_sidecar_that_is_wrong_says_where() {
    let port = "port: {number: 80, name: a}";
    for (text, said) in [
        (format!("{INGRESS}{{}}\n"), "ingress[0].port: want a port"),
        (
            format!("{INGRESS}{{port: {{number: 80}}}}\n"),
            "ingress[0].port.name: want letters, digits and dashes, got \"\"",
        ),
        (
            format!("{INGRESS}{{{port}, bind: b}}\n"),
            "ingress[0].bind: want an address, got \"b\"",
        ),
        (
            format!("{INGRESS}{{{port}}}\n"),
            "ingress[0].defaultEndpoint: want 127.0.0.1:PORT, :PORT or unix:///PATH, got \"\"",
        ),
        (
            format!(
                "{INGRESS}{{{port}, defaultEndpoint: ':1'}}\n- {{{port}, defaultEndpoint: ':2'}}\n"
            ),
            "ingress[1].port.number: 80 is there twice",
        ),
        (
            "egress: [{}]\n".to_owned(),
            "egress[0].hosts: want at least one",
        ),
        (
            "egress: [{hosts: [a.example]}]\n".to_owned(),
            "egress[0].hosts[0]: want NAMESPACE/HOST, got \"a.example\"",
        ),
        (
            "egress: [{bind: 127.0.0.1, hosts: ['*/*']}]\n".to_owned(),
            "egress[0].port: want a port",
        ),
    ] {
        let heard = cause::<Sidecar>(&text);
        let (_, heard) = heard.split_once(": ").unwrap();
        assert_eq!(heard, said, "{text}");
    }
}

#[test]
fn an_ingress_sends_to_this_machine() {
    let ip = |text: &str| EndpointAddress::Ip(text.parse().unwrap());
    for (text, place) in [
        ("127.0.0.1:80", Some((ip("127.0.0.1"), 80))),
        (":80", Some((ip("127.0.0.1"), 80))),
        ("127.1.2.3:80", Some((ip("127.1.2.3"), 80))),
        ("[::1]:80", Some((ip("::1"), 80))),
        (
            "unix:///run/a",
            Some((EndpointAddress::Pipe("/run/a".into()), 0)),
        ),
        ("10.0.0.1:80", None),
        ("127.0.0.1", None),
        ("127.0.0.1:0", None),
        (":70000", None),
        ("unix://a", None),
        ("localhost:80", None),
        ("", None),
    ] {
        assert_eq!(default_endpoint(text), place, "{text}");
    }
}

/// Envoy refuses all endpoints of a response for one path that is longer than the kernel has room for.
#[test]
fn a_socket_has_a_path_that_the_kernel_takes() {
    let said = |length: usize| {
        format!(
            "want at most 107 bytes after unix:// (sun_path of sockaddr_un has 108 with the NUL at its end), got {length}"
        )
    };
    let entry = |path: &str| {
        format!(
            "hosts: [a.example]\nresolution: STATIC\nports: [{{number: 80, name: http}}]\nendpoints: [{{address: \"unix://{path}\"}}]\n"
        )
    };
    let workload = |path: &str| format!("address: \"unix://{path}\"\n");
    let ingress = |path: &str| {
        format!(
            "ingress: [{{port: {{number: 80, name: a}}, defaultEndpoint: \"unix://{path}\"}}]\n"
        )
    };
    let egress = |path: &str| {
        format!(
            "egress: [{{port: {{number: 0}}, bind: \"unix://{path}\", captureMode: NONE, hosts: ['*/*']}}]\n"
        )
    };
    // Letters of two bytes each: bytes count.
    let (longest, longer) = (
        format!("/{}", "é".repeat(53)),
        format!("/{}a", "é".repeat(53)),
    );
    drop(good::<ServiceEntry>(&entry(&longest)));
    drop(good::<WorkloadEntry>(&workload(&longest)));
    drop(good::<Sidecar>(&ingress(&longest)));
    drop(good::<Sidecar>(&egress(&longest)));
    let long = format!("/{}", "a".repeat(2000));
    for (path, said) in [
        (longer.as_str(), said(108)),
        (long.as_str(), said(2001)),
        (
            r"/a\0b",
            "want a path without a NUL after unix://".to_owned(),
        ),
    ] {
        let heard = cause::<ServiceEntry>(&entry(path));
        assert_eq!(heard, format!("line 4: endpoints[0].address: {said}"));
        let heard = cause::<WorkloadEntry>(&workload(path));
        assert_eq!(heard, format!("line 1: address: {said}"));
        let heard = cause::<Sidecar>(&ingress(path));
        assert_eq!(heard, format!("line 1: ingress[0].defaultEndpoint: {said}"));
        let heard = cause::<Sidecar>(&egress(path));
        assert_eq!(heard, format!("line 1: egress[0].bind: {said}"));
    }
    assert_eq!(default_endpoint(&format!("unix://{longer}")), None);
    assert_eq!(default_endpoint("unix:///a\0b"), None);
}

#[test]
fn json_is_read_like_its_text() {
    let json = serde_json::json!({
        "hosts": ["a.example"],
        "ports": [{"number": 80, "name": "http", "unknown": null}],
        "resolution": "DNS",
        "endpoints": [{"address": "10.0.0.1", "weight": 2}],
        "other": {"a": 1},
    });
    let read = read_json::<ServiceEntry>(&json).unwrap();
    assert_eq!(read.config.endpoints[0].weight, Some(2));
    // In the order of the JSON library's maps, which is another where they keep that of the text.
    let named = read.warnings[0].strip_prefix("unknown fields are ignored: ");
    let mut named: Vec<_> = named.unwrap().split(", ").collect();
    named.sort_unstable();
    assert_eq!(named, ["other", "ports[0].unknown"]);
    assert_eq!(read.warnings.len(), 1);
    let json = serde_json::json!({"hosts": [1]});
    let heard = read_json::<ServiceEntry>(&json).unwrap_err();
    assert_eq!(
        heard.to_string(),
        "hosts[0]: expected a string; quote the value"
    );
}
