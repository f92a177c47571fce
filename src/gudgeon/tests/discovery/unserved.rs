//! The reasons why a service has no endpoints: document and page agree.

use serde_json::{Value, json};

use crate::place::{Discovery, Place};

/// A service, a pod that it may select, and the cluster's slice.
fn written(name: &str, target: &str, pod: &str, slice: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: demo}}\nspec: {{clusterIP: 10.96.0.9, selector: {{app: \
         {name}}}, ports: [{{name: http, port: 80, targetPort: {target}}}]}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: \
         {name}-0, namespace: demo, labels: {{app: {pod}}}}}\nspec: {{containers: [{{name: web, image: web, ports: [{{name: web, \
         containerPort: 8080}}]}}]}}\nstatus: {{phase: Running, podIP: 10.0.0.2, podIPs: [{{ip: 10.0.0.2}}], conditions: [{{type: \
         Ready, status: 'READY'}}]}}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {name}-1, \
         namespace: demo, labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: IPv4\n{slice}\n"
    )
}

fn reason(discovery: &Discovery, name: &str) -> Value {
    let rows = discovery.json("/debug/endpointz");
    let service = format!("{name}.demo.svc.cluster.local:http");
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["svc"] == service.as_str());
    row.unwrap()["reason"].clone()
}

#[tokio::test]
async fn the_document_and_the_page_say_why_a_service_is_unserved() {
    let empty = "endpoints: []\nports: []";
    let of = |port: &str, ready: bool| {
        format!(
            "endpoints: [{{addresses: [10.0.0.2], conditions: {{ready: {ready}}}}}]\nports: {port}"
        )
    };
    let cases = [
        (
            "selector",
            written("selector", "8080", "other", empty).replace("READY", "True"),
            "no endpoints: its selector app=selector matches no pod of namespace demo",
        ),
        (
            "readiness",
            written(
                "readiness",
                "8080",
                "readiness",
                &of("[{name: http, port: 8080}]", false),
            )
            .replace("READY", "False"),
            "1 endpoint: none is ready",
        ),
        (
            "name",
            written(
                "name",
                "8080",
                "name",
                &of("[{name: web, port: 8080}]", true),
            )
            .replace("READY", "True"),
            "no endpoints: its selector app=name matches 1 pod, of which 1 ready: no endpoint with a port named \"http\" is written",
        ),
        (
            "target",
            written("target", "http", "target", &of("[]", true)).replace("READY", "True"),
            "no endpoints: its selector app=target matches 1 pod, and none has a port named \"http\": they have \"web\"",
        ),
    ];
    let mut place = Place::new();
    for (name, text, _) in &cases {
        place = place.with(&format!("config/{name}.yaml"), text);
    }
    let discovery = place.start();
    let page = discovery.get("/debug").1;
    for (name, _, message) in cases {
        assert_eq!(reason(&discovery, name), json!(message), "{name}");
        let row = format!("80: {}", message.replace('"', "&quot;"));
        assert!(page.contains(&row), "{name}: {page}");
    }
}

/// Charts give routers the label `istio: ingressgateway`, and the mesh's `ingressSelector` is another by itself.
#[tokio::test]
async fn an_ingress_says_that_no_router_serves_it() {
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: front, namespace: demo}\nspec: {ingressClassName: \
                   istio, rules: [{host: a.example, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: \
                   {number: 80}}}}]}}]}\n";
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: edge-0, namespace: demo, labels: {istio: ingressgateway}}\nspec: {containers: \
               [{name: web, image: web}]}\nstatus: {phase: Running, podIP: 10.0.0.2, podIPs: [{ip: 10.0.0.2}]}\n";
    let said = |mesh: &str| {
        let place = Place::new().with("mesh", mesh);
        let discovery = place
            .with("config/ingress.yaml", ingress)
            .with("config/pod.yaml", pod)
            .start();
        discovery.json("/debug/configz?kind=Ingress")
    };
    let rows = said("ingressControllerMode: STRICT\n");
    let message = "is served nowhere as far as this replica knows: no pod and no connected router has the label istio=ingress, which ingressSelector of the mesh sets";
    assert_eq!(rows[0]["metadata"]["name"], "front", "{rows}");
    assert!(
        rows[0]["status"]["messages"].to_string().contains(message),
        "{rows}"
    );
    let rows = said("ingressControllerMode: STRICT\ningressSelector: ingressgateway\n");
    assert!(!rows.to_string().contains("is served nowhere"), "{rows}");
}
