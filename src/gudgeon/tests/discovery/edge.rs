//! The manifest for a small node, and what the manifests ask a node for.

use serde_json::{Value, json};

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

/// A tag that is fixed, and by which `podman build` as the manifest names it has made the image: a node that has it asks nobody.
#[test]
fn images_have_the_names_that_the_commands_make() {
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("localhost/gudgeon:{version}");
    let containerfile = include_str!("../../../../Containerfile");
    for file in [&ROLES[..], &["edge.yaml"]].concat() {
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
            "build/edge.py writes edge.yaml anew\n{wanted:#}\n{edge:#}"
        );
    }
    assert_eq!(requested, 96);
}
