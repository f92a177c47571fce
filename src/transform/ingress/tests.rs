//! Ingresses and their generated objects, as a user would write them.

use serde_json::json;

use super::*;

fn settings(mode: IngressControllerMode) -> Settings {
    let mut mesh = MeshConfig {
        ingress_class: "istio".to_owned(),
        ..MeshConfig::default()
    };
    mesh.set_ingress_controller_mode(mode);
    Settings::new(&mesh, "cluster.local")
}

fn ingress(value: Value) -> Ingress {
    serde_json::from_value(value).unwrap()
}

fn all(ingresses: &[(&str, &str, Value)]) -> BTreeMap<Key, Ingress> {
    let ingresses = ingresses.iter();
    ingresses
        .map(|(namespace, name, value)| (Key::new(*namespace, *name), ingress(value.clone())))
        .collect()
}

/// `shop/web` has one named port.
fn port(service: &Key, name: &str) -> Option<u16> {
    (service.to_string() == "shop/web" && name == "http").then_some(8080)
}

fn generated(ingresses: &BTreeMap<Key, Ingress>) -> Outcome {
    transform(ingresses, &settings(IngressControllerMode::Default), &port)
}

/// Renders the generated objects: collection without its folder, name and spec.
fn outcome_json(outcome: &Outcome) -> Value {
    let objects = outcome.generated.iter().map(|generated| {
        let collection = generated.collection.rsplit('/').next().unwrap();
        (
            format!("{collection} {}", generated.key),
            generated.spec.clone(),
        )
    });
    Value::Object(objects.collect())
}

/// One backend by number, in today's shape.
fn path(path: &str, kind: &str, service: &str) -> Value {
    let backend = json!({"service": {"name": service, "port": {"number": 80}}});
    json!({"path": path, "pathType": kind, "backend": backend})
}

fn host(name: &str, paths: &[Value]) -> Value {
    json!({"host": name, "http": {"paths": paths}})
}

fn route(service: &str, port: u16, uris: &Value) -> Value {
    let destination = json!({"host": service, "port": {"number": port}});
    let mut route = json!({"route": [{"destination": destination, "weight": 100}]});
    if !uris.is_null() {
        let uris = uris.as_array().unwrap().iter();
        route["match"] = uris.map(|uri| json!({"uri": uri})).collect();
    }
    route
}

/// A host that no Gateway can have costs no other host its server.
#[test]
fn a_host_that_cannot_be_served_is_left_out_alone() {
    let one = json!({
        "metadata": {"name": "front", "namespace": "shop"},
        "spec": {"tls": [
            {"hosts": ["a.example", "localhost", "*.b.example"]},
            {"hosts": ["a_b.example", "ns/c.example"]},
            {"hosts": []},
        ]},
    });
    let outcome = generated(&all(&[("shop", "front", one)]));
    let paths: Vec<_> = outcome.findings.iter().map(|one| &*one.path).collect();
    assert_eq!(
        paths,
        [
            "spec.tls[0].hosts[1]",
            "spec.tls[1].hosts[0]",
            "spec.tls[1].hosts[1]"
        ]
    );
    assert_eq!(
        outcome.findings[0].message,
        "\"localhost\" is not served: short names are not allowed"
    );
    let [gateway] = &outcome.generated[..] else {
        panic!("{outcome:?}")
    };
    assert_eq!(gateway.object().1, []);
    let servers = gateway.spec["servers"].as_array().unwrap();
    let hosts: Vec<_> = servers.iter().map(|server| &server["hosts"]).collect();
    assert_eq!(
        hosts,
        [
            &json!(["a.example", "*.b.example"]),
            &json!(["*"]),
            &json!(["*"])
        ]
    );
}

#[test]
fn a_secret_that_no_router_reads_is_told() {
    let tls = |name: &str| json!({"hosts": ["a.example"], "secretName": name});
    let one = json!({"spec": {"tls": [tls("istio-ingress-certs"), tls("a"), tls("")]}});
    let outcome = generated(&all(&[("shop", "front", one)]));
    let paths: Vec<_> = outcome.findings.iter().map(|one| &*one.path).collect();
    assert_eq!(paths, ["spec.tls[1].secretName"]);
    assert!(outcome.findings[0].message.starts_with("has no effect: "));
}

#[test]
fn an_ingress_is_a_gateway_and_a_virtual_service_for_each_host() {
    let one = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": "front",
            "namespace": "shop",
            "creationTimestamp": "1970-01-01T00:01:00Z",
            "labels": {"l": "1"},
            "annotations": {"kubernetes.io/ingress.class": "istio", "a": "1"},
        },
        "spec": {
            "tls": [{"hosts": ["a.example.com", "b.example.com"], "secretName": "istio-ingress-certs"}, {"secretName": null}],
            "rules": [
                host("a.example.com", &[path("/", "Prefix", "web")]),
                {"http": {"paths": [{"backend": {"service": {"name": "web", "port": {"name": "http"}}}}]}},
            ],
        },
    });
    let ingresses = all(&[("shop", "front", one)]);
    let outcome = generated(&ingresses);
    assert_eq!(outcome.findings, []);
    let tls = json!({
        "mode": "SIMPLE",
        "serverCertificate": "/etc/istio/ingress-certs/tls.crt",
        "privateKey": "/etc/istio/ingress-certs/tls.key",
        "caCertificates": "/etc/istio/ingress-certs/root-cert.pem",
    });
    let server = |name: &str, hosts: Value| {
        let port = json!({"number": 443, "protocol": "HTTPS", "name": name});
        json!({"port": port, "hosts": hosts, "tls": tls})
    };
    let gateways = ["istio-autogenerated-k8s-ingress"];
    assert_eq!(
        outcome_json(&outcome),
        json!({
            "gateways istio-system/front-istio-autogenerated-k8s-ingress": {
                "servers": [
                    server("https-443-i-front-shop", json!(["a.example.com", "b.example.com"])),
                    server("https-443-i-front-shop-1", json!(["*"])),
                    {
                        "port": {"number": 80, "protocol": "HTTP", "name": "http-80-i-front-shop"},
                        "hosts": ["*"],
                    },
                ],
                "selector": {"istio": "ingress"},
            },
            "virtualservices istio-system/*-front-istio-autogenerated-k8s-ingress": {
                "hosts": ["*"],
                "gateways": gateways,
                "http": [route("web.shop.svc.cluster.local", 8080, &json!(null))],
            },
            "virtualservices istio-system/a-example-com-front-istio-autogenerated-k8s-ingress": {
                "hosts": ["a.example.com"],
                "gateways": gateways,
                "http": [route("web.shop.svc.cluster.local", 80, &json!([{"prefix": "/"}]))],
            },
        })
    );
    for generated in &outcome.generated {
        // The object passes validation.
        let (object, findings) = generated.object();
        assert_eq!(findings, []);
        let object = object.unwrap();
        assert_eq!(object.kind.collection, generated.collection);
        assert_eq!(object.full_name(), generated.key.to_string());
        assert_eq!(object.spec, generated.spec);
        assert_eq!(generated.create_time.as_ref().unwrap().seconds, 60);
        assert_eq!(generated.labels["l"], "1");
        let annotations: Vec<_> = generated.annotations.keys().collect();
        assert_eq!(annotations, ["a"]);
    }
}

#[test]
fn the_older_shape_gives_the_same() {
    let rules = |backend: Value| json!([{"host": "h", "http": {"paths": [{"path": "/x", "backend": backend}]}}]);
    let today = |port: Value| {
        let backend = json!({"service": {"name": "web", "port": port}});
        generated(&all(&[(
            "shop",
            "front",
            json!({"spec": {"rules": rules(backend)}}),
        )]))
    };
    for (older, port) in [
        (json!(80), json!({"number": 80})),
        (json!("80"), json!({"number": 80})),
        (json!("http"), json!({"name": "http"})),
    ] {
        let backend = json!({"serviceName": "web", "servicePort": older});
        let spec = json!({"rules": rules(backend), "tls": null});
        let outcome = generated(&all(&[("shop", "front", json!({"spec": spec}))]));
        assert_eq!(outcome.findings, []);
        assert_eq!(outcome, today(port));
    }
}

#[test]
fn a_class_decides_whose_it_is() {
    use IngressControllerMode::{Default, Off, Strict, Unspecified};
    let annotated = |class: &str| json!({"metadata": {"annotations": {INGRESS_CLASS: class}}});
    let named = |class: &str| json!({"spec": {"ingressClassName": class}});
    let mut both = named("istio");
    both["metadata"] = annotated("other")["metadata"].clone();
    for (ingress, strict, default) in [
        (json!({}), false, true),
        (annotated("istio"), true, true),
        (annotated("other"), false, false),
        (named("istio"), true, true),
        (named("other"), false, false),
        (both, false, false),
    ] {
        let ingresses = all(&[("shop", "front", ingress.clone())]);
        for (mode, taken) in [
            (Strict, strict),
            (Unspecified, strict),
            (Default, default),
            (Off, false),
        ] {
            let outcome = transform(&ingresses, &settings(mode), &port);
            assert_eq!(
                outcome.generated.len(),
                usize::from(taken),
                "{mode:?} {ingress}"
            );
        }
    }
}

#[test]
fn the_selector_may_be_another() {
    let mesh = MeshConfig {
        ingress_controller_mode: 2,
        ingress_selector: "edge".to_owned(),
        ..MeshConfig::default()
    };
    let ingresses = all(&[("shop", "front", json!({}))]);
    let outcome = transform(&ingresses, &Settings::new(&mesh, "x"), &port);
    assert_eq!(
        outcome.generated[0].spec["selector"],
        json!({"istio": "edge"})
    );
}

/// The uris of the one host, in order.
fn uris(outcome: &Outcome) -> Vec<String> {
    let generated = outcome
        .generated
        .iter()
        .find(|generated| generated.collection == VIRTUAL_SERVICES);
    let routes = generated.unwrap().spec["http"].as_array().unwrap();
    let uris = routes.iter().map(|route| {
        let matches = route["match"].as_array().into_iter().flatten();
        let uris = matches.map(|one| {
            let (kind, path) = one["uri"].as_object().unwrap().iter().next().unwrap();
            format!("{kind} {}", path.as_str().unwrap())
        });
        uris.collect::<Vec<_>>().join(", ")
    });
    uris.collect()
}

#[test]
fn a_path_is_what_its_type_makes_of_it() {
    for (written, kind, uri) in [
        ("/p", "Exact", "exact /p"),
        ("/p.*", "Exact", "exact /p.*"),
        ("/p", "Prefix", "exact /p, prefix /p/"),
        ("/p/", "Prefix", "exact /p, prefix /p/"),
        ("/", "Prefix", "prefix /"),
        ("/p", "ImplementationSpecific", "exact /p"),
        ("/p.*", "ImplementationSpecific", "prefix /p"),
        ("/p/*", "", "prefix /p"),
        ("/p/.*", "", "prefix /p/"),
        ("/*", "", "prefix /"),
        (".*", "", "prefix /"),
        ("/", "", "exact /"),
        ("", "Prefix", ""),
        ("", "", ""),
    ] {
        let rules = json!({"rules": [host("h", &[path(written, kind, "web")])]});
        let outcome = generated(&all(&[("shop", "front", json!({"spec": rules}))]));
        assert_eq!(uris(&outcome), [uri], "{written} {kind}");
    }
}

#[test]
fn exact_ones_come_first_then_longer_ones_and_equal_ones_as_written() {
    let paths = [
        path("", "", "web"),
        path("/a", "Prefix", "web"),
        path("/b.*", "", "web"),
        path("/a/b/c", "Prefix", "web"),
        path("/x", "Exact", "web"),
        path("/c.*", "", "web"),
        path("/long", "Exact", "web"),
        path("/y", "Exact", "web"),
    ];
    let rules = json!({"rules": [host("h", &paths)]});
    let outcome = generated(&all(&[("shop", "front", json!({"spec": rules}))]));
    assert_eq!(
        uris(&outcome),
        [
            "exact /long",
            "exact /x",
            "exact /y",
            "exact /a/b/c, prefix /a/b/c/",
            "exact /a, prefix /a/",
            "prefix /b",
            "prefix /c",
            "",
        ]
    );
}

#[test]
fn ingresses_of_one_host_share_it_under_the_name_of_the_first() {
    let of = |service: &str| {
        let rules = json!([host("a.b", &[path("/p", "Exact", service)])]);
        json!({"metadata": {"labels": {"of": service}}, "spec": {"rules": rules}})
    };
    let mut ingresses = all(&[
        ("shop", "two", of("second")),
        ("shop", "three", of("third")),
        ("cart", "one", of("first")),
    ]);
    let virtual_services = |ingresses: &BTreeMap<Key, Ingress>| -> Vec<String> {
        let outcome = generated(ingresses);
        let generated = outcome
            .generated
            .iter()
            .filter(|generated| generated.collection == VIRTUAL_SERVICES);
        let lines = generated.map(|generated| {
            let routes = generated.spec["http"].as_array().unwrap().iter();
            let hosts =
                routes.map(|route| route["route"][0]["destination"]["host"].as_str().unwrap());
            let names = hosts.map(|host| host.split('.').next().unwrap());
            format!(
                "{} {}: {}",
                generated.key.name,
                generated.labels["of"],
                names.collect::<Vec<_>>().join(" ")
            )
        });
        lines.collect()
    };
    assert_eq!(
        virtual_services(&ingresses),
        ["a-b-one-istio-autogenerated-k8s-ingress first: first third second"]
    );
    assert_eq!(generated(&ingresses).generated.len(), 4);
    // The rest stays, under the name of the new first.
    ingresses.remove(&Key::new("cart", "one"));
    assert_eq!(
        virtual_services(&ingresses),
        ["a-b-three-istio-autogenerated-k8s-ingress third: third second"]
    );
}

/// Dots become dashes, and an Ingress's name may be the end of a host: both are served all the same.
#[test]
fn hosts_whose_names_are_equal_are_both_served() {
    let of = |hosts: &[&str]| {
        let rules = hosts
            .iter()
            .map(|name| host(name, &[path("/", "Prefix", "web")]));
        json!({"spec": {"rules": rules.collect::<Vec<_>>()}})
    };
    let services = |ingresses: &[(&str, &str, Value)]| -> Vec<(String, String)> {
        let outcome = generated(&all(ingresses));
        assert_eq!(outcome.findings, []);
        let generated = outcome.generated.iter();
        let services = generated.filter(|generated| generated.collection == VIRTUAL_SERVICES);
        let lines = services.map(|generated| {
            assert!(
                may_be_generated(&generated.key.to_string()),
                "{}",
                generated.key
            );
            let host = generated.spec["hosts"][0].as_str().unwrap();
            (host.to_owned(), generated.key.name.clone())
        });
        lines.collect()
    };
    let named = |host: &str, name: &str| (host.to_owned(), format!("{name}-{SUFFIX}"));
    assert_eq!(
        services(&[("shop", "web", of(&["a.b.c", "a.b-c", "a-b.c", "other"]))]),
        [
            named("a-b.c", "a-b-c-web"),
            ("a.b-c".to_owned(), format!("a-b-c-web-{SUFFIX}-1")),
            ("a.b.c".to_owned(), format!("a-b-c-web-{SUFFIX}-2")),
            named("other", "other-web"),
        ]
    );
    assert_eq!(
        services(&[("shop", "c-x", of(&["a.b"])), ("shop", "x", of(&["a.b.c"]))]),
        [
            named("a.b", "a-b-c-x"),
            ("a.b.c".to_owned(), format!("a-b-c-x-{SUFFIX}-1")),
        ]
    );
    // The one that is left has the plain name.
    assert_eq!(
        services(&[("shop", "x", of(&["a.b.c"]))]),
        [named("a.b.c", "a-b-c-x")]
    );
}

#[test]
fn the_name_of_an_object_tells_whether_it_may_be_generated() {
    for (name, may) in [
        (format!("istio-system/a-{SUFFIX}"), true),
        (format!("istio-system/a-{SUFFIX}-1"), true),
        (format!("istio-system/a-{SUFFIX}-27"), true),
        (format!("istio-system/a-{SUFFIX}-{:032x}", 0xabc), true),
        (format!("istio-system/a-{SUFFIX}-{:031x}", 0xabc), false),
        (format!("istio-system/a-{SUFFIX}-"), false),
        (format!("istio-system/a-{SUFFIX}-x"), false),
        (format!("istio-system/a-{SUFFIX}x1"), false),
        (format!("shop/a-{SUFFIX}"), false),
        (format!("istio-system{SUFFIX}"), false),
        (format!("istio-system/*-web-{SUFFIX}"), true),
        ("istio-system/a".to_owned(), false),
        ("istio-system/a-1".to_owned(), false),
    ] {
        assert_eq!(may_be_generated(&name), may, "{name}");
        assert_eq!(is_generated_name(VIRTUAL_SERVICES, &name), may, "{name}");
        let other = "istio/networking/v1alpha3/destinationrules";
        assert!(!is_generated_name(other, &name), "{name}");
    }
}

/// The suffix alone excuses no name.
#[test]
fn a_generated_gateway_has_the_name_of_an_ingress() {
    for (name, is_one) in [
        ("shop/web", false),
        ("shop/a.b", false),
        ("istio-system/a.b", false),
        ("shop/a.b-istio-autogenerated-k8s-ingress", false),
        ("istio-system/a.b-istio-autogenerated-k8s-ingress", true),
        ("istio-system/a..b-istio-autogenerated-k8s-ingress", false),
        ("istio-system/A_b-istio-autogenerated-k8s-ingress", false),
        ("istio-system/a-.b-istio-autogenerated-k8s-ingress", false),
        ("istio-system/.-istio-autogenerated-k8s-ingress", false),
        ("istio-system/*-istio-autogenerated-k8s-ingress", false),
    ] {
        assert_eq!(is_generated_name(GATEWAYS, name), is_one, "{name}");
        assert!(!is_one || may_be_generated(name), "{name}");
    }
}

#[test]
fn two_of_one_name_share_a_gateway() {
    let outcome = generated(&all(&[
        ("a", "front", json!({})),
        ("b", "front", json!({})),
    ]));
    assert_eq!(outcome.generated.len(), 1);
    let servers = outcome.generated[0].spec["servers"]
        .as_array()
        .unwrap()
        .iter();
    let names: Vec<_> = servers
        .map(|server| server["port"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["http-80-i-front-a", "http-80-i-front-b"]);
}

#[test]
fn an_ingress_that_is_not_taken_says_why_unless_it_is_anothers() {
    use IngressControllerMode::{Default, Off, Strict};
    let of = |mode, class: &str| {
        let ingress = ingress(json!({"spec": {"ingressClassName": class}}));
        let settings = settings(mode);
        let refusal = settings.refusal(&ingress);
        assert!(!(settings.takes(&ingress) && refusal.is_some()));
        refusal.unwrap_or_default()
    };
    let off = "is not served: ingressControllerMode of the mesh is OFF";
    let strict = "is not served by the mesh: it has no class, and ingressControllerMode STRICT serves those of the class \"istio\"";
    for (mode, class, expected) in [
        (Off, "istio", off),
        (Off, "", off),
        (Off, "nginx", ""),
        (Strict, "istio", ""),
        (Strict, "", strict),
        (Strict, "nginx", ""),
        (Default, "", ""),
        (Default, "nginx", ""),
    ] {
        assert_eq!(of(mode, class), expected, "{mode:?} {class:?}");
    }
}

#[test]
fn findings_name_backends_that_are_left_out() {
    let backend = |backend: Value| json!({"path": "/x", "backend": backend});
    let service = |port: Value| backend(json!({"service": {"name": "web", "port": port}}));
    let rules = json!([
        {"host": "only"},
        host("h", &[
            service(json!({"name": "unknown"})),
            service(json!({})),
            service(json!({"name": "http"})),
            backend(json!({"resource": {"kind": "Bucket", "name": "b"}})),
            backend(json!({"service": {"name": "t_x", "port": {"number": 80}}})),
        ]),
        host("none", &[service(json!(null))]),
    ]);
    let spec = json!({"defaultBackend": {"service": {"name": "web"}}, "rules": rules});
    let outcome = generated(&all(&[("shop", "front", json!({"spec": spec}))]));
    let findings = outcome.findings.iter();
    let lines: Vec<_> = findings
        .map(|one| format!("{} {}: {}", one.ingress, one.path, one.message))
        .collect();
    assert_eq!(
        lines,
        [
            "shop/front spec.defaultBackend: a default backend is not served",
            "shop/front spec.rules[1].http.paths[0].backend: Service shop/web has no port named \"unknown\"",
            "shop/front spec.rules[1].http.paths[1].backend: the port of Service web is missing",
            "shop/front spec.rules[1].http.paths[3].backend: a backend that is no Service is not served",
            "shop/front spec.rules[1].http.paths[4].backend: \"t_x\" is not a DNS label",
            "shop/front spec.rules[2].http.paths[0].backend: the port of Service web is missing",
        ]
    );
    assert_eq!(uris(&outcome), ["exact /x"]);
    assert_eq!(outcome.generated.len(), 2);
}

#[test]
fn equal_ingresses_give_equal_objects() {
    let spec = |at: u8| json!({"spec": {"rules": [host("h", &[path(&format!("/{at}"), "Exact", "web")])]}});
    let list: Vec<_> = (0..5)
        .map(|at| ("shop", ["a", "b", "c", "d", "e"][usize::from(at)], spec(at)))
        .collect();
    let mut back = list.clone();
    back.reverse();
    assert_eq!(generated(&all(&list)), generated(&all(&back)));
}
