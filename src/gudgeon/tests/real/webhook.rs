//! Galley as it ships, asked by the server about rules: by the account and the role of `build/kubernetes/galley.yaml`, and by
//! no more than these.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::server::{Said, apply, base64, kube, kubectl, lasting, of_run, run, try_kubectl, until};
use crate::shipped::{Kind, NAMESPACE, assert_rights, manifest, shipped};
use crate::support::gudgeon;
use crate::support::program::{Program, free};

const ACCOUNT: &str = "istio-galley-service-account";
const NAME: &str = "istio-galley";
const KIND: &str = "validatingwebhookconfiguration";

/// Applied, with kinds that rules are of; gone at the end.
struct Shipped {
    root: tempfile::TempDir,
    kubeconfig: String,
    _kinds: [Kind; 2],
}

impl Shipped {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            kubeconfig: shipped("galley", ACCOUNT),
            _kinds: [
                Kind::new("VirtualService", "virtualservices", "virtualservice"),
                Kind::new("Gateway", "gateways", "gateway"),
            ],
        }
    }

    fn path(&self, name: &str) -> String {
        self.root.path().join(name).to_str().unwrap().to_owned()
    }

    /// No Service is routed here, so the configuration has a URL.
    fn file(&self, port: u16) {
        let text = format!(
            "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {{name: any}}\nwebhooks:\n\
             - name: validation.istio.io\n  clientConfig: {{url: 'https://127.0.0.1:{port}/validate'}}\n  rules:\n  \
             - {{apiGroups: [networking.istio.io], apiVersions: ['*'], operations: [CREATE, UPDATE], resources: ['*']}}\n"
        );
        std::fs::write(self.path("webhook.yaml"), text).unwrap();
    }

    /// One that has made the configuration, with the CA of the run.
    fn first(&self) -> Program {
        std::fs::write(self.path("ca.crt"), of_run("ca.crt")).unwrap();
        let port = free();
        self.file(port);
        let galley = self.galley(port);
        until("it is made", || configuration().is_some());
        galley
    }

    fn galley(&self, port: u16) -> Program {
        let mut command = gudgeon();
        command
            .args(["galley", "--enable-server=false"])
            .args(["--kubeconfig", &self.kubeconfig])
            .args([
                "--validation-webhook-config-file",
                &self.path("webhook.yaml"),
            ])
            .args(["--monitoringPort=0", "--ctrlz_port=0", "--drainDuration=0s"])
            .args(["--livenessProbePath=", "--readinessProbePath="])
            .args(["--tlsCertFile", run().join("webhook.crt").to_str().unwrap()])
            .args(["--tlsKeyFile", run().join("webhook.key").to_str().unwrap()])
            .args(["--caCertFile", &self.path("ca.crt")])
            .arg(format!("--validation-port={port}"));
        Program::start(&mut command)
    }
}

impl Drop for Shipped {
    fn drop(&mut self) {
        let _gone = try_kubectl(&["delete", KIND, NAME], "");
        let _gone = try_kubectl(&["delete", "endpoints", NAME, "-n", NAMESPACE], "");
    }
}

fn configuration() -> Option<Value> {
    let answer = try_kubectl(&["get", KIND, NAME, "-o", "json"], "");
    answer.done.then(|| answer.objects().remove(0))
}

fn entry(field: &str) -> Value {
    let configuration = configuration().unwrap_or_default();
    configuration["webhooks"][0]
        .pointer(field)
        .cloned()
        .unwrap_or_default()
}

fn create(name: &str, weight: u32, more: &[&str]) -> Said {
    let object = json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"hosts": ["a"], "http": [{"route": [
            {"destination": {"host": "a"}, "weight": 75}, {"destination": {"host": "b"}, "weight": weight}]}]}});
    let mut arguments = vec!["create", "-f", "-"];
    arguments.extend(more);
    try_kubectl(&arguments, &object.to_string())
}

/// Patches the configuration as another user.
fn patch(patch: &Value) {
    let arguments = ["patch", KIND, NAME, "--type=json", "-p", &patch.to_string()];
    kubectl(&arguments, "");
}

/// Asserts that any change by another user is reverted.
fn comes_back(shipped: &Shipped, ca: &str) {
    let good = entry("");
    for change in [
        json!([{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]),
        json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]),
        json!([{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["CREATE"]}]),
        json!([{"op": "add", "path": "/webhooks/0/namespaceSelector/matchLabels", "value": {"a": "b"}}]),
    ] {
        patch(&change);
        let start = Instant::now();
        until("it is mended", || entry("") == good);
        // The promise is for an idle machine.
        assert!(start.elapsed() < Duration::from_secs(6), "{change}");
    }
    kubectl(&["delete", KIND, NAME], "");
    until("it is back", || entry("") == good);
    // A new CA.
    let both = ca.repeat(2);
    std::fs::write(shipped.path("ca.crt"), &both).unwrap();
    until("the new bundle", || {
        entry("/clientConfig/caBundle") == base64(&both)
    });
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn a_broken_rule_is_refused_and_the_webhook_configuration_kept() {
    let shipped = Shipped::new();
    let ca = of_run("ca.crt");
    let galley = shipped.first();
    assert_eq!(entry("/failurePolicy"), "Ignore");
    assert_eq!(entry("/clientConfig/caBundle"), base64(&ca));
    let role = kubectl(
        &[
            "get",
            "clusterrole",
            "istio-galley-istio-system",
            "-o",
            "json",
        ],
        "",
    );
    let owners = configuration().unwrap()["metadata"]["ownerReferences"].clone();
    assert_eq!(owners[0]["uid"], role.objects()[0]["metadata"]["uid"]);
    assert_eq!(owners.as_array().unwrap().len(), 1);
    // No endpoint is ready, whatever the webhook refuses.
    until("the server knows it", || {
        !create("early", 20, &["--dry-run=server"]).done
    });
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(entry("/failurePolicy"), "Ignore");
    apply(
        &json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": NAME, "namespace": NAMESPACE},
        "subsets": [{"addresses": [{"ip": "10.1.0.1"}], "ports": [{"name": "https-webhook", "port": 9443}]}]}),
    );
    until("it fails", || entry("/failurePolicy") == "Fail");
    let refused = create("broken", 20, &[]);
    assert!(!refused.done, "{refused:?}");
    assert!(
        refused
            .err
            .contains("spec.http[0].route: weights add up to 95, not 100"),
        "{refused:?}"
    );
    assert!(create("good", 25, &[]).done);
    assert!(try_kubectl(&["delete", "virtualservice", "good", "-n", "default"], "").done);
    assert!(
        !try_kubectl(
            &["get", "gateway", "gudgeon-refuse-me", "-n", NAMESPACE],
            ""
        )
        .done
    );

    comes_back(&shipped, &ca);

    // Two replicas that agree write nothing.
    let second = shipped.galley(free());
    until("the second looks", || {
        second.logged("the webhook refused an invalid Gateway") > 0
    });
    let version = || configuration().unwrap()["metadata"]["resourceVersion"].clone();
    let before = version();
    std::thread::sleep(lasting(5, 60));
    assert_eq!(version(), before);

    for one in [&galley, &second] {
        assert_eq!(one.logged("no right"), 0);
        assert_eq!(one.logged("\terror\t"), 0);
    }
    drop((galley, second));
    let refused = create("nobody", 25, &[]);
    assert!(
        refused.err.contains("failed calling webhook"),
        "{refused:?}"
    );
}

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn a_server_that_goes_away_is_waited_for() {
    let shipped = Shipped::new();
    let mut galley = shipped.first();
    kube("stop");
    // There is work during the outage, and one object comes late.
    let ca = of_run("ca.crt");
    let both = ca.repeat(2);
    std::fs::write(shipped.path("ca.crt"), &both).unwrap();
    let mut late = shipped.galley(free());
    std::thread::sleep(lasting(3, 10));
    kube("start");
    until("it is done", || {
        entry("/clientConfig/caBundle") == base64(&both)
    });
    for one in [&mut galley, &mut late] {
        assert_eq!(one.child.try_wait().unwrap(), None, "it goes on");
    }
    drop(galley);
    std::fs::write(shipped.path("ca.crt"), &ca).unwrap();
    until("it is done by the late one", || {
        entry("/clientConfig/caBundle") == base64(&ca)
    });
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const OWN: &str = "validatingwebhookconfigurations";
const READ: &[&str] = &["get", "list", "watch"];

/// Group, resource, namespace and name, and the verbs that are allowed on it.
const RIGHTS: &[(&str, &str, &str, &str, &[&str])] = &[
    (
        ADMISSION,
        OWN,
        "",
        NAME,
        &["get", "list", "watch", "create", "update", "patch"],
    ),
    (
        ADMISSION,
        OWN,
        "",
        "somebody-elses",
        &["list", "watch", "create"],
    ),
    (ADMISSION, "mutatingwebhookconfigurations", "", NAME, &[]),
    (
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "",
        "",
        READ,
    ),
    ("networking.k8s.io", "ingresses", "", "", READ),
    ("networking.k8s.io", "ingresses/status", "", "", &[]),
    ("networking.istio.io", "virtualservices", "", "", READ),
    ("networking.istio.io", "gateways", "", "", READ),
    (
        "networking.istio.io",
        "gateways",
        NAMESPACE,
        "",
        &["get", "list", "watch", "create"],
    ),
    ("networking.istio.io", "envoyfilters", "default", "", READ),
    ("networking.istio.io", "virtualservices/status", "", "", &[]),
    ("security.istio.io", "authorizationpolicies", "", "", READ),
    ("authentication.istio.io", "meshpolicies", "", "", READ),
    ("rbac.istio.io", "serviceroles", "", "", READ),
    ("config.istio.io", "handlers", "", "", READ),
    ("telemetry.istio.io", "telemetries", "", "", &[]),
    (
        "rbac.authorization.k8s.io",
        "clusterroles",
        "",
        "istio-galley-istio-system",
        &["get"],
    ),
    (
        "rbac.authorization.k8s.io",
        "clusterroles",
        "",
        "cluster-admin",
        &[],
    ),
    ("", "endpoints", NAMESPACE, "", READ),
    ("discovery.k8s.io", "endpointslices", NAMESPACE, "", READ),
    ("", "endpoints", "default", "", &[]),
    ("", "secrets", NAMESPACE, "", &[]),
    ("", "configmaps", NAMESPACE, "", &[]),
    ("", "services", "", "", &[]),
    ("", "pods", "", "", &[]),
    ("", "nodes", "", "", &[]),
    ("apps", "deployments", NAMESPACE, "", &[]),
];

#[test]
#[ignore = "takes an API server: build/kube-test"]
fn the_role_of_galley_is_no_more_than_that() {
    const VERBS: [&str; 7] = [
        "get", "list", "watch", "create", "update", "patch", "delete",
    ];
    let _shipped = Shipped::new();
    let mut asked = Vec::new();
    for (group, resource, namespace, name, allowed) in RIGHTS {
        for verb in VERBS {
            let question = (verb, *group, *resource, *namespace, *name);
            asked.push((question, allowed.contains(&verb)));
        }
    }
    assert_rights(ACCOUNT, &asked);
}

/// The program's own defaults match the container's.
#[test]
#[ignore = "takes an API server: build/kube-test"]
fn every_line_of_galley_is_understood() {
    let _shipped = Shipped::new();
    // A field that the server does not know would be refused by kubectl.
    let arguments = ["apply", "--validate=true", "--dry-run=server", "-f", "-"];
    kubectl(&arguments, &manifest("galley"));
    let get = |kind: &str| {
        kubectl(&["get", kind, NAME, "-n", NAMESPACE, "-o", "json"], "").objects()[0].clone()
    };
    let deployment = get("deployment");
    let template = &deployment["spec"]["template"]["spec"];
    let container = &template["containers"][0];
    assert_eq!(deployment["spec"]["replicas"], 2);
    assert_eq!(template["securityContext"]["runAsNonRoot"], true);
    assert_eq!(
        container["securityContext"],
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    let service = get("service");
    assert_eq!(
        service["spec"]["selector"],
        deployment["spec"]["selector"]["matchLabels"]
    );
    let ports = service["spec"]["ports"].as_array().unwrap();
    let numbers: Vec<&Value> = ports.iter().map(|port| &port["port"]).collect();
    assert_eq!(numbers, [443, 9901, 15014]);
    // Its words are understood: it starts, and ends because there is no cluster here.
    let given: Vec<&str> = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let ended = gudgeon()
        .args(&given)
        .args(["--kubeconfig", "/none", "--ctrlz-port=none"])
        .output()
        .unwrap();
    let output = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    assert!(
        output.contains("--ctrlz-port"),
        "the last is what is wrong: {output}"
    );
}
