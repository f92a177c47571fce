//! Rules that nothing enforces in this release: where that is said, and what discovery does not start beside.

use serde_json::{Value, json};

use crate::apiserver::ApiServer;
use crate::galley::Galley;
use crate::place::{Discovery, OWN_PORTS, Place, documents, gudgeon, put, until};
use crate::sinks::{a, mesh};

const POLICY: &str = "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\n\
                      metadata: {name: deny-all, namespace: shop}\nspec: {}\n";
const STRICT: &str = "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\n\
                      metadata: {name: default, namespace: istio-system}\nspec: {}\n";
const ROLE: &str = "apiVersion: rbac.istio.io/v1alpha1\nkind: ServiceRole\nmetadata: {name: front, namespace: shop}\n\
                    spec: {rules: [{services: ['*']}]}\n";
const SIDECAR: &str = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: only-own, namespace: shop}\n\
                       spec: {egress: [{hosts: ['./*']}], inboundConnectionPool: {tcp: {maxConnections: 1}}}\n";

fn status(discovery: &Discovery, kind: &str) -> Value {
    let rows = discovery.json(&format!("/debug/configz?kind={kind}"));
    rows[0]["status"].clone()
}

#[test]
fn what_has_no_effect_is_said_at_the_start_when_it_changes_and_wherever_somebody_looks() {
    let config = documents(&[a("10.0.0.1"), ROLE.to_owned(), SIDECAR.to_owned()]);
    let discovery = Place::new().with("config/a.yaml", &config).start();
    assert_eq!(
        discovery.logged("1 ServiceRole have no effect in this release"),
        1
    );
    let role = status(&discovery, "ServiceRole");
    assert_eq!(
        (&role["accepted"], &role["effect"]),
        (&json!(true), &json!("none"))
    );
    let words = "ServiceRole has no effect in this release: it is accepted, and gudgeon discovery does not enforce it";
    assert_eq!(role["messages"], json!([words]));
    let entry = status(&discovery, "ServiceEntry");
    assert_eq!(
        (&entry["effect"], &entry["messages"]),
        (&json!("enforced"), &json!([]))
    );
    let sidecar = status(&discovery, "Sidecar");
    assert_eq!(
        sidecar["messages"],
        json!(["spec.inboundConnectionPool: has no effect in this release"])
    );
    let gauge = |kind: &str| {
        discovery.figure(&format!(
            "gudgeon_objects_without_effect{{kind=\"{kind}\"}}"
        ))
    };
    assert_eq!(
        (gauge("ServiceRole"), gauge("ServiceEntry")),
        (Some(1.0), None)
    );
    let (_, page) = discovery.get("/debug");
    assert!(
        page.contains("<th>effect in this release")
            && page.contains("<td>ServiceRole<td>1<td class=\"bad\">none"),
        "{page}"
    );
    assert!(!page.contains("what they forbid"), "{page}");

    // Policies that come later do not end what is served.
    discovery.place.write(
        "config/b.yaml",
        &documents(&[POLICY.to_owned(), STRICT.to_owned()]),
    );
    until("the change is said", || {
        let words = "1 ServiceRole, 2 RequestAuthentication have no effect in this release";
        (discovery.logged(words) == 1).then_some(())
    });
    let words = "RequestAuthentication istio-system/default, RequestAuthentication shop/deny-all: nothing enforces this kind of security.istio.io";
    assert_eq!(discovery.logged(words), 1);
    assert_eq!(discovery.get("/ready").0, 200);
    assert_eq!(gauge("RequestAuthentication"), Some(2.0));
    let (_, page) = discovery.get("/debug");
    assert!(page.contains("Nothing enforces RequestAuthentication istio-system/default, RequestAuthentication shop/deny-all"), "{page}");
    // What is not about rules says nothing again.
    discovery.place.write(
        "config/c.yaml",
        &a("10.0.0.2")
            .replace("name: a,", "name: c,")
            .replace("a.demo", "c.demo"),
    );
    until("one more", || {
        let rows = discovery.json("/debug/configz?kind=ServiceEntry");
        (rows.as_array().unwrap().len() == 2).then_some(())
    });
    assert_eq!(discovery.logged("have no effect in this release"), 2);
    std::fs::remove_file(discovery.place.path("config/b.yaml")).unwrap();
    until("they are gone", || {
        (discovery.logged("1 ServiceRole have no effect in this release") == 2).then_some(())
    });
    assert_eq!(gauge("RequestAuthentication"), None);
}

/// What it says and its code, when it ends by itself.
fn ended(place: &Place, arguments: &[&str]) -> (Option<i32>, String) {
    let output = gudgeon()
        .arg("discovery")
        .args(OWN_PORTS)
        .arg("--meshConfig")
        .arg(place.path("mesh"))
        .args(arguments)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn assert_refused((code, said): (Option<i32>, String)) {
    assert_eq!(code, Some(78), "{said}");
    for words in [
        "cannot start beside RequestAuthentication istio-system/default, RequestAuthentication shop/deny-all: this release does not enforce this kind of security.istio.io",
        "--ignoreSecurityPolicies",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("serving "), "{said}");
}

/// Kinds that are enforced are no reason not to start, and whoever says that he relies on none of them is not heard.
#[test]
fn beside_policies_that_are_enforced_it_starts() {
    let deny = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
                metadata: {name: deny-all, namespace: shop}\nspec: {}\n";
    let strict = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\n\
                  metadata: {name: default, namespace: istio-system}\nspec: {mtls: {mode: STRICT}}\n";
    let custom = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
                  metadata: {name: ask, namespace: other}\nspec: {action: CUSTOM, provider: {name: a}, rules: [{}]}\n";
    let config = documents(&[deny.to_owned(), strict.to_owned(), custom.to_owned()]);
    let discovery = Place::new().with("config/a.yaml", &config).start();
    assert_eq!(discovery.logged("no effect"), 0);
    assert_eq!(
        status(&discovery, "PeerAuthentication")["effect"],
        "enforced"
    );
    let rows = discovery.json("/debug/configz?kind=AuthorizationPolicy");
    let said = |name: &str| {
        let rows = rows.as_array().unwrap();
        let row = rows.iter().find(|row| row["metadata"]["name"] == name);
        row.unwrap()["status"].clone()
    };
    assert_eq!(said("deny-all")["messages"], json!([]));
    assert_eq!(
        said("ask")["messages"],
        json!(["spec.action: lets nothing in: no provider is asked in this release"])
    );
}

#[test]
fn beside_policies_in_files_it_does_not_start_unless_it_is_told_to() {
    let place = Place::new().with(
        "config/a.yaml",
        &documents(&[POLICY.to_owned(), STRICT.to_owned(), a("10.0.0.1")]),
    );
    let config = place.path("config").display().to_string();
    assert_refused(ended(&place, &["--configDir", &config]));
    // A directory that the mesh configuration names is one, too.
    let other = Place::new();
    other.write("mesh", &mesh(&[format!("fs://{config}")]));
    assert_refused(ended(&other, &["--registries=MCP"]));
    let discovery = place.arg("--ignoreSecurityPolicies").start();
    assert_eq!(
        discovery.logged("2 RequestAuthentication have no effect in this release"),
        1
    );
    assert_eq!(discovery.logged("nothing enforces"), 0);
    assert!(
        discovery
            .get("/debug")
            .1
            .contains("Nothing enforces RequestAuthentication istio-system/default")
    );
}

#[test]
fn beside_policies_that_a_source_gives_it_does_not_start() {
    let config = tempfile::tempdir().unwrap();
    put(
        config.path(),
        "a.yaml",
        &documents(&[POLICY.to_owned(), STRICT.to_owned()]),
    );
    let mut galley = Galley::plain(config.path(), "tcp://127.0.0.1:0");
    let place = Place::new();
    place.write("mesh", &mesh(&[format!("mcp://{}", galley.address())]));
    assert_refused(ended(&place, &["--registries=MCP"]));
    let discovery = place
        .arg("--registries=MCP")
        .arg("--ignoreSecurityPolicies=true")
        .start();
    assert_eq!(
        status(&discovery, "RequestAuthentication")["effect"],
        "none"
    );
}

#[test]
fn beside_policies_of_an_api_server_it_does_not_start_and_says_those_that_come_later() {
    let server = ApiServer::new();
    server.service("a", "10.0.0.1");
    let policy = |namespace: &str, name: &str| json!({"metadata": {"namespace": namespace, "name": name}, "spec": {}});
    server.put("requestauthentications", policy("shop", "deny-all"));
    server.put("requestauthentications", policy("istio-system", "default"));
    // They are waited for, however late their lists are.
    server.is_slow_with("requestauthentications");
    let place = server.place();
    let kubeconfig = place.path("kubeconfig").display().to_string();
    assert_refused(ended(
        &place,
        &["--registries=Kubernetes", "--kubeconfig", &kubeconfig],
    ));
    server.delete("requestauthentications", "istio-system", "default");
    server.delete("requestauthentications", "shop", "deny-all");
    // No directory beside it: rules come from the server.
    let discovery = Place::of_a_cluster(&kubeconfig).start();
    assert_eq!(discovery.logged("no effect"), 0);
    server.put("requestauthentications", policy("shop", "deny-all"));
    until("the error", || {
        let words =
            "RequestAuthentication shop/deny-all: nothing enforces this kind of security.istio.io";
        (discovery.logged(words) == 1).then_some(())
    });
    assert_eq!(discovery.get("/ready").0, 200);
    let gauge = "gudgeon_objects_without_effect{kind=\"RequestAuthentication\"}";
    assert_eq!(discovery.figure(gauge), Some(1.0));
}
