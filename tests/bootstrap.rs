//! Every bootstrap that pintle can write: the same as its golden file, and accepted by the real Envoy.
//!
//! `UPDATE_GOLDEN=1` writes the golden files anew. Envoy is `$PINTLE_ENVOY` or what `build/envoy` fetched.
#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail a test")]

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pintle::bootstrap::node::{NodeInputs, Variable, describe};
use pintle::bootstrap::{ControlPlaneTls, Generated, Override, Source, Template, Tracing, render};
use pintle::json;
use pintle::values::{HostPort, Role};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A bootstrap with a golden file of its name.
struct Variant {
    name: String,
    source: Source,
}

#[test]
fn documents_are_those_of_the_golden_files() {
    for variant in variants(Path::new("/etc/certs")) {
        let file = data(&format!("{}.json", variant.name));
        let document = rendered(&variant.source);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &document).unwrap();
        }
        let golden = std::fs::read_to_string(&file)
            .unwrap_or_else(|e| panic!("{}: {e}; run with UPDATE_GOLDEN=1", file.display()));
        assert_eq!(document, golden, "{}", variant.name);
    }
}

#[test]
fn envoy_accepts_every_document() {
    let envoy = envoy();
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let mut refused = Vec::new();
    for variant in variants(directory.path()) {
        let file = directory.path().join("envoy-rev0.json");
        std::fs::write(&file, rendered(&variant.source)).unwrap();
        let output = Command::new(&envoy)
            .args(["--mode", "validate", "-l", "warning", "-c"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // A warning at every start is noise that hides the next one. The tracer's place is deprecated, but it is the only
        // one that listeners of a control plane fall back on.
        let noise = said
            .lines()
            .any(|line| line.contains("[warning]") && !line.contains("Bootstrap.tracing"));
        if !output.status.success() || noise {
            refused.push(format!("{}: {said}", variant.name));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn a_file_of_the_users_is_handed_over_with_its_override() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("envoy.yaml");
    std::fs::write(&file, "admin: {}\n").unwrap();
    let source = Source::Custom {
        file: file.clone(),
        override_file: Some(data("input/override.json")),
    };
    let result = render(&source, 3, Override::InFile).unwrap();
    assert_eq!(result.document, None);
    let expected: Value =
        serde_json::from_slice(&std::fs::read(data("input/override.json")).unwrap()).unwrap();
    assert_eq!(result.config_yaml, Some(expected.to_string()));
    let alone = Source::Custom {
        file,
        override_file: None,
    };
    assert_eq!(
        render(&alone, 3, Override::InFile).unwrap().config_yaml,
        None
    );
}

/// One in JSON is written anew with it, if it can be: no argument that anybody can read holds it then.
#[test]
fn a_json_file_of_the_users_is_rendered_with_its_override() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(
        path("envoy"),
        r#"{"admin": {"profile_path": "/x"}, "node": {"id": "a"}}"#,
    )
    .unwrap();
    std::fs::write(path("override"), r#"{"node": {"cluster": "b"}}"#).unwrap();
    let source = custom(path("envoy"), Some(path("override")));
    let result = render(&source, 0, Override::InFile).unwrap();
    let document: Value = serde_json::from_slice(&result.document.unwrap()).unwrap();
    let expected = json!({"admin": {"profile_path": "/x"}, "node": {"id": "a", "cluster": "b"}});
    assert_eq!((document, result.config_yaml), (expected, None));
    let result = render(&source, 0, Override::InArgument).unwrap();
    let argument = r#"{"node":{"cluster":"b"}}"#.to_owned();
    assert_eq!(
        (result.document, result.config_yaml),
        (None, Some(argument))
    );
}

/// Somebody edits it, or replaces it: Envoy would refuse it, and a command line would have shown the override meanwhile.
#[test]
fn a_file_that_was_json_before_and_is_not_makes_no_argument() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("override"), r#"{"node": {"cluster": "b"}}"#).unwrap();
    let source = custom(path("envoy"), Some(path("override")));
    for (content, cause) in [
        (r#"{"node": {"id": "#, "cannot parse custom configuration "),
        ("node: {}\n", "cannot parse custom configuration "),
        ("[]", "cannot use custom configuration "),
    ] {
        std::fs::write(path("envoy"), content).unwrap();
        let said = render(&source, 1, Override::InFileOnly).unwrap_err();
        assert!(said.to_string().starts_with(cause), "{said}");
        let before = render(&source, 0, Override::InFile).unwrap();
        assert!(before.config_yaml.is_some(), "{content}");
    }
    std::fs::write(path("envoy"), "{}").unwrap();
    let result = render(&source, 1, Override::InFileOnly).unwrap();
    assert!(result.document.is_some() && result.config_yaml.is_none());
}

/// The metadata says which files those are, and, while one is missing, that there are none.
#[test]
fn a_proxy_without_certificates_tells_the_control_plane_so() {
    let directory = tempfile::tempdir().unwrap();
    let files = ["cert-chain.pem", "key.pem", "root-cert.pem"];
    let keys = [
        "TLS_CLIENT_CERT_CHAIN",
        "TLS_CLIENT_KEY",
        "TLS_CLIENT_ROOT_CERT",
    ];
    let mut inputs = sidecar();
    for (key, file) in keys.iter().zip(files) {
        let path = directory.path().join(file);
        inputs.metadata.insert(key, path.to_str().unwrap().into());
        std::fs::write(path, "x").unwrap();
    }
    let metadata = inputs.metadata.clone();
    let values = vec![("node-metadata", metadata.into())];
    let file = directory.path().join("template");
    std::fs::write(&file, r#"{"node": {"metadata": "${node-metadata}"}}"#).unwrap();
    let template = Source::Template {
        template: Box::new(Template { file, values }),
        override_file: None,
    };
    let said = |source: &Source| {
        let rendered = render(source, 1, Override::InFile).unwrap();
        let document: Value = serde_json::from_slice(&rendered.document.unwrap()).unwrap();
        document["node"]["metadata"]["CERTIFICATES"].clone()
    };
    for mut source in [generated(inputs), template] {
        assert_eq!(source.tell_certificates(false, &|_| false), None);
        assert_eq!(said(&source), Value::Null);
        for file in files {
            let path = directory.path().join(file);
            std::fs::remove_file(&path).unwrap();
            assert_eq!(source.tell_certificates(false, &|_| true), None, "not seen");
            let missing = source.tell_certificates(false, &|other| *other != path);
            assert_eq!(missing.as_ref(), Some(&path));
            assert_eq!(said(&source), "none");
            std::fs::write(path, "x").unwrap();
            assert_eq!(source.tell_certificates(true, &|_| false), None);
            assert_eq!(said(&source), Value::Null, "they are there now");
        }
    }
    let mut own = custom(directory.path().join("envoy"), None);
    assert_eq!(own.tell_certificates(false, &|_| false), None);
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let write = |name: &str, content: &str| std::fs::write(path(name), content).unwrap();
    write("empty", "");
    write("list", "[]");
    write("broken", "{");
    write("unknown", r#"{"a":["x ${nope}"]}"#);
    write("good", "{}");
    write("long", &json!({"a": "x".repeat(200_000)}).to_string());
    std::fs::File::create(path("large"))
        .and_then(|file| file.set_len((4 << 20) + 1))
        .unwrap();
    let fifo = Command::new("mkfifo").arg(path("fifo")).status().unwrap();
    assert!(fifo.success());

    for (source, expected) in [
        (
            template_of(path("gone")),
            "cannot read template {}/gone: No such file or directory (os error 2)",
        ),
        (
            template_of(path("")),
            "cannot read template {}/: not a regular file",
        ),
        (
            template_of(path("fifo")),
            "cannot read template {}/fifo: not a regular file",
        ),
        (
            template_of(path("large")),
            "cannot read template {}/large: larger than 4 MiB",
        ),
        (
            template_of(path("list")),
            "cannot use template {}/list: not a JSON object",
        ),
        (
            template_of(path("unknown")),
            "cannot fill template {}/unknown: unknown name ${nope}",
        ),
        (
            template_of(path("broken")),
            "cannot parse template {}/broken: EOF while parsing an object at line 1 column 1",
        ),
        (
            custom(path("empty"), None),
            "cannot read custom configuration {}/empty: it is empty",
        ),
        (
            custom(path("fifo"), None),
            "cannot read custom configuration {}/fifo: not a regular file",
        ),
        (
            custom(path("good"), Some(path("list"))),
            "cannot use bootstrap override {}/list: not a JSON object",
        ),
        (
            custom(path("good"), Some(path("long"))),
            "cannot pass bootstrap override {}/long as --config-yaml: 200008 bytes, of which one argument takes 131071",
        ),
    ] {
        let said = render(&source, 0, Override::InArgument)
            .unwrap_err()
            .to_string();
        assert_eq!(
            said,
            expected.replace("{}", directory.path().to_str().unwrap())
        );
    }
}

proptest! {
    #[test]
    fn any_text_comes_back_as_it_was(
        id in ".*", cluster in ".*", key in ".*", value in ".*", label in ".*", prefix in ".*",
    ) {
        let mut inputs = sidecar();
        inputs.node_id.clone_from(&id);
        inputs.cluster.clone_from(&cluster);
        let mut metadata = json!({ key.as_str(): value.as_str() });
        metadata["LABELS"] = json!({ label.as_str(): value.as_str() });
        inputs.metadata = ours(&metadata).as_object().unwrap().clone();
        inputs.stats.prefixes = vec![prefix.clone()];
        let document: Value = serde_json::from_str(&rendered(&generated(inputs))).unwrap();
        prop_assert_eq!(&document["node"]["id"], &id);
        prop_assert_eq!(&document["node"]["cluster"], &cluster);
        prop_assert_eq!(&document["node"]["metadata"], &metadata);
        let patterns = &document["stats_config"]["stats_matcher"]["inclusion_list"]["patterns"];
        prop_assert_eq!(&patterns[6]["prefix"], &prefix);
    }
}

/// All variants, with the certificates in `certs`.
fn variants(certs: &Path) -> Vec<Variant> {
    let mut variants = Vec::new();
    let mut add = |name: &str, source| {
        variants.push(Variant {
            name: name.to_owned(),
            source,
        });
    };
    for (name, role) in [
        ("sidecar", Role::Sidecar),
        ("router", Role::Router),
        ("ingress", Role::Ingress),
    ] {
        add(name, generated(inputs(name, role)));
        let mut inputs = inputs(name, role);
        inputs.discovery.port = 15011;
        inputs.control_plane_tls = Some(tls(certs));
        add(&format!("{name}-mutual-tls"), generated(inputs));
    }
    for (name, change) in CHANGES {
        let mut inputs = sidecar();
        change(&mut inputs);
        add(name, generated(inputs));
    }
    let mut everything = sidecar();
    for (_, change) in CHANGES {
        change(&mut everything);
    }
    everything.control_plane_tls = Some(tls(certs));
    add("everything", generated(everything));
    let override_file = Some(data("input/override.json"));
    add(
        "override",
        Source::Generated {
            inputs: Box::new(sidecar()),
            override_file: override_file.clone(),
        },
    );
    add("template", template_of(data("input/template.json")));
    let Source::Template { template, .. } = template_of(data("input/template.json")) else {
        unreachable!()
    };
    add(
        "template-override",
        Source::Template {
            template,
            override_file,
        },
    );
    variants
}

type Change = fn(&mut Generated);

/// What one setting changes in a plain sidecar.
const CHANGES: [(&str, Change); 11] = [
    ("delta", |i| i.delta = true),
    ("zipkin", |i| {
        i.tracing = Some(Tracing::Zipkin(at("zipkin.istio-system", 9411)));
    }),
    ("datadog", |i| {
        i.tracing = Some(Tracing::Datadog(at("10.9.9.9", 8126)));
    }),
    ("statsd", |i| {
        i.statsd = Some("10.0.0.8:9125".parse().unwrap());
    }),
    ("metrics-service", |i| {
        i.metrics_service = Some(at("metrics.example.com", 15000));
    }),
    ("connect-timeout", |i| {
        i.connect_timeout = Duration::from_millis(1500);
    }),
    ("count-connections", |i| i.count_connections = true),
    ("locality", |i| {
        i.locality.region = "eu-west".to_owned();
        i.locality.zone = "eu-west-1".to_owned();
    }),
    ("stats", |i| {
        i.stats.prefixes = vec!["listener.10.1.2.3_80".to_owned()];
        i.stats.suffixes = vec!["upstream_rq_5xx".to_owned()];
        i.stats.regexes = vec!["http\\.[0-9]+\\..*".to_owned()];
    }),
    ("hostile", |i| {
        let text = "\"}],\n\r\t\u{0}\u{1}\u{7f}\\${node-id}%s é\u{2028}\u{1f600}'{{.}}";
        i.cluster = text.to_owned();
        let deep = format!("{}1{}", "[".repeat(16), "]".repeat(16));
        let variables = [
            ("ISTIO_META_Q".into(), text.into()),
            (format!("ISTIO_META_{text}").into(), "".into()),
            (
                "ISTIO_METAJSON_LABELS".into(),
                json!({ text: text }).to_string().into(),
            ),
            (
                "ISTIO_METAJSON_X".into(),
                format!("{{\"deep\":{deep},\"null\":null,\"big\":1e300}}").into(),
            ),
        ];
        let description = describe(&NodeInputs {
            variables: &borrowed(&variables),
            ips: &[],
            role: Role::Sidecar,
        });
        i.metadata = description.metadata;
    }),
    ("ipv6", |i| {
        i.node_id = "sidecar~fd00::3~p1.ns1~ns1.svc.cluster.local".to_owned();
        i.admin = "[::1]:15000".parse().unwrap();
        i.discovery.host = "fd00::10".to_owned();
        i.metrics_service = Some(at("metrics.example.com", 15000));
        i.statsd = Some("[fd00::8]:9125".parse().unwrap());
        i.ipv6_only = true;
    }),
];

fn borrowed(variables: &[(OsString, OsString)]) -> Vec<Variable<'_>> {
    let borrowed = variables
        .iter()
        .map(|(n, v)| (n.as_os_str(), v.as_os_str()));
    borrowed.collect()
}

fn sidecar() -> Generated {
    inputs("sidecar", Role::Sidecar)
}

fn inputs(name: &str, role: Role) -> Generated {
    let labels = json!({"app": "web", "istio-locality": "r1.z1.s1"}).to_string();
    let variables = [
        ("POD_NAME".into(), "p1".into()),
        ("POD_NAMESPACE".into(), "ns1".into()),
        ("ISTIO_META_CONFIG_NAMESPACE".into(), "ns1".into()),
        ("ISTIO_META_ISTIO_VERSION".into(), "1.1.5".into()),
        ("ISTIO_METAJSON_LABELS".into(), format!("{labels}\n").into()),
    ];
    let node = describe(&NodeInputs {
        variables: &borrowed(&variables),
        ips: &["10.1.2.3".parse().unwrap()],
        role,
    });
    Generated {
        node_id: format!("{name}~10.1.2.3~p1.ns1~ns1.svc.cluster.local"),
        cluster: "web.ns1".to_owned(),
        metadata: node.metadata,
        locality: node.locality,
        stats: node.stats,
        admin: SocketAddr::from(([127, 0, 0, 1], 15000)),
        discovery: at("istio-pilot.istio-system", 15010),
        delta: false,
        connect_timeout: Duration::from_secs(10),
        control_plane_tls: None,
        tracing: None,
        statsd: None,
        metrics_service: None,
        prometheus_port: 15090,
        prometheus_local: false,
        ipv6_only: false,
        count_connections: false,
    }
}

fn tls(certs: &Path) -> ControlPlaneTls {
    ControlPlaneTls {
        certificate_chain: certs.join("cert-chain.pem"),
        private_key: certs.join("key.pem"),
        root_certificate: certs.join("root-cert.pem"),
        subject_alt_names: vec![
            "spiffe://cluster.local/ns/istio-system/sa/istio-pilot-service-account".to_owned(),
            "istiod.istio-system.svc".to_owned(),
        ],
    }
}

fn at(host: &str, port: u16) -> HostPort {
    HostPort {
        host: host.to_owned(),
        port,
    }
}

fn generated(inputs: Generated) -> Source {
    Source::Generated {
        inputs: Box::new(inputs),
        override_file: None,
    }
}

fn template_of(file: PathBuf) -> Source {
    let values = [
        ("node-id", json!("sidecar~10.1.2.3~p1~local")),
        ("service-cluster", json!("say \"hi\"")),
        ("node-metadata", json!({"a": ["b"]})),
        ("proxy-admin-port", json!(15000)),
        ("statsd-udp-address", Value::Null),
    ];
    Source::Template {
        template: Box::new(Template {
            file,
            values: values.map(|(n, v)| (n, ours(&v))).to_vec(),
        }),
        override_file: None,
    }
}

fn ours(value: &Value) -> json::Value {
    json::parse(value.to_string().as_bytes()).unwrap()
}

fn custom(file: PathBuf, override_file: Option<PathBuf>) -> Source {
    Source::Custom {
        file,
        override_file,
    }
}

fn rendered(source: &Source) -> String {
    let bytes = render(source, 7, Override::InFile)
        .unwrap()
        .document
        .unwrap();
    String::from_utf8(bytes).unwrap()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn data(name: &str) -> PathBuf {
    workspace().join("tests/data/bootstrap").join(name)
}

fn envoy() -> PathBuf {
    let envoy = std::env::var_os("PINTLE_ENVOY").map_or_else(
        || workspace().join("target/envoy/envoy-1.40.0"),
        PathBuf::from,
    );
    assert!(envoy.exists(), "{}: run build/envoy first", envoy.display());
    envoy
}

/// A certificate that signs itself, under the three names that Istio uses.
fn certificates(directory: &Path) {
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=test",
            "-keyout",
            "key.pem",
            "-out",
            "cert-chain.pem",
        ])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::copy(
        directory.join("cert-chain.pem"),
        directory.join("root-cert.pem"),
    )
    .unwrap();
}
