//! The injector with a small fake of an API server: the CA bundle, native sidecars, ConfigMaps.

use crate::support::server::Server;
use crate::support::{Client, InjectorPlace, client_config, pair, pod, review, run, until};

fn path(place: &InjectorPlace, name: &str) -> String {
    place.path(name).to_str().unwrap().to_owned()
}

#[test]
fn the_bundle_of_a_file_is_kept() {
    let server = Server::new("20");
    let place = InjectorPlace::new();
    server.kubeconfig(&place.path("kubeconfig"));
    let (first, second) = (pair().0, pair().0);
    place.write("ca.pem", &first);
    let (kubeconfig, ca) = (path(&place, "kubeconfig"), path(&place, "ca.pem"));
    let out = path(&place, "ca-out.pem");
    let injector = place.start(&[
        "--kubeconfig",
        &kubeconfig,
        "--caCertFile",
        &ca,
        "--caOut",
        &out,
    ]);
    assert_eq!(injector.place.read("ca-out.pem"), first);
    until("the bundle", || server.bundle() == first);
    server.overwrite("somebody else's");
    until("it is mended", || server.bundle() == first);
    injector.place.write("ca.pem", &second);
    until("the new one", || server.bundle() == second);
    until("and in its file", || {
        injector.place.read("ca-out.pem") == second
    });
    assert_eq!(server.patches(), 3);
    let name = "{name=\"istio-sidecar-injector\"";
    assert_eq!(
        injector.metric(&format!("webhook_patch_attempts_total{name}}}")),
        Some(3.0)
    );
    // One that is broken keeps the last good one, and counts.
    injector.place.write("ca.pem", "nothing");
    let failures =
        format!("webhook_patch_failures_total{name},reason=\"load_ca_bundle_failure\"}}");
    until("it is counted", || injector.metric(&failures) == Some(1.0));
    assert_eq!(
        injector.metric("gudgeon_config_valid{file=\"caCertFile\"}"),
        Some(0.0)
    );
    assert_eq!(server.bundle(), second);
    let bundles = injector.get("/debug/config").json()["caBundle"].clone();
    assert_eq!(
        bundles,
        serde_json::json!([{"config": "istio-sidecar-injector", "entries": ["namespace.sidecar-injector.istio.io"],
            "state": "held", "error": null}])
    );
    assert!(
        injector
            .get("/debug")
            .text()
            .contains("namespace.sidecar-injector.istio.io")
    );
    assert_eq!(injector.client().image(), "proxy:1");
}

#[test]
fn the_own_ca_is_added_to_what_is_there() {
    let server = Server::new("20");
    let place = InjectorPlace::new();
    server.kubeconfig(&place.path("kubeconfig"));
    let other = pair().0;
    server.overwrite(&other);
    let kubeconfig = path(&place, "kubeconfig");
    let injector = place.start(&["--kubeconfig", &kubeconfig, "--selfSigned"]);
    until("the bundle", || server.patches() == 1);
    let bundle = server.bundle();
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2);
    // A client that trusts the bundle accepts the served certificate.
    let mut client = Client::try_connect(injector.address(), client_config(&bundle, &[])).unwrap();
    assert_eq!(client.image(), "proxy:1");
}

#[test]
fn a_cluster_that_is_away_holds_up_nothing() {
    let place = InjectorPlace::new();
    let server = Server::new("20");
    server.kubeconfig(&place.path("kubeconfig"));
    let text = place.read("kubeconfig");
    let (begin, rest) = text.split_once("127.0.0.1:").unwrap();
    let (_, end) = rest.split_once('\'').unwrap();
    place.write("kubeconfig", &format!("{begin}127.0.0.1:1'{end}"));
    place.write("ca.pem", &pair().0);
    let (kubeconfig, ca) = (path(&place, "kubeconfig"), path(&place, "ca.pem"));
    let injector = place.start(&["--kubeconfig", &kubeconfig, "--caCertFile", &ca]);
    assert_eq!(injector.client().image(), "proxy:1");
    until("it is said", || injector.logged("trying again") > 0);
    assert_eq!(injector.get("/ready").status, 200);
    assert!(
        injector
            .get("/debug")
            .text()
            .contains("istio-sidecar-injector")
    );
}

#[test]
fn an_injector_without_reconciling_contacts_no_api_server() {
    let server = Server::new("20");
    let place = InjectorPlace::new();
    server.kubeconfig(&place.path("kubeconfig"));
    let kubeconfig = path(&place, "kubeconfig");
    // Its CA file does not exist, and is not read.
    let injector = place.start(&[
        "--kubeconfig",
        &kubeconfig,
        "--reconcileWebhookConfig=false",
        "--caCertFile=/none",
    ]);
    assert_eq!(injector.client().image(), "proxy:1");
    assert_eq!(server.patches(), 0);
    assert_eq!(injector.logged("using the API server"), 0);
    let place = InjectorPlace::new();
    let injector = place.start(&["--caCertFile=/none"]);
    until("it is said", || {
        injector.logged("keeping no CA bundle: not in a cluster") == 1
    });
    assert_eq!(
        run(&["injector", "--kubeconfig=/none", "--selfSigned"])
            .status
            .code(),
        Some(78)
    );
}

#[test]
fn native_sidecars_by_the_servers_version() {
    for (minor, native) in [("31", 0), ("32+", 1)] {
        let server = Server::new(minor);
        let place = InjectorPlace::new();
        server.kubeconfig(&place.path("kubeconfig"));
        let kubeconfig = path(&place, "kubeconfig");
        let more = [
            "--kubeconfig",
            &kubeconfig,
            "--selfSigned",
            "--nativeSidecars=auto",
        ];
        let injector = place.start(&more);
        until("it is asked", || server.asked_for_version());
        until("the bundle", || server.patches() == 1);
        let message = "native sidecars are now On";
        if native == 1 {
            until("it is said", || injector.logged(message) == 1);
        }
        assert_eq!(injector.logged(message), native);
        let mut client =
            Client::try_connect(injector.address(), client_config(&server.bundle(), &[])).unwrap();
        client.review(&review(&pod("web"))).unwrap();
        let decisions = injector.get("/debug/inject").json();
        assert_eq!(decisions[0]["native"], native == 1);
    }
}

#[test]
fn manifests_by_config_maps() {
    let server = Server::new("20");
    let place = InjectorPlace::new();
    server.kubeconfig(&place.path("kubeconfig"));
    place.write(
        "pod.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n",
    );
    let (kubeconfig, manifest) = (path(&place, "kubeconfig"), path(&place, "pod.yaml"));
    let ask = |config: &str, mesh: &str| {
        run(&[
            "inject",
            "-f",
            &manifest,
            "-c",
            &kubeconfig,
            "--injectConfigMapName",
            config,
            "--meshConfigMapName",
            mesh,
        ])
    };
    let done = ask("istio-sidecar-injector", "istio");
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(
        text.contains("image: proxy:map"),
        "{text}{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let done = ask("none", "istio");
    assert_eq!(done.status.code(), Some(78));
    let message = String::from_utf8(done.stderr).unwrap();
    assert!(message.contains("istio-system/none"), "{message}");
    let done = ask("istio", "istio");
    assert_eq!(done.status.code(), Some(78));
    let message = String::from_utf8(done.stderr).unwrap();
    assert!(
        message.contains("ConfigMap istio-system/istio: it has no key config"),
        "{message}"
    );
}
