//! The manifests of `build/kubernetes`: network policies, and galley with discovery by the shipped command lines and by the
//! certificates of the guide.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use api::config::document::documents;
use serde_json::{Value, json};

use crate::place::{Place, put, until};
use crate::sinks::{a, address};
use crate::support::program::{Program, free, gudgeon, request};

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/kubernetes")
}

/// All objects of a manifest.
pub(crate) fn objects(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    let read = documents(&text).map(Result::unwrap);
    let parts = read.flat_map(|document| {
        let parts = document.parts();
        let values = parts.into_iter().map(|part| part.value());
        values.collect::<Vec<_>>()
    });
    parts.collect()
}

pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<_> = objects.iter().filter(|one| one["kind"] == kind).collect();
    let [one] = found[..] else {
        panic!("{kind}: {found:?}")
    };
    one
}

/// Each pod has a policy of its own, which lists all its ports and opens no others.
#[test]
fn every_manifest_says_who_may_connect() {
    let everybody = json!(null);
    let of_mesh = json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "istio-system"}}}]);
    for (name, wanted) in [
        (
            "injector.yaml",
            vec![(&everybody, vec![9443]), (&of_mesh, vec![15014])],
        ),
        (
            "discovery.yaml",
            vec![
                (&json!([{"namespaceSelector": {}}]), vec![15010, 15012]),
                (&of_mesh, vec![8080, 15014]),
            ],
        ),
        (
            "galley.yaml",
            vec![
                (&everybody, vec![9443]),
                (
                    &json!([{"podSelector": {"matchLabels": {"app": "pilot"}}}]),
                    vec![9901],
                ),
                (&of_mesh, vec![15014]),
            ],
        ),
    ] {
        let objects = objects(name);
        let policy = of_kind(&objects, "NetworkPolicy");
        let template = &of_kind(&objects, "Deployment")["spec"]["template"];
        let selected = &policy["spec"]["podSelector"]["matchLabels"];
        for (label, value) in selected.as_object().unwrap() {
            assert_eq!(template["metadata"]["labels"][label], *value, "{name}");
        }
        assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
        let rules = policy["spec"]["ingress"].as_array().unwrap();
        let rules: Vec<(&Value, Vec<u64>)> = rules
            .iter()
            .map(|rule| {
                let ports = rule["ports"].as_array().unwrap().iter();
                let ports = ports.map(|port| port["port"].as_u64().unwrap());
                (&rule["from"], ports.collect())
            })
            .collect();
        assert_eq!(rules, wanted, "{name}");
        // All ports of the pod, and no others.
        let mut named: Vec<u64> = rules.iter().flat_map(|(_, ports)| ports.clone()).collect();
        let listed = template["spec"]["containers"][0]["ports"]
            .as_array()
            .unwrap();
        let mut listed: Vec<_> = listed
            .iter()
            .map(|port| port["containerPort"].as_u64().unwrap())
            .collect();
        named.sort_unstable();
        listed.sort_unstable();
        assert_eq!(named, listed, "{name}");
    }
}

/// The container's arguments.
fn arguments(name: &str) -> Vec<String> {
    let objects = objects(name);
    let deployment = of_kind(&objects, "Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().unwrap().iter();
    arguments
        .map(|one| one.as_str().unwrap().to_owned())
        .collect()
}

/// Runs the commands of the guide. Files for the cluster go to a folder with each Secret's name.
fn certificates(root: &Path) {
    let guide = fs::read_to_string(folder().join("coming-from-galley.md")).unwrap();
    let (_, script) = guide.split_once("```sh\nopenssl ").unwrap();
    let (script, _) = script.split_once("\n```").unwrap();
    let kubectl = "#!/bin/sh\nset -e\n[ \"$3 $4 $5\" = 'create secret generic' ]\nmkdir \"$6\"\n\
                   cp cert-chain.pem key.pem root-cert.pem \"$6\"\n";
    let path = root.join("kubectl");
    fs::write(&path, kubectl).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = Command::new("/bin/sh")
        .args(["-e", "-c", &format!("openssl {script}")])
        .env("PATH", format!("{}:/usr/bin:/bin", root.display()))
        .current_dir(root)
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// Returns the shipped list, from the path at which galley reads it.
fn access_list() -> String {
    let objects = objects("galley.yaml");
    let map = of_kind(&objects, "ConfigMap");
    let spec = &of_kind(&objects, "Deployment")["spec"]["template"]["spec"];
    let named = |list: &Value, name: &str| {
        let found = list.as_array().unwrap().iter();
        let mut found = found.filter(|one| one["name"] == name);
        found.next().unwrap().clone()
    };
    // Not optional: without the list no sink is accepted.
    let volume = named(&spec["volumes"], "list");
    assert_eq!(
        volume["configMap"],
        json!({"name": map["metadata"]["name"]})
    );
    let mount = named(&spec["containers"][0]["volumeMounts"], "list");
    assert_eq!(mount["mountPath"], "/etc/config");
    let shipped = arguments("galley.yaml");
    assert!(!shipped.iter().any(|one| one.contains("accessListFile")));
    map["data"]["accesslist.yaml"].as_str().unwrap().to_owned()
}

#[test]
fn galley_and_discovery_as_they_ship_are_source_and_sink_by_certificates() {
    let root = tempfile::tempdir().unwrap();
    let config = tempfile::tempdir().unwrap();
    put(config.path(), "a.yaml", &a("10.0.0.1"));
    let path = |name: &str| root.path().join(name).display().to_string();
    let shipped = arguments("galley.yaml");
    assert!(
        !shipped.iter().any(|one| one.contains("insecure")),
        "{shipped:?}"
    );
    let secret = "istio.istio-galley-service-account";
    fs::write(path("list"), access_list()).unwrap();
    let (port, monitoring) = (free(), free());
    let galley = Program::start(
        gudgeon()
            .args(&shipped)
            // Local ports and files replace those of a pod.
            .arg(format!("--server-address=tcp://127.0.0.1:{port}"))
            .arg(format!("--monitoringPort={monitoring}"))
            .args([
                "--validation-port=0",
                "--ctrlz_port=0",
                "--drainDuration=0s",
            ])
            .arg(format!("--livenessProbePath={}", path("live")))
            .arg(format!("--readinessProbePath={}", path("ready")))
            .arg(format!("--configPath={}", config.path().display()))
            .arg(format!(
                "--tlsCertFile={}/{secret}/cert-chain.pem",
                root.path().display()
            ))
            .arg(format!(
                "--tlsKeyFile={}/{secret}/key.pem",
                root.path().display()
            ))
            .arg(format!(
                "--caCertFile={}/{secret}/root-cert.pem",
                root.path().display()
            ))
            .arg(format!("--accessListFile={}", path("list")))
            .env_clear(),
    );
    // The webhook does without: it is served by a certificate of its own.
    let answer = until("readiness without certificates", || {
        request(monitoring, "GET", "/ready").filter(|(status, _)| *status == 200)
    });
    assert!(
        answer
            .1
            .contains("is not open: it takes client certificates, and waits for"),
        "{}",
        answer.1
    );
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "closed");
    certificates(root.path());
    until("the port", || TcpStream::connect(("127.0.0.1", port)).ok());
    let answer = until("the line goes", || {
        request(monitoring, "GET", "/ready").filter(|(_, text)| !text.contains("not open"))
    });
    assert_eq!((answer.0, answer.1.trim()), (200, "ok"));

    let pilot = path("istio.istio-pilot-service-account");
    let place = Place::new().arg("--registries=MCP");
    let mesh = |mode: &str| {
        format!(
            "configSources: [{{address: 'mcp://127.0.0.1:{port}', tlsSettings: {{mode: {mode}}}}}]\n"
        )
    };
    // By the name that its Service has.
    let mutual = format!(
        "MUTUAL, clientCertificate: {pilot}/cert-chain.pem, privateKey: {pilot}/key.pem, \
         caCertificates: {pilot}/root-cert.pem, sni: istio-galley.istio-system"
    );
    place.write("mesh", &mesh(&mutual));
    let discovery = place.start();
    let served = || address(&discovery.json("/debug/endpointz"));
    assert_eq!(served().as_deref(), Some("10.0.0.1"));
    put(config.path(), "a.yaml", &a("10.0.0.2"));
    until("a change", || (served()? == "10.0.0.2").then_some(()));
    // A client without a certificate gets nothing, nor does one with another CA's.
    let source = |field: &str| discovery.json("/debug/sinkz")[0][field].to_string();
    for mode in [
        "DISABLE".to_owned(),
        format!("SIMPLE, caCertificates: {pilot}/root-cert.pem, sni: istio-galley.istio-system"),
        mutual.replace(&format!("{pilot}/"), &format!("{}/", path(secret))),
    ] {
        discovery.place.write("mesh", &mesh(&mode));
        until("the refusal", || {
            (source("state").contains("broken") && source("synced") == "false").then_some(())
        });
    }
    drop(galley);
}

/// The code of gudgeon without its tests.
fn sources(folder: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("tests") {
                sources(&path, all);
            }
        } else if path.extension().is_some_and(|is| is == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            all.push(code.to_owned());
        }
    }
}

#[test]
fn the_guide_lists_each_metric() {
    let guide = fs::read_to_string(folder().join("running.md")).unwrap();
    let mut all = Vec::new();
    sources(Path::new(env!("CARGO_MANIFEST_DIR")), &mut all);
    let prefixes = [
        "endpoint_no_",
        "galley_",
        "gudgeon_",
        "istio_mcp_",
        "pilot_",
        "process_",
        "sidecar_injection_",
        "webhook_patch_",
    ];
    let mut count = 0;
    for text in all {
        for name in text.split('"').skip(1) {
            let is_name = name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            let is_metric = prefixes.iter().any(|prefix| name.starts_with(prefix));
            if !is_name || !is_metric || name.ends_with('_') {
                continue;
            }
            count += 1;
            let is_listed = [format!("`{name}`"), format!("`{name}_total`")]
                .iter()
                .any(|name| guide.contains(name));
            assert!(is_listed, "{name} is not in running.md");
        }
    }
    assert!(count > 60, "the metrics are elsewhere: {count}");
}

#[test]
fn the_guide_counts_the_examples_of_rules() {
    let kinds = fs::read_dir(folder().join("../../tests/rules")).unwrap();
    let kinds = kinds.map(|kind| kind.unwrap().path());
    let files = kinds.filter(|kind| kind.is_dir()).flat_map(|kind| {
        let files = fs::read_dir(kind).unwrap();
        files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
    });
    let files: Vec<String> = files.collect();
    let lines = files.iter().flat_map(|text| text.lines());
    let requests = lines.filter(|line| line.starts_with("#> ")).count();
    let guide = fs::read_to_string(folder().join("coming-from-istio.md")).unwrap();
    let count = format!("{} files with {requests} requests", files.len());
    assert!(guide.contains(&count), "the guide does not say: {count}");
}
