//! Certificates that Gateways name, and who may have them (discovery.md §16).

use api::model::Credential;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    Secret, common_tls_context, secret,
};

use super::gateways::{context, gateway, router};
use super::*;

fn credential(world: &mut World, name: &str, data: &[(&str, &str)]) {
    let (namespace, name) = name.split_once('/').unwrap_or(("edge", name));
    let found = Credential::of_data(|name| {
        let found = data.iter().find(|(known, _)| *known == name);
        found.map(|(_, text)| text.as_bytes())
    });
    let all = Arc::make_mut(&mut world.credentials);
    all.insert((namespace.into(), name.into()), Arc::new(found.unwrap()));
}

const PAIR: [(&str, &str); 2] = [("tls.crt", "chain"), ("tls.key", "key")];

fn with(tls: &str) -> World {
    let mut world = world();
    let spec = format!(
        "selector: {{istio: edge}}\nservers: [{{port: {{number: 443, name: a, protocol: HTTPS}}, hosts: [a.example], tls: {tls}}}, \
         {{port: {{number: 443, name: b, protocol: HTTPS}}, hosts: [b.example], tls: {{mode: ISTIO_MUTUAL}}}}]"
    );
    gateway(&mut world, "g", 1, &spec);
    world
}

fn trusted(node: &Node) -> Arc<Node> {
    let mut node = node.clone();
    node.router.may_have_secrets = true;
    Arc::new(node)
}

/// Returns the number of chains, and the names that are asked for.
fn seen(world: &World, node: &Arc<Node>) -> (usize, Vec<String>, Vec<String>) {
    let snapshot = snapshot(world.clone());
    let view = snapshot.view(node);
    let secrets = view.all(Type::Secret);
    let names: Vec<_> = secrets.iter().map(|one| one.name.to_string()).collect();
    for name in &names {
        assert!(view.get(Type::Secret, name).is_some() && view.name(Type::Secret, name).is_some());
    }
    let listener = view.get(Type::Listener, "0.0.0.0_443");
    let messages = snapshot
        .conflicts()
        .into_iter()
        .map(|one| one.message)
        .collect();
    let Some(listener) = listener else {
        return (0, names, messages);
    };
    let listener = Listener::decode(&*listener.body).unwrap();
    let mut asked = Vec::new();
    for chain in &listener.filter_chains {
        let common = context(chain).unwrap().common_tls_context.unwrap();
        let pairs = common.tls_certificate_sds_secret_configs.iter();
        asked.extend(pairs.map(|one| one.name.clone()));
        if let Some(common_tls_context::ValidationContextType::CombinedValidationContext(both)) =
            common.validation_context_type
        {
            asked.push(both.validation_context_sds_secret_config.unwrap().name);
        }
    }
    asked.sort();
    assert_eq!(asked, names, "what is asked for is there, and nothing else");
    (listener.filter_chains.len(), names, messages)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_server_has_the_certificate_that_it_names() {
    let edge = trusted(&router("edge"));
    let own = "kubernetes://a";
    let root = "kubernetes://a-cacert";
    let plain: &[(&str, &[(&str, &str)])] = &[("a", &PAIR)];
    let beside: &[(&str, &[(&str, &str)])] = &[("a", &[PAIR[0], PAIR[1], ("ca.crt", "root")])];
    let apart: &[(&str, &[(&str, &str)])] = &[("a", &PAIR), ("a-cacert", &[("cacert", "root")])];
    let none = "there is no certificate in secret edge/a";
    let no_root = "there is no root in secret edge/a-cacert or edge/a";
    for (tls, secrets, chains, names, wrong) in [
        (
            "{mode: SIMPLE, credentialName: a}",
            plain,
            2,
            &[own][..],
            "",
        ),
        (
            "{mode: SIMPLE, credentialName: edge/a}",
            plain,
            2,
            &[own],
            "",
        ),
        (
            "{mode: SIMPLE, credentialName: 'kubernetes://a'}",
            plain,
            2,
            &[own],
            "",
        ),
        ("{mode: SIMPLE, credentialNames: [a]}", plain, 2, &[own], ""),
        (
            "{mode: MUTUAL, credentialName: a}",
            beside,
            2,
            &[own, root],
            "",
        ),
        (
            "{mode: MUTUAL, credentialName: a}",
            apart,
            2,
            &[own, root],
            "",
        ),
        (
            "{mode: OPTIONAL_MUTUAL, credentialName: a}",
            apart,
            2,
            &[own, root],
            "",
        ),
        ("{mode: SIMPLE, credentialName: a}", apart, 2, &[own], ""),
        ("{mode: SIMPLE, credentialName: a}", &[], 1, &[], none),
        (
            "{mode: SIMPLE, credentialName: a}",
            &[("other/a", &PAIR)],
            1,
            &[],
            none,
        ),
        (
            "{mode: SIMPLE, credentialName: a}",
            &[("a", &[("cacert", "root")])],
            1,
            &[],
            none,
        ),
        (
            "{mode: MUTUAL, credentialName: a}",
            plain,
            1,
            &[own],
            no_root,
        ),
        (
            "{mode: SIMPLE, credentialName: demo/a}",
            &[("demo/a", &PAIR)],
            1,
            &[],
            "secret demo/a is not of the proxy's namespace",
        ),
    ] {
        let mut world = with(tls);
        for (name, data) in secrets {
            credential(&mut world, name, data);
        }
        let expected = if wrong.is_empty() {
            Vec::new()
        } else {
            vec![format!(
                "spec.servers[0] of Gateway demo/g is left out: {wrong}"
            )]
        };
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let (found, asked, messages) = match chains {
            // A pair without its root is there, and nobody asks for it.
            1 if !names.is_empty() => {
                let snapshot = snapshot(world);
                let view = snapshot.view(&edge);
                let listener: Listener = decoded(&*view, Type::Listener, "0.0.0.0_443");
                let messages = snapshot.conflicts().into_iter().map(|one| one.message);
                (
                    listener.filter_chains.len(),
                    names.clone(),
                    messages.collect(),
                )
            }
            _ => seen(&world, &edge),
        };
        assert_eq!((found, asked, messages), (chains, names, expected), "{tls}");
    }
}

#[test]
fn a_served_secret_has_the_content_of_its_source() {
    let mut world = with("{mode: MUTUAL, credentialName: a}");
    credential(&mut world, "a", &PAIR);
    credential(&mut world, "a-cacert", &[("cacert", "root")]);
    let view = snapshot(world).view(&trusted(&router("edge")));
    let text = |source: Option<core::DataSource>| match source.unwrap().specifier.unwrap() {
        core::data_source::Specifier::InlineBytes(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    };
    let pair: Secret = decoded(&*view, Type::Secret, "kubernetes://a");
    assert_eq!(pair.name, "kubernetes://a");
    let Some(secret::Type::TlsCertificate(pair)) = pair.r#type else {
        panic!("a pair");
    };
    assert_eq!(text(pair.certificate_chain), "chain");
    assert_eq!(text(pair.private_key), "key");
    let root: Secret = decoded(&*view, Type::Secret, "kubernetes://a-cacert");
    let Some(secret::Type::ValidationContext(root)) = root.r#type else {
        panic!("a root");
    };
    assert_eq!(text(root.trusted_ca), "root");
    let printed = format!("{view:?} {:?}", view.all(Type::Secret));
    assert!(!printed.contains("107"), "{printed}");
}

#[test]
fn other_namespaces_receive_no_secret() {
    let mut world = with("{mode: SIMPLE, credentialName: a}");
    for name in ["a", "b", "demo/a", "other/a"] {
        credential(&mut world, name, &PAIR);
    }
    let snapshot = snapshot(world.clone());
    let has = |node: &Arc<Node>, name: &str| snapshot.view(node).get(Type::Secret, name).is_some();
    let edge = trusted(&router("edge"));
    assert!(has(&edge, "kubernetes://a"));
    // None that no Gateway of its own names, nor in another spelling.
    for name in [
        "kubernetes://b",
        "a",
        "kubernetes://edge/a",
        "kubernetes://demo/a",
        "kubernetes://a-cacert",
        "",
    ] {
        assert!(!has(&edge, name), "{name}");
    }
    let untrusted = router("edge");
    assert!(!has(&untrusted, "kubernetes://a"));
    let (chains, _, messages) = seen(&world, &untrusted);
    assert_eq!(chains, 1);
    assert!(messages[0].ends_with("secret a is not given to a stream that is neither of this machine nor of a certificate for its namespace"), "{messages:?}");
    let sidecar = trusted(&node("edge", &[("istio", "edge")]));
    let mut proxyless = (*edge).clone();
    proxyless.grpc = true;
    for node in [sidecar, Arc::new(proxyless), trusted(&router("elsewhere"))] {
        assert!(!has(&node, "kubernetes://a"), "{}", node.id);
        assert!(snapshot.view(&node).all(Type::Secret).is_empty());
    }
    // A router of another namespace has what is of that.
    assert!(has(&trusted(&router("other")), "kubernetes://a"));
}

#[test]
fn a_rotation_changes_secrets_and_nothing_else() {
    let mut world = with("{mode: SIMPLE, credentialName: a}");
    credential(&mut world, "a", &PAIR);
    let edge = trusted(&router("edge"));
    let before = snapshot(world.clone());
    let older = before.view(&edge);
    let versions = |view: &dyn View| Type::ALL.map(|kind| view.all(kind).version());
    let old = versions(&*older);
    let mut changed = world.clone();
    credential(
        &mut changed,
        "a",
        &[("tls.crt", "chain"), ("tls.key", "other")],
    );
    let next = before.next(changed, None, None);
    let new = versions(&*next.snapshot.view(&edge));
    let differ: Vec<_> = Type::ALL
        .into_iter()
        .filter(|kind| {
            let at = Type::ALL.iter().position(|one| one == kind).unwrap();
            old[at] != new[at]
        })
        .collect();
    assert_eq!(differ, [Type::Secret]);
    // It concerns the routers of its namespace, and nobody else.
    let others = [router("other"), node("edge", &[]), node("demo", &[])];
    assert!(next.concerns(&edge));
    assert!(others.iter().all(|node| !next.concerns(node)));
}

/// They are looked for where the pods are that a Gateway selects, by name, and nowhere else.
#[test]
fn secrets_are_looked_for_by_name_where_routers_are() {
    let named = |tls: &str, own: bool| {
        let mut world = with(tls);
        for (namespace, pod, istio) in [
            ("edge", "a", "edge"),
            ("other", "b", "edge"),
            ("third", "c", "x"),
        ] {
            let key = api::model::WorkloadKey {
                cluster: "Kubernetes".into(),
                namespace: namespace.into(),
                name: pod.into(),
            };
            let workload = api::model::Workload {
                key: key.clone(),
                addresses: Vec::new(),
                labels: Arc::new(labels(&[("istio", istio)])),
                locality: Locality::default(),
                network: None,
                account: None,
                ports: std::collections::BTreeMap::default(),
                owner: None,
                health: api::model::Health::Ready,
            };
            Arc::make_mut(&mut world.workloads).insert(key, Arc::new(workload));
        }
        let settings = Settings {
            gateways_of_own_namespace: own,
            ..Settings::default()
        };
        let wanted = crate::snapshot::named_credentials(&world, &settings).into_iter();
        let lines: Vec<_> = wanted
            .map(|(namespace, name)| format!("{namespace}/{name}"))
            .collect();
        lines.join(" ")
    };
    for (tls, own, wanted) in [
        (
            "{mode: SIMPLE, credentialName: a}",
            false,
            "demo/a edge/a other/a",
        ),
        ("{mode: SIMPLE, credentialName: a}", true, "demo/a"),
        ("{mode: SIMPLE, credentialName: edge/a}", false, "edge/a"),
        (
            "{mode: MUTUAL, credentialName: a}",
            true,
            "demo/a demo/a-cacert",
        ),
        (
            "{mode: SIMPLE, credentialNames: [a, b]}",
            true,
            "demo/a demo/b",
        ),
        ("{mode: ISTIO_MUTUAL}", false, ""),
        (
            "{mode: SIMPLE, serverCertificate: /c, privateKey: /k}",
            false,
            "",
        ),
    ] {
        assert_eq!(named(tls, own), wanted, "{tls}");
    }
}

/// A proxy asks for what it has in files by name, so that it may refuse that alone.
#[test]
fn files_are_asked_for_by_name_and_each_has_its_objects() {
    let own = "file-cert:/c/tls.crt~/c/tls.key";
    let files = "serverCertificate: /c/tls.crt, privateKey: /c/tls.key";
    let root = "file-root:/c/ca.crt";
    for (tls, wanted) in [
        (format!("{{mode: SIMPLE, {files}}}"), vec![own]),
        (
            format!("{{mode: MUTUAL, {files}, caCertificates: /c/ca.crt}}"),
            vec![own, root],
        ),
        (
            format!("{{mode: OPTIONAL_MUTUAL, {files}, caCertificates: /c/ca.crt, caCrl: /c/crl}}"),
            vec![own, "file-root:/c/ca.crt~/c/crl"],
        ),
        (
            "{mode: SIMPLE, tlsCertificates: [{serverCertificate: /1.crt, privateKey: /1.key}, {serverCertificate: /2.crt, \
             privateKey: /2.key}]}"
                .to_owned(),
            vec!["file-cert:/1.crt~/1.key", "file-cert:/2.crt~/2.key"],
        ),
        // Clients are checked by one root, be it written beside a certificate.
        (
            "{mode: MUTUAL, tlsCertificates: [{serverCertificate: /1.crt, privateKey: /1.key, caCertificates: /1.ca}, \
             {serverCertificate: /2.crt, privateKey: /2.key, caCertificates: /2.ca}]}"
                .to_owned(),
            vec!["file-cert:/1.crt~/1.key", "file-cert:/2.crt~/2.key", "file-root:/1.ca"],
        ),
        ("{mode: ISTIO_MUTUAL}".to_owned(), vec![]),
        (
            "{mode: ISTIO_MUTUAL, caCrl: /c/crl}".to_owned(),
            vec!["file-root:/etc/certs/root-cert.pem~/c/crl"],
        ),
        ("{mode: SIMPLE, credentialName: a}".to_owned(), vec!["kubernetes://a"]),
    ] {
        let mut world = with(&tls);
        credential(&mut world, "a", &PAIR);
        let (chains, names, messages) = seen(&world, &trusted(&router("edge")));
        assert_eq!((chains, names), (2, wanted.iter().map(|name| (*name).to_owned()).collect()), "{tls}");
        assert_eq!(messages, [""; 0]);
    }
    // Whoever has them: nobody shows who he is for what he has himself.
    let world = with(&format!(
        "{{mode: MUTUAL, {files}, caCertificates: /c/ca.crt}}"
    ));
    let view = snapshot(world).view(&router("edge"));
    for (name, file) in [(own, "/c/tls.key"), (root, "/c/ca.crt")] {
        let secret = view.get(Type::Secret, name).unwrap();
        assert_eq!(secret.from[0].to_string(), "Gateway demo/g");
        let secret = Secret::decode(&*secret.body).unwrap();
        let text = format!("{:?}", secret.r#type);
        assert!(text.contains(&format!("Filename({file:?})")), "{text}");
    }
    // The same of a Sidecar that ends TLS.
    let mut world = world_of_sidecar(files);
    let view = snapshot(world.clone()).view(&node("demo", &[]));
    let names = |view: &dyn View| -> Vec<String> {
        let all = view.all(Type::Secret);
        all.iter().map(|one| one.name.to_string()).collect()
    };
    assert_eq!(names(&*view), [own]);
    let secret = view.get(Type::Secret, own).unwrap();
    assert_eq!(secret.from[0].to_string(), "Sidecar demo/s");
    Arc::make_mut(&mut world.sidecars).clear();
    assert_eq!(names(&*snapshot(world).view(&node("demo", &[]))), [""; 0]);
}

fn world_of_sidecar(files: &str) -> World {
    let mut world = world();
    let spec = format!(
        "ingress: [{{port: {{number: 8443, name: a, protocol: HTTPS}}, defaultEndpoint: '127.0.0.1:8080', tls: {{mode: SIMPLE, {files}}}}}]"
    );
    insert(
        &mut world.sidecars,
        object::<api::networking::Sidecar>("s", 1, &spec),
    );
    world
}

mod of_clients {
    use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::UpstreamTlsContext;

    use super::*;

    const A: &str = "outbound|80||a.demo.svc.cluster.local";

    /// Names that the cluster of a service asks for; `None`: there is no cluster. And what is told.
    fn asked(world: &World, node: &Arc<Node>) -> (Option<Vec<String>>, Vec<String>) {
        use envoy_types::pb::envoy::config::core::v3::transport_socket::ConfigType;
        let snapshot = snapshot(world.clone());
        let view = snapshot.view(node);
        let cluster = view.get(Type::Cluster, A);
        let names = cluster.map(|cluster| {
            let socket = Cluster::decode(&*cluster.body).unwrap().transport_socket;
            let Some(ConfigType::TypedConfig(any)) = socket.unwrap().config_type else {
                panic!("a context");
            };
            let context = UpstreamTlsContext::decode(&*any.value).unwrap();
            let common = context.common_tls_context.unwrap();
            let pairs = common.tls_certificate_sds_secret_configs.into_iter();
            let mut names: Vec<_> = pairs.map(|one| one.name).collect();
            if let Some(common_tls_context::ValidationContextType::CombinedValidationContext(
                both,
            )) = common.validation_context_type
            {
                names.push(both.validation_context_sds_secret_config.unwrap().name);
            }
            names
        });
        let given = view.all(Type::Secret);
        let mut given: Vec<_> = given.iter().map(|one| one.name.to_string()).collect();
        let mut wanted = names.clone().unwrap_or_default();
        given.sort();
        wanted.sort();
        assert_eq!(
            given, wanted,
            "what is asked for is there, and nothing else"
        );
        let conflicts = snapshot.conflicts().into_iter();
        (names, conflicts.map(|one| one.message).collect())
    }

    fn ruled(name: &str, tls: &str, more: &str) -> World {
        let mut world = world();
        let spec = format!("host: a.demo.svc.cluster.local\ntrafficPolicy: {{tls: {tls}}}\n{more}");
        destination_rule(&mut world, name, 1, &spec);
        world
    }

    const MUTUAL: &str = "{mode: MUTUAL, credentialName: a}";

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn a_router_begins_tls_with_what_a_rule_names() {
        let edge = trusted(&router("edge"));
        let whole: &[(&str, &[(&str, &str)])] = &[("a", &[PAIR[0], PAIR[1], ("ca.crt", "root")])];
        let apart: &[(&str, &[(&str, &str)])] =
            &[("a", &PAIR), ("a-cacert", &[("cacert", "root")])];
        let pair: &[(&str, &[(&str, &str)])] = &[("a", &PAIR)];
        let (own, root) = ("kubernetes://a", "kubernetes://a-cacert");
        for (tls, secrets, wanted) in [
            (MUTUAL, whole, Ok(&[own, root][..])),
            (MUTUAL, apart, Ok(&[own, root])),
            (
                "{mode: MUTUAL, credentialName: a, insecureSkipVerify: true}",
                pair,
                Ok(&[own]),
            ),
            ("{mode: SIMPLE, credentialName: a}", whole, Ok(&[root])),
            (
                "{mode: SIMPLE, credentialName: a-cacert}",
                apart,
                Ok(&[root]),
            ),
            (
                "{mode: MUTUAL, credentialName: edge/a}",
                whole,
                Ok(&[own, root]),
            ),
            (
                "{mode: SIMPLE, caCertificates: /r}",
                whole,
                Ok(&["file-root:/r"]),
            ),
            (
                "{mode: MUTUAL, clientCertificate: /c, privateKey: /k, caCertificates: /r, caCrl: /l}",
                whole,
                Ok(&["file-cert:/c~/k", "file-root:/r~/l"]),
            ),
            (
                "{mode: MUTUAL, clientCertificate: /c, privateKey: /k, insecureSkipVerify: true}",
                whole,
                Ok(&["file-cert:/c~/k"]),
            ),
            ("{mode: SIMPLE, insecureSkipVerify: true}", whole, Ok(&[])),
            ("{mode: ISTIO_MUTUAL}", whole, Ok(&[])),
            (
                MUTUAL,
                pair,
                Err("there is no root in secret edge/a-cacert or edge/a"),
            ),
            (MUTUAL, &[], Err("there is no certificate in secret edge/a")),
            (
                "{mode: MUTUAL, credentialName: other/a}",
                whole,
                Err("secret other/a is not of the proxy's namespace"),
            ),
        ] {
            let mut world = ruled("d", tls, "");
            for (name, data) in secrets {
                credential(&mut world, name, data);
            }
            // Another's of that name is another one.
            credential(
                &mut world,
                "other/a",
                &[PAIR[0], PAIR[1], ("ca.crt", "root")],
            );
            let (names, messages) = asked(&world, &edge);
            let wanted = wanted.map(|names| {
                names
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect::<Vec<_>>()
            });
            assert_eq!(names, wanted.clone().ok(), "{tls}: {messages:?}");
            let why = wanted.err();
            let why = why.map(|why| format!("{A} is left out: {why}"));
            let left_out = messages
                .iter()
                .find(|message| message.contains("is left out"));
            assert_eq!(left_out, why.as_ref(), "{tls}");
        }
    }

    /// Each file is a secret that says which rules name it, servers' and clients' alike.
    #[test]
    fn files_of_clients_have_their_objects() {
        let mut world = ruled("demo/d", "{mode: SIMPLE, caCertificates: /r}", "");
        service(&mut world, "b.demo", &[(80, "HTTP")], &[]);
        let spec = "host: b.demo.svc.cluster.local\nsubsets: [{name: v1, trafficPolicy: {tls: {mode: SIMPLE, caCertificates: /r}}}]";
        destination_rule(&mut world, "demo/e", 1, spec);
        let spec = "servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: ['*'], tls: {mode: MUTUAL, \
                    serverCertificate: /c, privateKey: /k, caCertificates: /r}}]";
        gateway(&mut world, "demo/g", 1, spec);
        let snapshot = snapshot(world);
        let from = |node: &Arc<Node>| {
            let view = snapshot.view(node);
            let secret = view.get(Type::Secret, "file-root:/r").unwrap();
            let text = format!("{:?}", Secret::decode(&*secret.body).unwrap().r#type);
            assert!(text.contains("Filename(\"/r\")"), "{text}");
            let from: Vec<_> = secret.from.iter().map(ToString::to_string).collect();
            from.join(", ")
        };
        let rules = "DestinationRule demo/d, DestinationRule demo/e";
        assert_eq!(from(&node("demo", &[])), rules);
        let all = format!("{rules}, Gateway demo/g");
        assert_eq!(from(&router("edge")), all);
        // A rule that a proxy does not see names nothing for it.
        let hidden = ruled(
            "demo/d",
            "{mode: SIMPLE, caCertificates: /r}",
            "exportTo: ['.']",
        );
        let hidden = super::snapshot(hidden);
        let names = |node: &Arc<Node>| hidden.view(node).all(Type::Secret).len();
        assert_eq!(
            (names(&node("demo", &[])), names(&node("other", &[]))),
            (1, 0)
        );
    }

    /// Each file is a response of its own: one rule's keep nobody else's waiting for long.
    #[test]
    fn files_of_one_rule_leave_room_for_those_of_others() {
        let subsets: Vec<_> = (0..300)
            .map(|n| format!("{{name: v{n}, trafficPolicy: {{tls: {{mode: SIMPLE, caCertificates: /r{n}}}}}}}"))
            .collect();
        let mut world = world();
        let spec = format!(
            "host: a.demo.svc.cluster.local\nsubsets: [{}]",
            subsets.join(", ")
        );
        destination_rule(&mut world, "demo/d", 1, &spec);
        let others = ["x", "y"].map(|name| format!("{name}.other"));
        for (name, tls) in others
            .iter()
            .zip(["{mode: SIMPLE, caCertificates: /other}", "{mode: SIMPLE}"])
        {
            service(&mut world, name, &[(80, "HTTP")], &[]);
            let spec = format!("host: {name}.svc.cluster.local\ntrafficPolicy: {{tls: {tls}}}");
            destination_rule(&mut world, &format!("other/{name}"), 2, &spec);
        }
        let snapshot = snapshot(world);
        let view = snapshot.view(&node("other", &[]));
        let names: Vec<_> = view
            .all(Type::Secret)
            .iter()
            .map(|one| one.name.to_string())
            .collect();
        assert_eq!(names.len(), 102);
        for name in [
            "file-root:/other",
            "file-root:/r0",
            "file-root:/r99",
            "file-root:/etc/ssl/certs/ca-certificates.crt",
        ] {
            assert!(names.iter().any(|one| one == name), "{name}");
        }
        let has = |subset: &str| {
            view.get(
                Type::Cluster,
                &format!("outbound|80|{subset}|a.demo.svc.cluster.local"),
            )
            .is_some()
        };
        assert_eq!(
            [has(""), has("v0"), has("v99"), has("v100"), has("v299")],
            [true, true, true, false, false]
        );
        for name in &others {
            assert!(
                view.get(
                    Type::Cluster,
                    &format!("outbound|80||{name}.svc.cluster.local")
                )
                .is_some()
            );
        }
        let conflicts = snapshot
            .conflicts()
            .into_iter()
            .map(|one| one.message)
            .collect::<Vec<_>>();
        let message = conflicts
            .iter()
            .find(|one| one.contains("files of a proxy"))
            .unwrap();
        assert!(
            message.starts_with("outbound|80|v100|a.demo.svc.cluster.local is left out"),
            "{message}"
        );
    }

    /// A sidecar has what a rule names that says which workloads it is for, and nobody has it who has not shown who he is.
    #[test]
    fn trusted_proxies_of_the_namespace_receive_the_secret() {
        let all = [PAIR[0], PAIR[1], ("ca.crt", "root")];
        let selecting = "workloadSelector: {matchLabels: {app: x}}";
        let both = Some(vec![
            "kubernetes://a".to_owned(),
            "kubernetes://a-cacert".to_owned(),
        ]);
        let file = Some(vec![
            "file-root:/etc/ssl/certs/ca-certificates.crt".to_owned(),
        ]);
        let x = [("app", "x")];
        for (rule, more, node, wanted) in [
            (
                "demo/d",
                selecting,
                trusted(&node("demo", &x)),
                both.clone(),
            ),
            ("demo/d", selecting, node("demo", &x), None),
            // It names nothing for it, and is served without a name.
            ("demo/d", "", trusted(&node("demo", &x)), file.clone()),
            ("demo/d", "", trusted(&router("demo")), both.clone()),
            ("demo/d", "", router("demo"), None),
        ] {
            let mut world = ruled(rule, MUTUAL, more);
            credential(&mut world, "demo/a", &all);
            let (names, messages) = asked(&world, &node);
            assert_eq!(names, wanted, "{more} {}: {messages:?}", node.id);
        }
        // For others there is no rule, and no TLS of it.
        let mut world = ruled("demo/d", MUTUAL, selecting);
        credential(&mut world, "demo/a", &all);
        credential(&mut world, "other/a", &all);
        for node in [
            trusted(&node("demo", &[("app", "y")])),
            trusted(&node("other", &x)),
        ] {
            let view = snapshot(world.clone()).view(&node);
            assert!(cluster(&*view, A).transport_socket.is_none());
            assert_eq!(view.all(Type::Secret).len(), 0);
        }
    }

    #[test]
    fn a_rotation_changes_secrets_and_nothing_else() {
        let edge = trusted(&router("edge"));
        let mut world = ruled("d", MUTUAL, "");
        let with = |world: &mut World, chain: &str| {
            credential(
                world,
                "a",
                &[("tls.crt", chain), PAIR[1], ("ca.crt", "root")],
            );
        };
        with(&mut world, "one");
        let before = snapshot(world.clone());
        let (first, one) = (before.view(&edge), before.view(&edge).all(Type::Secret));
        with(&mut world, "two");
        let next = before.next(world.clone(), None, None);
        assert!(next.concerns(&edge) && !next.concerns(&node("edge", &[])));
        let second = next.snapshot.view(&edge);
        assert_ne!(one.version(), second.all(Type::Secret).version());
        assert_eq!(
            first.all(Type::Cluster).version(),
            second.all(Type::Cluster).version()
        );
        // It goes, and the cluster with it.
        Arc::make_mut(&mut world.credentials).clear();
        let last = next.snapshot.next(world, None, None).snapshot.view(&edge);
        assert!(last.get(Type::Cluster, A).is_none() && last.all(Type::Secret).is_empty());
    }

    #[test]
    fn they_are_looked_for_where_proxies_are() {
        let wanted = |tls: &str, more: &str| {
            let mut world = ruled("d", tls, more);
            gateway(
                &mut world,
                "edge/g",
                1,
                "servers: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ['*']}]",
            );
            let wanted = crate::snapshot::named_credentials(&world, &Settings::default());
            let all = wanted
                .iter()
                .map(|(namespace, name)| format!("{namespace}/{name}"));
            all.collect::<Vec<_>>().join(" ")
        };
        let selecting = "workloadSelector: {matchLabels: {app: x}}";
        assert_eq!(wanted(MUTUAL, ""), "edge/a edge/a-cacert");
        assert_eq!(wanted(MUTUAL, selecting), "demo/a demo/a-cacert");
        assert_eq!(wanted("{mode: SIMPLE, credentialName: demo/a}", ""), "");
        assert_eq!(wanted("{mode: ISTIO_MUTUAL, credentialName: a}", ""), "");
    }
}
