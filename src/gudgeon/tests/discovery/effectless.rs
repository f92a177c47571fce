//! Rules that nothing enforces in this release, and where that is said.

use serde_json::{Value, json};

use crate::place::{Discovery, Place, documents, until};
use crate::sinks::a;

const ROLE: &str = "apiVersion: rbac.istio.io/v1alpha1\nkind: ServiceRole\nmetadata: {name: front, namespace: shop}\n\
                    spec: {rules: [{services: ['*']}]}\n";
const BINDING: &str = "apiVersion: rbac.istio.io/v1alpha1\nkind: ServiceRoleBinding\nmetadata: {name: b, namespace: shop}\n\
                       spec: {subjects: [{user: '*'}], roleRef: {kind: ServiceRole, name: front}}\n";
const GATEWAY: &str = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: edge, namespace: shop}\n\
                       spec: {selector: {istio: edge}, servers: [{port: {number: 80, name: a, protocol: HTTP}, hosts: ['*'], \
                       defaultEndpoint: '127.0.0.1:80'}]}\n";

fn status(discovery: &Discovery, kind: &str) -> Value {
    let rows = discovery.json(&format!("/debug/configz?kind={kind}"));
    rows[0]["status"].clone()
}

#[test]
fn objects_without_effect_are_logged_and_reported() {
    let config = documents(&[a("10.0.0.1"), ROLE.to_owned(), GATEWAY.to_owned()]);
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
    let message = "warning: kind: ServiceRole has no effect in this release: it is accepted, and gudgeon discovery does not enforce it; in its \
                 place: AuthorizationPolicy";
    assert_eq!(role["messages"], json!([message]));
    let entry = status(&discovery, "ServiceEntry");
    assert_eq!(
        (&entry["effect"], &entry["messages"]),
        (&json!("enforced"), &json!([]))
    );
    let gateway = status(&discovery, "Gateway");
    assert_eq!(
        gateway["messages"],
        json!(["warning: spec.servers[0].defaultEndpoint: has no effect in this release"])
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

    discovery.place.write("config/b.yaml", BINDING);
    until("the change is said", || {
        let message = "1 ServiceRole, 1 ServiceRoleBinding have no effect in this release";
        (discovery.logged(message) == 1).then_some(())
    });
    assert_eq!(discovery.get("/ready").0, 200);
    assert_eq!(gauge("ServiceRoleBinding"), Some(1.0));
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
    assert_eq!(gauge("ServiceRoleBinding"), None);
}

/// All kinds of security are enforced: whoever says that he relies on none of them is told so.
#[test]
fn beside_policies_that_are_enforced_it_starts() {
    let deny = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
                metadata: {name: deny-all, namespace: shop}\nspec: {}\n";
    let strict = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\n\
                  metadata: {name: default, namespace: istio-system}\nspec: {mtls: {mode: STRICT}}\n";
    let custom = "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\n\
                  metadata: {name: ask, namespace: other}\nspec: {action: CUSTOM, provider: {name: a}, rules: [{}]}\n";
    let tokens = "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\n\
                  metadata: {name: tokens, namespace: shop}\nspec: {jwtRules: [{issuer: i}]}\n";
    let config = documents(&[deny, strict, custom, tokens].map(str::to_owned));
    let place = Place::new().with("config/a.yaml", &config);
    let discovery = place.arg("--ignoreSecurityPolicies").start();
    let message =
        "--ignoreSecurityPolicies has no effect: all kinds of security.istio.io are enforced";
    assert_eq!(
        (discovery.logged(message), discovery.logged("no effect")),
        (1, 1)
    );
    let tokens = status(&discovery, "RequestAuthentication");
    assert_eq!(
        tokens["messages"],
        json!([
            "warning: spec.jwtRules[0]: believes no token: neither jwks nor jwksUri says a key, and the issuer is no URL"
        ])
    );
    assert_eq!(
        status(&discovery, "PeerAuthentication")["effect"],
        "enforced"
    );
    let rows = discovery.json("/debug/configz?kind=AuthorizationPolicy");
    let status_of = |name: &str| {
        let rows = rows.as_array().unwrap();
        let row = rows.iter().find(|row| row["metadata"]["name"] == name);
        row.unwrap()["status"].clone()
    };
    assert_eq!(status_of("deny-all")["messages"], json!([]));
    // It is told though there is no proxy yet that it holds for.
    assert_eq!(
        status_of("ask")["messages"],
        json!([
            "warning: AuthorizationPolicy other/ask: denies all requests and connections: the mesh has no extensionProviders named \"a\""
        ])
    );
}

/// A directory with objects that are good, refused, served in part, without effect and not checked.
const MIXED: &str = "apiVersion: rbac.istio.io/v1alpha1
kind: ServiceRole
metadata: {name: good, namespace: shop}
spec: {rules: [{services: ['*']}]}
---
apiVersion: rbac.istio.io/v1alpha1
kind: ServiceRole
metadata: {name: bad, namespace: shop}
spec: {rules: [], modes: x}
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: all, namespace: shop}
spec: {tracing: [{randomSamplingPercentage: 1}]}
---
apiVersion: config.istio.io/v1alpha2
kind: listchecker
metadata: {name: old, namespace: shop}
spec: {overrides: [a]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: wild, namespace: shop}
spec: {hosts: ['*.a.example'], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DYNAMIC_DNS}
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: old-field, namespace: shop}
spec: {hosts: [b.example], http: [{websocketUpgrade: true, route: [{destination: {host: b.example}}]}]}
";

/// Discovery reads a directory by itself, and in `gudgeon all` through galley.
#[test]
fn both_readers_of_a_directory_say_the_same() {
    let line = "1 listchecker, 1 ServiceRole, 1 Telemetry have no effect in this release";
    let kinds = ["listchecker", "ServiceRole", "Telemetry"];
    let of = |place: Place| -> Vec<Value> {
        let discovery = place.with("config/a.yaml", MIXED).start();
        until("the kinds without effect", || {
            (discovery.logged(line) == 1).then_some(())
        });
        for kind in kinds {
            let name = format!("gudgeon_objects_without_effect{{kind=\"{kind}\"}}");
            assert_eq!(discovery.figure(&name), Some(1.0), "{kind}");
        }
        let rows = discovery.json("/debug/configz");
        let rows = rows.as_array().unwrap().iter();
        let rows = rows.map(|row| {
            let mut messages = row["status"]["messages"].as_array().unwrap().clone();
            messages.sort_by_key(Value::to_string);
            let status = (&row["status"]["accepted"], &row["status"]["effect"]);
            json!([
                row["kind"],
                row["metadata"]["name"],
                status.0,
                status.1,
                messages
            ])
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(Value::to_string);
        rows
    };
    let (alone, together) = (of(Place::new()), of(Place::together()));
    assert_eq!(alone.len(), 6, "{alone:?}");
    assert_eq!(alone, together);
    let find = |name: &str| alone.iter().find(|row| row[1] == name).unwrap();
    assert_eq!(find("bad")[2], false);
    for message in find("bad")[4].as_array().unwrap() {
        assert!(!message.to_string().contains("effect"), "{message}");
    }
    for (name, count) in [("good", 1), ("all", 1), ("old", 1), ("wild", 1)] {
        assert_eq!(find(name)[4].as_array().unwrap().len(), count, "{name}");
    }
}
