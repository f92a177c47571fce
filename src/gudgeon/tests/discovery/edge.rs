//! The manifest for a small node, and what the manifests ask a node for.

use serde_json::{Value, json};

use crate::place::{OWN_PORTS, gudgeon};
use crate::shipped::{objects, of_kind};

const ROLES: [&str; 3] = ["injector.yaml", "discovery.yaml", "galley.yaml"];

fn container(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

fn mebibytes(container: &Value) -> u64 {
    let memory = container["resources"]["requests"]["memory"].as_str();
    let number = memory.unwrap().strip_suffix("Mi").unwrap();
    number.parse().unwrap()
}

/// The tag is fixed, and `podman build` by the manifest's comment makes that image: a node that has it does not pull.
#[test]
fn images_have_the_names_that_the_commands_make() {
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("localhost/gudgeon:{version}");
    let containerfile = include_str!("../../../../Containerfile");
    for file in [&ROLES[..], &["edge.yaml", "all.yaml"]].concat() {
        for deployment in objects(file)
            .iter()
            .filter(|one| one["kind"] == "Deployment")
        {
            let container = container(deployment);
            assert_eq!(container["image"], json!(image), "{file}");
            assert_eq!(container["imagePullPolicy"], "IfNotPresent", "{file}");
        }
    }
    let proxy = format!("localhost/pintle-envoy:{version}");
    let injector = objects("injector.yaml");
    let args = &container(of_kind(&injector, "Deployment"))["args"];
    let args = args.as_array().unwrap();
    assert!(
        args.contains(&json!(format!("--proxyImage={proxy}"))),
        "{args:?}"
    );
    for image in [image, proxy] {
        let command = format!("podman build -t {image} ");
        assert!(containerfile.contains(&command), "{command}");
    }
}

/// The one process has the roles' permissions except for reading rules twice, by one account; all its Services select it,
/// and its command line is valid.
#[test]
fn all_in_one_is_the_three_manifests_with_one_deployment() {
    let all = objects("all.yaml");
    let deployment = of_kind(&all, "Deployment");
    let pod = &deployment["spec"]["template"];
    let account = &pod["spec"]["serviceAccountName"];
    assert_eq!(
        of_kind(&all, "ServiceAccount")["metadata"]["name"],
        *account
    );
    for binding in all.iter().filter(|one| !one["subjects"].is_null()) {
        let subjects =
            json!([{"kind": "ServiceAccount", "name": account, "namespace": "istio-system"}]);
        assert_eq!(binding["subjects"], subjects);
    }
    for service in all.iter().filter(|one| one["kind"] == "Service") {
        assert_eq!(
            service["spec"]["selector"],
            json!({"app": pod["metadata"]["labels"]["app"]})
        );
    }
    let is_role = |one: &Value| one["kind"] == "ClusterRole" || one["kind"] == "Role";
    for wanted in ROLES.into_iter().flat_map(objects).filter(is_role) {
        let mut own = all.iter().filter(|one| is_role(one));
        let own = own
            .find(|one| one["metadata"] == wanted["metadata"])
            .unwrap();
        let mut wanted = wanted["rules"].clone();
        if own["metadata"]["name"] == "istio-pilot-istio-system" {
            let rules = wanted.as_array_mut().unwrap();
            rules.retain(|rule| !rule["apiGroups"][0].as_str().unwrap().ends_with("istio.io"));
        }
        // The owner of galley's webhook configuration goes by the name of the Service that it leads to.
        for rule in wanted.as_array_mut().unwrap() {
            if rule["resources"] == json!(["clusterroles"]) {
                rule["resourceNames"] = json!(["istio-sidecar-injector-istio-system"]);
            }
        }
        assert_eq!(
            own["rules"], wanted,
            "build/kubernetes/edge.py writes all.yaml anew"
        );
    }
    let args = container(deployment)["args"].as_array().unwrap().iter();
    let args = args.map(|arg| arg.as_str().unwrap().replace("--port=9443", "--port=0"));
    let mut command = gudgeon();
    command
        .args(args.chain(OWN_PORTS.map(str::to_owned)))
        .env_clear();
    let output = command.output().unwrap();
    let log = String::from_utf8(output.stdout).unwrap();
    // The flags are right: the one thing that is missing here is a cluster.
    assert!(
        log.contains("cannot read services from Kubernetes: not in a cluster"),
        "{log}"
    );
}

#[test]
fn the_edge_variant_is_the_three_manifests_for_one_small_node() {
    let edge = objects("edge.yaml");
    let mut wanted: Vec<Value> = Vec::new();
    for one in ROLES.into_iter().flat_map(objects) {
        if one["kind"] != "PodDisruptionBudget" && !wanted.contains(&one) {
            wanted.push(one);
        }
    }
    assert_eq!(edge.len(), wanted.len());
    let mut requested = 0;
    for (mut wanted, edge) in wanted.into_iter().zip(&edge) {
        if wanted["kind"] == "Deployment" {
            requested += mebibytes(container(edge));
            wanted["spec"]["replicas"] = json!(1);
            let pod = wanted["spec"]["template"]["spec"].as_object_mut().unwrap();
            assert!(pod.remove("priorityClassName").is_some());
            assert!(pod.remove("topologySpreadConstraints").is_some());
            let memory = container(edge)["resources"]["requests"]["memory"].clone();
            pod["containers"][0]["resources"]["requests"]["memory"] = memory;
        }
        assert!(
            wanted == *edge,
            "build/kubernetes/edge.py writes edge.yaml anew\n{wanted:#}\n{edge:#}"
        );
    }
    assert_eq!(requested, 96);
}
