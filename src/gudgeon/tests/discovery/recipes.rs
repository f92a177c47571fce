//! `build/kubernetes/certificates.md`: certificates made by its steps are accepted, by hand and with cert-manager's names.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use api::config::document::documents;
use rcgen::SanType;
use serde_json::Value;

use crate::authority::{Authority, Signed, dns, uri};
use crate::client::soon;
use crate::place::Place;
use crate::shipped::folder;
use crate::support::program::gudgeon;
use crate::tls::{refusal_by, secure_port};

/// By what proxies know discovery.
const NAME: &str = "istio-pilot.istio-system";
/// The files that discovery reads.
const FILES: [&str; 3] = ["cert-chain.pem", "key.pem", "root-cert.pem"];

fn block(info: &str) -> String {
    let page = fs::read_to_string(folder().join("certificates.md")).unwrap();
    let (_, text) = page.split_once(&format!("\n```{info}\n")).unwrap();
    text.split_once("\n```").unwrap().0.to_owned()
}

fn yaml(name: &str) -> Value {
    let text = block(&format!("yaml {name}"));
    let document = documents(&text).next().unwrap().unwrap();
    document.parts()[0].value()
}

fn copy(from: &Path, to: &Path) {
    for name in FILES {
        fs::copy(from.join(name), to.join(".new")).unwrap();
        fs::rename(to.join(".new"), to.join(name)).unwrap();
    }
}

/// Runs the commands of the page. Each Secret is a folder below that of its namespace.
fn by_hand(root: &Path) {
    let kubectl = "#!/bin/sh\nset -e\n[ \"$1\" != apply ] || { cat >/dev/null; exit; }\n\
                   [ \"$1 $3 $4 $5\" = '-n create secret generic' ]\nmkdir -p \"$2/$6\"\n\
                   cp cert-chain.pem key.pem root-cert.pem \"$2/$6\"\n";
    let path = root.join("kubectl");
    fs::write(&path, kubectl).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = Command::new("/bin/sh")
        .args(["-e", "-c", &block("sh")])
        .env("PATH", format!("{}:/usr/bin:/bin", root.display()))
        .current_dir(root)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{stderr}");
}

/// Chain and key, and the root.
fn read(folder: &Path) -> (Signed, String) {
    let [chain, key, root] = FILES.map(|name| fs::read_to_string(folder.join(name)).unwrap());
    ((chain, key), root)
}

fn place() -> Place {
    Place::new().arg("--secureGrpcAddr=127.0.0.1:0")
}

#[tokio::test]
async fn certificates_made_by_hand_are_taken_and_renewed() {
    let root = tempfile::tempdir().unwrap();
    by_hand(root.path());
    let pilot = root
        .path()
        .join("istio-system/istio.istio-pilot-service-account");
    let place = place();
    copy(&pilot, &place.path("certs"));
    let mut discovery = place.start();
    let port = secure_port(&mut discovery).await;
    let web = root.path().join("demo/istio.web");
    let (before, trusted) = read(&web);
    assert_eq!(refusal_by(NAME, port, &trusted, &before).await, None);
    // Once more, by the same root: both are taken.
    by_hand(root.path());
    let (after, trusted_after) = read(&web);
    assert_eq!(trusted, trusted_after);
    assert_ne!(before, after);
    copy(&pilot, &discovery.place.path("certs"));
    soon("the rotation", || discovery.logged("have changed") > 0).await;
    for pair in [&before, &after] {
        assert_eq!(refusal_by(NAME, port, &trusted, pair).await, None);
    }
}

/// Signs a Certificate of the page as cert-manager would.
fn signed(authority: &Authority, name: &str) -> Signed {
    let certificate = yaml(name);
    let spec = &certificate["spec"];
    assert_eq!(certificate["metadata"]["name"], spec["secretName"]);
    let of = |field: &str, form: fn(&str) -> SanType| {
        let names = spec[field].as_array().cloned().unwrap_or_default();
        names
            .iter()
            .map(|name| form(name.as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    authority.sign([of("uris", uri), of("dnsNames", dns)].concat())
}

#[tokio::test]
async fn certificates_of_cert_manager_are_taken_by_its_names() {
    let authority = Authority::new();
    let (chain, key) = signed(&authority, "pilot.yaml");
    let keys = [
        ("tls.crt", &chain),
        ("tls.key", &key),
        ("ca.crt", &authority.pem),
    ];
    let place = place();
    let items = yaml("volume.yaml")["secret"]["items"].clone();
    for item in items.as_array().unwrap() {
        let text = keys.iter().find(|(key, _)| item["key"] == *key).unwrap().1;
        let path = item["path"].as_str().unwrap();
        fs::write(place.path("certs").join(path), text).unwrap();
    }
    let mut discovery = place.start();
    let port = secure_port(&mut discovery).await;
    let web = signed(&authority, "web.yaml");
    assert_eq!(refusal_by(NAME, port, &authority.pem, &web).await, None);
}

/// The template mounts the Secret, and the proxy gets the names of its files.
#[test]
fn proxies_are_sent_the_names_of_cert_manager() {
    let root = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = root.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let mesh = file("mesh.yaml", &block("yaml mesh.yaml"));
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: demo},\n spec: {serviceAccountName: web, containers: [{name: web, image: web}]}}\n";
    let pod = file("pod.yaml", pod);
    let ran = gudgeon()
        .arg("inject")
        .arg("--mesh-config-file")
        .arg(mesh)
        .arg("-f")
        .arg(pod)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let document = documents(&text).next().unwrap().unwrap();
    let pod = document.parts()[0].value();
    let all = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let containers = [
        all(&pod["spec"]["containers"]),
        all(&pod["spec"]["initContainers"]),
    ]
    .concat();
    let proxy = containers
        .iter()
        .find(|one| one["name"] == "istio-proxy")
        .unwrap();
    let mut variables = serde_json::Map::new();
    for variable in all(&proxy["env"]) {
        let name = variable["name"].as_str().unwrap();
        if name.starts_with("ISTIO_META_TLS_") {
            variables.insert(name.to_owned(), variable["value"].clone());
        }
    }
    let wanted = yaml("mesh.yaml")["defaultConfig"]["proxyMetadata"].clone();
    assert_eq!(variables, *wanted.as_object().unwrap());
    let mounts = all(&proxy["volumeMounts"]);
    let mount = mounts
        .iter()
        .find(|one| one["mountPath"] == "/etc/certs")
        .unwrap();
    let volumes = all(&pod["spec"]["volumes"]);
    let volume = volumes
        .iter()
        .find(|one| one["name"] == mount["name"])
        .unwrap();
    assert_eq!(
        volume["secret"]["secretName"],
        yaml("web.yaml")["spec"]["secretName"]
    );
    for path in variables.values() {
        let name = path.as_str().unwrap().strip_prefix("/etc/certs/").unwrap();
        assert!(["tls.crt", "tls.key", "ca.crt"].contains(&name), "{name}");
    }
}
