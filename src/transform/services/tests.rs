//! Entries from objects, in any order.

use proptest::prelude::*;
use prost::Message as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn mesh() -> Mesh {
    Mesh {
        domain: "cluster.local".to_owned(),
        trust_domain: "example.org".to_owned(),
    }
}

fn key(name: &str) -> Key {
    Key::new("shop", name)
}

fn generated(services: &Services, name: &str) -> SyntheticEntry {
    services.entry(&key(name), &mesh()).unwrap().unwrap()
}

/// Metadata and spec as JSON.
fn entry_json(entry: &SyntheticEntry) -> Value {
    json!({
        "name": entry.key.to_string(),
        "created": entry.create_time.as_ref().map(|time| time.seconds),
        "labels": entry.labels,
        "annotations": entry.annotations,
        "spec": api::networking::json(&entry.spec).unwrap(),
    })
}

/// One word to the state.
#[derive(Clone, Debug)]
enum Word {
    Service(&'static str, Option<ServiceObject>),
    Endpoints(&'static str, Option<Endpoints>),
    Slice(&'static str, Option<EndpointSlice>),
    Pod(&'static str, Option<Pod>),
    Node(&'static str, Option<PartialObjectMetadata>),
}

fn tell(services: &mut Services, word: Word) -> BTreeSet<Key> {
    match word {
        Word::Service(name, service) => services.service(key(name), service),
        Word::Endpoints(name, endpoints) => services.endpoints(key(name), endpoints),
        Word::Slice(name, slice) => services.slice(key(name), slice),
        Word::Pod(name, pod) => services.pod(&key(name), pod),
        Word::Node(name, node) => services.node(name, node),
    }
}

fn cart() -> [Word; 4] {
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "cart",
            "namespace": "shop",
            "resourceVersion": "11",
            "creationTimestamp": "1970-01-01T00:01:00Z",
            "labels": {"app": "cart"},
            "annotations": {
                "networking.istio.io/exportTo": "., other,",
                "example.com/owner": "carters",
            },
        },
        "spec": {
            "clusterIP": "10.0.0.1",
            "ports": [
                {"name": "http-web", "port": 80, "targetPort": 8080, "protocol": "TCP"},
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"port": 3306},
            ],
            "selector": {"app": "cart"},
        },
    });
    let endpoints = json!({
        "metadata": {"name": "cart", "namespace": "shop", "resourceVersion": "12"},
        "subsets": [{
            "addresses": [
                {"ip": "10.1.0.2", "targetRef": {"kind": "Pod", "namespace": "shop", "name": "cart-0"}},
                {"ip": "10.1.0.1"},
            ],
            "notReadyAddresses": [{"ip": "10.1.0.3"}, {"ip": "fd00::1"}],
            "ports": [{"name": "http-web", "port": 8080}, {"name": "dns", "port": 5353}],
        }],
    });
    let pod = json!({
        "metadata": {"name": "cart-0", "namespace": "shop", "labels": {"app": "cart", "version": "v1"}},
        "spec": {"nodeName": "n1", "serviceAccountName": "carter", "containers": []},
        "status": {"podIP": "10.1.0.2"},
    });
    let node = json!({"metadata": {"name": "n1", "labels": {
        "topology.kubernetes.io/region": "eu",
        "failure-domain.beta.kubernetes.io/region": "old",
        "failure-domain.beta.kubernetes.io/zone": "a",
    }}});
    [
        Word::Service("cart", read(service)),
        Word::Endpoints("cart", read(endpoints)),
        Word::Pod("cart-0", read(pod)),
        Word::Node("n1", read(node)),
    ]
}

#[test]
fn a_service_with_its_endpoints_is_an_entry() {
    let mut services = Services::default();
    for word in cart() {
        let changed = tell(&mut services, word);
        assert_eq!(changed, [key("cart")].into());
    }
    let entry = generated(&services, "cart");
    let ports = json!({"dns": 5353, "http-web": 8080});
    assert_eq!(
        entry_json(&entry),
        json!({
            "name": "shop/cart",
            "created": 60,
            "labels": {"app": "cart"},
            "annotations": {
                "example.com/owner": "carters",
                "networking.istio.io/exportTo": "., other,",
                "networking.alpha.istio.io/serviceVersion": "11",
                "networking.alpha.istio.io/endpointsVersion": "12",
                "networking.alpha.istio.io/notReadyEndpoints":
                    "10.1.0.3:8080,10.1.0.3:5353,[fd00::1]:8080,[fd00::1]:5353",
            },
            "spec": {
                "hosts": ["cart.shop.svc.cluster.local"],
                "addresses": ["10.0.0.1"],
                "ports": [
                    {"number": 80, "protocol": "HTTP", "name": "http-web"},
                    {"number": 53, "protocol": "UDP", "name": "dns"},
                    {"number": 3306, "protocol": "TCP"},
                ],
                "location": "MESH_INTERNAL",
                "resolution": "STATIC",
                "endpoints": [
                    {
                        "address": "10.1.0.2",
                        "ports": ports,
                        "labels": {"app": "cart", "version": "v1"},
                        "locality": "eu/a",
                    },
                    {"address": "10.1.0.1", "ports": ports},
                ],
                "exportTo": [".", "other"],
                "subjectAltNames": ["spiffe://example.org/ns/shop/sa/carter"],
            },
        })
    );
}

#[test]
fn a_port_is_found_by_its_name() {
    let mut services = Services::default();
    for word in cart() {
        tell(&mut services, word);
    }
    assert_eq!(services.port(&key("cart"), "http-web"), Some(80));
    assert_eq!(services.port(&key("cart"), "http"), None);
    assert_eq!(services.port(&key("other"), "http-web"), None);
}

#[test]
fn the_order_in_which_they_come_does_not_matter() {
    let objects = cart();
    let mut entries = BTreeSet::new();
    for first in 0..24_usize {
        let mut left: Vec<_> = objects.to_vec();
        let mut services = Services::default();
        let mut entry = None;
        let mut order = first;
        while !left.is_empty() {
            let word = left.remove(order % left.len());
            order /= left.len() + 1;
            for key in tell(&mut services, word) {
                entry = services.entry(&key, &mesh());
            }
        }
        entries.insert(entry_json(&entry.unwrap().unwrap()).to_string());
    }
    assert_eq!(entries.len(), 1);
}

fn entry_of(service: Value) -> Value {
    let mut services = Services::default();
    services.service(key("x"), read(service));
    entry_json(&generated(&services, "x"))
}

#[test]
fn a_service_without_endpoints_or_address_is_an_entry_too() {
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"ports": null}),
        json!(null),
    ] {
        let entry = entry_of(json!({"metadata": {"name": "x"}, "spec": spec}));
        assert_eq!(entry["name"], "shop/x");
        assert_eq!(entry["annotations"], json!({}));
        assert_eq!(
            entry["spec"],
            json!({
                "hosts": ["x.shop.svc.cluster.local"],
                "addresses": ["0.0.0.0"],
                "location": "MESH_INTERNAL",
            })
        );
    }
}

#[test]
fn an_external_name_is_its_one_endpoint() {
    let entry = entry_of(json!({
        "metadata": {"labels": {"l": "1"}},
        "spec": {"type": "ExternalName", "externalName": "example.com", "clusterIP": "10.0.0.1",
            "ports": [{"name": "https", "port": 443}]},
    }));
    assert_eq!(
        entry["spec"],
        json!({
            "hosts": ["x.shop.svc.cluster.local"],
            "addresses": ["0.0.0.0"],
            "ports": [{"number": 443, "protocol": "HTTPS", "name": "https"}],
            "resolution": "DNS",
            "endpoints": [{"address": "example.com", "ports": {"https": 443}, "labels": {"l": "1"}}],
        })
    );
}

#[test]
fn a_protocol_is_the_first_word_of_a_port_s_name() {
    for (name, number, kind, protocol) in [
        ("http", 80, "TCP", "HTTP"),
        ("HTTP-x", 80, "", "HTTP"),
        ("http2-x", 80, "TCP", "HTTP2"),
        ("https", 80, "TCP", "HTTPS"),
        ("grpc-web-x", 80, "TCP", "GRPC-Web"),
        ("grpc-webx", 80, "TCP", "GRPC-Web"),
        ("grpc-x", 80, "TCP", "GRPC"),
        ("tcp", 80, "TCP", "TCP"),
        ("tls-x", 80, "TCP", "TLS"),
        ("mongo", 80, "TCP", "Mongo"),
        ("redis", 80, "TCP", "Redis"),
        ("mysql", 80, "TCP", "MySQL"),
        ("http", 80, "UDP", "UDP"),
        ("x-http", 80, "TCP", ""),
        ("httpx", 80, "TCP", ""),
        ("", 80, "TCP", ""),
        ("", 25, "TCP", "TCP"),
        ("x", 27017, "TCP", "TCP"),
        ("http", 25, "TCP", "HTTP"),
    ] {
        let port = json!({"name": name, "port": number, "protocol": kind});
        let entry = entry_of(json!({"spec": {"ports": [port]}}));
        let found = entry["spec"]["ports"][0]["protocol"].as_str();
        assert_eq!(found.unwrap_or_default(), protocol, "{name} {number}");
    }
}

#[test]
fn slices_count_alone() {
    let slice = |name: &str, service: &str, endpoints: Value| -> Option<EndpointSlice> {
        read(json!({
            "metadata": {
                "name": name,
                "resourceVersion": format!("version-{name}"),
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": [{"name": "http-web", "port": 1}, {"name": "dns", "port": null}],
        }))
    };
    let mut services = Services::default();
    for word in cart() {
        tell(&mut services, word);
    }
    let two = json!([
        {"addresses": ["10.2.0.2"], "conditions": {"ready": true}},
        {"addresses": ["10.2.0.1"], "conditions": {}},
        {"addresses": ["10.2.0.3"], "conditions": {"ready": false}},
    ]);
    services.slice(key("b"), slice("b", "cart", two));
    let one = json!([{"addresses": ["10.2.0.4"], "conditions": null}]);
    let changed = services.slice(key("a"), slice("a", "cart", one.clone()));
    assert_eq!(changed, [key("cart")].into());
    let entry = entry_json(&generated(&services, "cart"));
    let addresses = |entry: &Value| -> Vec<String> {
        let endpoints = entry["spec"]["endpoints"].as_array().unwrap();
        let addresses = endpoints
            .iter()
            .map(|one| one["address"].as_str().unwrap().to_owned());
        addresses.collect()
    };
    assert_eq!(addresses(&entry), ["10.2.0.4", "10.2.0.2", "10.2.0.1"]);
    assert_eq!(
        entry["spec"]["endpoints"][0]["ports"],
        json!({"http-web": 1})
    );
    let annotations = &entry["annotations"];
    assert_eq!(
        annotations[service_entry::ENDPOINTS_VERSION],
        "version-a,version-b"
    );
    assert_eq!(annotations[service_entry::NOT_READY], "10.2.0.3:1");
    // The slice belongs to another service from now on.
    let changed = services.slice(key("a"), slice("a", "other", one));
    assert_eq!(changed, [key("cart"), key("other")].into());
    services.slice(key("b"), None);
    // The Endpoints remain.
    let entry = entry_json(&generated(&services, "cart"));
    assert_eq!(addresses(&entry), ["10.1.0.2", "10.1.0.1"]);
}

/// A client reaches an endpoint by the ports of its Service, so others are of no use to any.
#[test]
fn ports_that_the_service_does_not_declare_are_left_out() {
    let mut services = Services::default();
    let [service, ..] = cart();
    tell(&mut services, service);
    let ports = json!([{"name": "admin", "port": 9}, {"name": "dns", "port": 53}]);
    services.endpoints(
        key("cart"),
        read(json!({"subsets": [{
            "addresses": [{"ip": "10.1.0.1"}], "notReadyAddresses": [{"ip": "10.1.0.2"}], "ports": ports,
        }]})),
    );
    let of_endpoints = generated(&services, "cart");
    let slice = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": "cart"}},
        "endpoints": [
            {"addresses": ["10.1.0.1"]},
            {"addresses": ["10.1.0.2"], "conditions": {"ready": false}},
        ],
        "ports": ports,
    });
    services.slice(key("cart-1"), read(slice));
    for entry in [of_endpoints, generated(&services, "cart")] {
        let ports = &entry.spec.endpoints[0].ports;
        assert_eq!(*ports, [("dns".to_owned(), 53)].into());
        assert_eq!(entry.annotations[service_entry::NOT_READY], "10.1.0.2:53");
    }
}

/// Every address repeats the ports of its object and the labels of its pod.
#[test]
fn an_entry_that_is_larger_than_sinks_take_is_refused() {
    let names: Vec<String> = (0..2000).map(|at| format!("p{at}")).collect();
    let ports = |count: usize| -> Vec<Value> {
        let names = names[..count].iter();
        names
            .map(|name| json!({"name": name, "port": 80}))
            .collect()
    };
    let addresses = |count: usize, pod: &str| -> Vec<Value> {
        let target = json!({"kind": "Pod", "name": pod});
        let ips = (0..count).map(|at| format!("10.0.{}.{}", at / 256, at % 256));
        ips.map(|ip| json!({"ip": ip, "targetRef": target}))
            .collect()
    };
    let entry = |ports: Vec<Value>, list: &str, addresses: Vec<Value>| {
        let mut services = Services::default();
        services.service(key("x"), read(json!({"spec": {"ports": ports}})));
        services.pod(
            &key("large"),
            read(json!({"metadata": {"labels": {"l": "x".repeat(20_000)}}})),
        );
        let subset = json!({list: addresses, "ports": ports});
        services.endpoints(key("x"), read(json!({"subsets": [subset]})));
        services.entry(&key("x"), &mesh()).unwrap()
    };
    let too_large = Err(EntryTooLarge);
    assert_eq!(
        entry(ports(1), "addresses", addresses(500, "large")),
        too_large
    );
    assert_eq!(
        entry(ports(2000), "addresses", addresses(2000, "")),
        too_large
    );
    assert_eq!(
        entry(ports(2000), "notReadyAddresses", addresses(2000, "")),
        too_large
    );
    // What fits is a message that sinks take.
    let whole = entry(ports(1), "addresses", addresses(200, "large")).unwrap();
    assert_eq!(whole.spec.endpoints.len(), 200);
    let whole = entry(ports(100), "addresses", addresses(2000, "")).unwrap();
    assert_eq!(whole.spec.endpoints[1999].ports.len(), 100);
}

/// The length of an entry with its metadata, as sinks get them.
fn encoded_len(entry: &SyntheticEntry) -> usize {
    let metadata = api::istio::mcp::v1alpha1::Metadata {
        labels: entry.labels.clone(),
        annotations: entry.annotations.clone(),
        ..Default::default()
    };
    metadata.encoded_len() + entry.spec.encoded_len()
}

#[test]
fn an_entry_that_sinks_take_is_never_refused() {
    let entry = |label: usize| {
        let mut services = Services::default();
        services.service(key("x"), read(json!({"spec": {"ports": [{"port": 80}]}})));
        let labels = json!({"l": "x".repeat(label)});
        services.pod(&key("p"), read(json!({"metadata": {"labels": labels}})));
        let target = json!({"kind": "Pod", "name": "p"});
        let address = |at: usize| json!({"ip": format!("10.0.0.{at}"), "targetRef": target});
        let addresses: Vec<_> = (0..100).map(address).collect();
        let subsets = json!([{"addresses": addresses, "ports": [{"port": 80}]}]);
        services.endpoints(key("x"), read(json!({"subsets": subsets})));
        services.entry(&key("x"), &mesh()).unwrap()
    };
    let len = |label| entry(label).as_ref().map_or(usize::MAX, encoded_len);
    // Each byte of the label is a hundred of the entry.
    let max = (0..100_000).collect::<Vec<_>>();
    let max = max.partition_point(|label| entry(*label).is_ok()) - 1;
    assert!(len(max) <= service_entry::MAX_BYTES && len(max) + 100 > service_entry::MAX_BYTES);
}

#[test]
fn a_slice_has_its_ports_once() {
    let endpoints: Vec<Value> = (0..3)
        .map(|at| json!({"addresses": [at.to_string()]}))
        .collect();
    let slice = json!({
        "metadata": {"labels": {"kubernetes.io/service-name": "x"}},
        "endpoints": endpoints,
        "ports": [{"name": "p", "port": 1}],
    });
    let mut services = Services::default();
    services.slice(key("x-1"), read(slice));
    let groups: Vec<_> = services
        .parts
        .values()
        .flat_map(|part| &part.groups)
        .collect();
    assert_eq!(groups.len(), 1);
    assert_eq!((groups[0].ports.len(), groups[0].endpoints.len()), (1, 3));
}

/// Few of each, so that they meet.
fn any_word() -> impl Strategy<Value = Word> {
    const SERVICES: [&str; 2] = ["s0", "s1"];
    const PODS: [&str; 3] = ["p0", "p1", "p2"];
    const NODES: [&str; 2] = ["n0", "n1"];
    let address = (0..3_usize, any::<bool>()).prop_map(|(at, named)| {
        let target = named.then(|| json!({"kind": "Pod", "name": PODS[at]}));
        json!({"ip": format!("10.0.0.{at}"), "targetRef": target})
    });
    let addresses = prop::collection::vec(address, 0..3);
    let subsets =
        addresses.prop_map(|addresses| json!([{"addresses": addresses, "ports": [{"port": 1}]}]));
    let endpoints = (0..2_usize, prop::option::of(subsets)).prop_map(|(at, subsets)| {
        let endpoints = subsets.map(|subsets| read(json!({"subsets": subsets})));
        Word::Endpoints(SERVICES[at], endpoints)
    });
    let slice = (0..2_usize, prop::option::of((0..2_usize, 0..3_u8))).prop_map(|(at, slice)| {
        let slice = slice.map(|(service, ip)| {
            read(json!({
                "metadata": {"labels": {"kubernetes.io/service-name": SERVICES[service]}},
                "endpoints": [{"addresses": [format!("10.0.0.{ip}")]}],
            }))
        });
        Word::Slice(["e0", "e1"][at], slice)
    });
    let service = (0..2_usize, prop::option::of(0..3_u16)).prop_map(|(at, port)| {
        let service = port.map(|port| read(json!({"spec": {"ports": [{"port": port}]}})));
        Word::Service(SERVICES[at], service)
    });
    let pod = (0..3_usize, prop::option::of((0..3_u8, 0..2_usize, 0..2_u8)));
    let pod = pod.prop_map(|(at, pod)| {
        let pod = pod.map(|(ip, node, label)| {
            read(json!({
                "metadata": {"labels": {"l": label.to_string()}},
                "spec": {"nodeName": NODES[node]},
                "status": {"podIP": format!("10.0.0.{ip}")},
            }))
        });
        Word::Pod(PODS[at], pod)
    });
    let node = (0..2_usize, prop::option::of(0..2_u8)).prop_map(|(at, zone)| {
        let labels = |zone: u8| json!({"topology.kubernetes.io/zone": zone.to_string()});
        let node = zone.map(|zone| read(json!({"metadata": {"labels": labels(zone)}})));
        Word::Node(NODES[at], node)
    });
    prop_oneof![service, endpoints, slice, pod, node]
}

proptest! {
    #[test]
    fn an_entry_takes_the_room_that_its_encoding_takes(
        ports in prop::collection::vec(("[a-z]{0,200}", 0..70_000_u32), 0..4),
        labels in prop::collection::btree_map("[a-z]{0,9}", ".{0,99}", 0..4),
        addresses in prop::collection::vec(("[0-9:.]{0,40}", 0..3_usize, any::<bool>()), 0..9),
        kind in prop_oneof![Just("ClusterIP"), Just("ExternalName")],
        text in ".{0,300}",
    ) {
        let ports: Vec<_> = ports
            .iter()
            .map(|(name, port)| json!({"name": name, "port": port}))
            .collect();
        let mut services = Services::default();
        let annotations = json!({
            "a": text,
            "networking.istio.io/exportTo": "., other",
            "kubectl.kubernetes.io/last-applied-configuration": text,
        });
        services.service(key("x"), read(json!({
            "metadata": {"labels": labels, "annotations": annotations, "resourceVersion": "7"},
            "spec": {"type": kind, "externalName": text, "ports": ports},
        })));
        for pod in ["p0", "p1"] {
            services.pod(&key(pod), read(json!({
                "metadata": {"labels": labels},
                "spec": {"nodeName": "n", "serviceAccountName": pod},
            })));
        }
        services.node("n", read(json!({"metadata": {"labels": {"topology.kubernetes.io/region": text}}})));
        let listed = |is_ready| -> Vec<_> {
            let listed = addresses.iter().filter(|(_, _, ready)| *ready == is_ready);
            let address = |(ip, pod, _): &(String, usize, bool)| {
                json!({"ip": ip, "targetRef": {"kind": "Pod", "name": format!("p{pod}")}})
            };
            listed.map(address).collect()
        };
        services.endpoints(key("x"), read(json!({
            "metadata": {"resourceVersion": "8"},
            "subsets": [{"addresses": listed(true), "notReadyAddresses": listed(false), "ports": ports}],
        })));
        let builder = services.builder(&key("x")).unwrap();
        let (entry, room) = builder.measured(&key("x"), &mesh()).unwrap();
        prop_assert_eq!(room.0 + encoded_len(&entry), service_entry::MAX_BYTES);
    }

    /// Entries regenerated after each change equal those of a fresh state.
    #[test]
    fn a_change_names_the_entries_that_it_is_seen_in(script in prop::collection::vec(any_word(), 0..40)) {
        let mut services = Services::default();
        let mut entries = BTreeMap::new();
        let mut last = BTreeMap::new();
        for word in script {
            let at = match &word {
                Word::Service(name, _) => (0, *name),
                Word::Endpoints(name, _) => (1, *name),
                Word::Slice(name, _) => (2, *name),
                Word::Pod(name, _) => (3, *name),
                Word::Node(name, _) => (4, *name),
            };
            last.insert(at, word.clone());
            for key in tell(&mut services, word) {
                let entry = services.entry(&key, &mesh());
                entries.insert(key, entry);
            }
            let mut fresh = Services::default();
            for word in last.values().rev().cloned() {
                tell(&mut fresh, word);
            }
            for name in ["s0", "s1"] {
                let entry = entries.get(&key(name)).and_then(Option::as_ref);
                let fresh = fresh.entry(&key(name), &mesh());
                prop_assert_eq!(entry, fresh.as_ref());
            }
        }
        // Without objects the indices are empty.
        for word in last.into_values() {
            let gone = match word {
                Word::Service(name, _) => Word::Service(name, None),
                Word::Endpoints(name, _) => Word::Endpoints(name, None),
                Word::Slice(name, _) => Word::Slice(name, None),
                Word::Pod(name, _) => Word::Pod(name, None),
                Word::Node(name, _) => Word::Node(name, None),
            };
            tell(&mut services, gone);
        }
        let left = [services.services_of_reference.len(), services.by_ip.len(), services.by_node.len(), services.parts_of.len()];
        prop_assert_eq!(left, [0; 4]);
    }
}
