//! Ingresses that the mesh does not serve, by its configuration.

use super::super::analyze;
use super::{file, whole};

/// Returns the messages about an Ingress of a class, beside a workload with a value of the label `istio`.
fn of(mesh: &str, class: &str, workload: &str) -> Vec<String> {
    let class = match class {
        "" => String::new(),
        class => format!("ingressClassName: {class}, "),
    };
    let ingress = format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: i, namespace: demo}}\n\
         spec: {{{class}rules: [{{host: a.example}}]}}\n"
    );
    let workload = match workload {
        "" => String::new(),
        label => format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: r, namespace: edge}}\n\
             spec: {{template: {{metadata: {{labels: {{istio: {label}}}}}}}}}\n"
        ),
    };
    let text = format!("{ingress}{workload}");
    let mesh = api::mesh::parse_over(&api::mesh::discovery_defaults(), mesh).unwrap();
    let known = ("istio-system", Some(&mesh.config));
    let found = analyze(&[file(&text)], None, known).located;
    let of_ingress = found.iter().filter(|one| one.kind == "Ingress");
    of_ingress
        .map(|one| format!("{} {}: {}", one.code(), one.path, one.text))
        .collect()
}

#[test]
fn an_ingress_that_the_mesh_does_not_serve_says_why() {
    let none = [""; 0];
    let off =
        "IST0133 spec.ingressClassName: is not served: ingressControllerMode of the mesh is OFF";
    let classless = "IST0133 spec.ingressClassName: is not served by the mesh: it has no class, and ingressControllerMode STRICT serves \
                     those of the class \"edge\"";
    let nowhere = |label: &str| {
        format!(
            "IST0133 spec: is served nowhere as far as the analyzed objects show: no workload has the label istio={label}, which \
             ingressSelector of the mesh sets"
        )
    };
    assert_eq!(of("", "istio", "ingress"), none);
    assert_eq!(of("", "nginx", ""), none);
    assert_eq!(
        of("ingressControllerMode: OFF\n", "istio", "ingress"),
        [off]
    );
    assert_eq!(of("ingressControllerMode: OFF\n", "nginx", "ingress"), none);
    assert_eq!(of("ingressClass: edge\n", "", "ingress"), [classless]);
    assert_eq!(of("ingressClass: edge\n", "istio", "ingress"), none);
    assert_eq!(of("ingressControllerMode: DEFAULT\n", "", "ingress"), none);
    assert_eq!(of("", "istio", "gateway"), [nowhere("ingress")]);
    assert_eq!(of("ingressSelector: gateway\n", "istio", "gateway"), none);
    assert_eq!(
        of("ingressSelector: front\n", "istio", "ingress"),
        [nowhere("front")]
    );
    // The router of Istio's own installation need not be among the objects.
    assert_eq!(of("", "istio", ""), none);
    // Nothing is known without a mesh configuration.
    let text = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i}\nspec: {rules: [{host: a.example}]}\n";
    assert!(whole(&[file(text)], None).is_empty());
}
