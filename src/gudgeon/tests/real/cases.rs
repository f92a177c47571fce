//! The goldens of the engine, read as pods that a server may take.

use inject::{
    Configuration, Origin, Outcome, Parameters, Request, Sources, read_yaml, yaml_to_json,
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::server::repository;

/// Namespace of pods whose golden names none.
const USUAL: &str = "ns";

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) fields: Map<String, Value>,
    pub(crate) pod: Value,
    pub(crate) namespace: String,
}

impl Case {
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key).map(|value| value.as_str().unwrap())
    }

    /// Returns the pod's name.
    pub(crate) fn name(&self) -> &str {
        self.pod["metadata"]["name"].as_str().unwrap()
    }

    /// Returns the outcome of the same configuration and pod without a server.
    pub(crate) fn meant(&self) -> Outcome {
        self.outcome(&self.pod)
    }

    pub(crate) fn outcome(&self, pod: &Value) -> Outcome {
        let sources = Sources {
            config: self.text("config"),
            values: self.text("values"),
            mesh: self.text("mesh"),
        };
        let parameters = Parameters {
            environment: environment(self).collect(),
            ..Parameters::default()
        };
        let request = Request {
            namespace: self.namespace.clone(),
            origin: Origin::Webhook,
            ..Request::default()
        };
        let (configuration, _) = Configuration::load(sources, parameters).unwrap();
        configuration.inject(&request, pod)
    }
}

pub(crate) fn environment(case: &Case) -> impl Iterator<Item = (String, String)> {
    let pairs = case.fields.get("environment").and_then(Value::as_object);
    pairs
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
}

/// Returns all cases of all files, with the fields that they take from others.
pub(crate) fn cases() -> Vec<Case> {
    let folder = repository().join("src/inject/tests/goldens");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut all: Vec<Case> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let Value::Array(cases) = yaml_to_json(&read_yaml(&text).unwrap().unwrap()) else {
            panic!("{}: want a list", file.display())
        };
        let first = all.len();
        for case in cases {
            let case = read(case, &all[first..], all.len());
            all.push(case);
        }
    }
    all
}

fn read(case: Value, known: &[Case], number: usize) -> Case {
    let of = |name: &Value| known.iter().find(|case| case.name == *name).unwrap();
    let Value::Object(own) = case else {
        panic!("a case is an object")
    };
    let mut fields = own.get("base").map_or_else(Map::new, |base| {
        let mut base = of(base).fields.clone();
        base.retain(|key, _| {
            !["result", "skipped", "refused", "patch", "warnings"].contains(&key.as_str())
        });
        base
    });
    fields.extend(own);
    if let Some(base) = fields["pod"].get("of")
        && let Outcome::Injected(injected) = of(base).meant()
    {
        fields["pod"] = injected.pod;
    }
    let mut case = Case {
        name: fields["name"].as_str().unwrap().to_owned(),
        pod: fields["pod"].clone(),
        namespace: fields
            .get("namespace")
            .or_else(|| fields["pod"]["metadata"].get("namespace"))
            .map_or(USUAL, |namespace| namespace.as_str().unwrap())
            .to_owned(),
        fields,
    };
    complete(&mut case.pod, number);
    case.pod["metadata"]["namespace"] = json!(case.namespace);
    if case.pod.to_string().contains("VERSION")
        && let Some(template) = case.text("config").and_then(template)
    {
        let version = hex(&template);
        case.pod =
            serde_json::from_str(&case.pod.to_string().replace("VERSION", &version)).unwrap();
    }
    case
}

/// The text of a fragment's template.
fn template(config: &str) -> Option<String> {
    let config = yaml_to_json(&read_yaml(config).ok()??);
    Some(config["template"].as_str()?.to_owned())
}

pub(crate) fn hex(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds fields that a server requires and a golden lacks: names, images, mounted volumes, at least one container.
fn complete(pod: &mut Value, number: usize) {
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    if !pod["metadata"].is_object() {
        pod["metadata"] = json!({});
    }
    pod["metadata"]["name"] = json!(format!("g-{number}"));
    // A server gives its own, and wants those of others.
    pod["metadata"].as_object_mut().unwrap().remove("uid");
    let owners = pod["metadata"]
        .get_mut("ownerReferences")
        .and_then(Value::as_array_mut);
    for owner in owners.into_iter().flatten() {
        owner["uid"] = json!("of-the-owner");
    }
    let spec = &mut pod["spec"];
    if spec["containers"].as_array().is_some_and(Vec::is_empty) {
        spec["containers"] = json!([{"name": "any"}]);
    }
    if spec["dnsPolicy"] == "None" {
        spec["dnsConfig"] = json!({"nameservers": ["192.0.2.1"]});
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        if container["image"] == "auto" && container.get("imagePullPolicy").is_none() {
            // An image without a tag is `latest`: the server fills in the pull policy before it calls webhooks.
            container["imagePullPolicy"] = json!("Always");
        }
    }
    let mounts = spec["containers"].as_array().into_iter().flatten();
    let mounts =
        mounts.flat_map(|container| container["volumeMounts"].as_array().into_iter().flatten());
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    let missing: Vec<Value> = mounts
        .filter(|mount| !volumes.iter().any(|volume| volume["name"] == mount["name"]))
        .map(|mount| json!({"name": mount["name"], "emptyDir": {}}))
        .collect();
    if !missing.is_empty() {
        spec["volumes"] = [volumes, missing].concat().into();
    }
    let operations = images(pod);
    change(pod, operations);
}

pub(crate) fn change(pod: &mut Value, operations: Value) {
    let operations: json_patch::Patch = serde_json::from_value(operations).unwrap();
    json_patch::patch(pod, &operations).unwrap();
}

/// Gives an image to each container without one.
pub(crate) fn images(pod: &Value) -> Value {
    let mut operations = Vec::new();
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"][list].as_array();
        for (at, container) in containers.into_iter().flatten().enumerate() {
            if container.get("image").is_none() {
                operations.push(json!({"op": "add", "path": format!("/spec/{list}/{at}/image"), "value": "any:1"}));
            }
        }
    }
    operations.into()
}
