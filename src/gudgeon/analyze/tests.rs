//! Objects that fit each other, and what is said where one does not.

mod cluster;
mod growth;
mod made_headers;
mod unserved_ingresses;

use serde_json::Value;

use super::analyze;
use super::messages::Located;
use super::report::written;
use crate::cli::MessageFormat;
use crate::named_files::NamedFile;

/// A small application that is right.
const GOOD: &str = "\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-v1, namespace: demo}
spec: {template: {metadata: {labels: {app: web, version: v1}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: ingress, namespace: edge}
spec: {template: {metadata: {labels: {istio: ingressgateway}}}}
---
apiVersion: v1
kind: Service
metadata: {name: ingress, namespace: edge}
spec: {selector: {istio: ingressgateway}, ports: [{name: https, port: 443, targetPort: 8443}]}
---
apiVersion: v1
kind: Secret
metadata: {name: certificate, namespace: edge}
stringData: {tls.key: nobody-reads-it}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: front, namespace: demo}
spec:
  selector: {istio: ingressgateway}
  servers:
  - port: {number: 443, name: https, protocol: HTTPS}
    hosts: ['*.example.com']
    tls: {mode: SIMPLE, credentialName: certificate}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: demo}
spec: {host: web, subsets: [{name: v1, labels: {version: v1}}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: out, namespace: demo}
spec: {hosts: ['*.out.example'], ports: [{number: 443, name: tls, protocol: TLS}], resolution: NONE}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: web, namespace: demo}
spec: {selector: {matchLabels: {app: web}}, rules: [{}]}
---
";

fn file(text: &str) -> NamedFile {
    NamedFile {
        name: "a.yaml".to_owned(),
        text: text.to_owned(),
        below: false,
    }
}

/// Returns the messages about files that can be read as a whole.
fn whole(files: &[NamedFile], namespace: Option<&str>) -> Vec<Located> {
    let analysis = analyze(files, namespace, ("istio-system", None));
    assert_eq!(analysis.unread, [""; 0]);
    analysis.located
}

/// Returns the lines about these objects, but for those about kinds without effect in this release.
fn lines_of(text: &str) -> Vec<String> {
    let found = whole(&[file(text)], None);
    let reported = found.into_iter().filter(|one| one.code() != "IST0133");
    reported.map(|one| one.as_line()).collect()
}

/// One object of the namespace `demo`, behind those that are right; only what is said of it, without its place.
fn beside(kind: &str, name: &str, spec: &str) -> Vec<String> {
    let version = match kind {
        "AuthorizationPolicy" | "PeerAuthentication" | "RequestAuthentication" => {
            "security.istio.io/v1"
        }
        "EnvoyFilter" => "networking.istio.io/v1alpha3",
        "Service" => "v1",
        _ => "networking.istio.io/v1",
    };
    let text = format!(
        "{GOOD}apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: demo}}\nspec: {spec}\n"
    );
    let origin = format!("({kind} demo/{name} a.yaml:");
    let all = lines_of(&text).into_iter();
    let own = all.filter(|line| line.contains(&origin));
    own.map(|line| {
        let (head, rest) = line.split_once(&origin).unwrap();
        format!("{head}{}", rest.split_once(") ").unwrap().1)
    })
    .collect()
}

#[test]
fn machines_read_the_same_of_json_and_yaml() {
    let text = format!(
        "{GOOD}apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: a, namespace: demo}}\nspec: {{host: nobody}}\n"
    );
    let found = whole(&[file(&text)], None);
    let json = written(&found, MessageFormat::Json).unwrap();
    let json: Vec<Value> = serde_json::from_str(&json).unwrap();
    let yaml = written(&found, MessageFormat::Yaml).unwrap();
    let rows: Vec<_> = yaml.split("- code: ").skip(1).collect();
    assert!(!json.is_empty() && json.len() == rows.len(), "{yaml}");
    for (row, text) in json.iter().zip(rows) {
        assert!(row["line"].as_u64() > Some(1), "{row}");
        for name in ["file", "level", "line", "path"] {
            let value = row[name].to_string();
            let value = value.trim_matches('"');
            let plain = format!("  {name}: {value}\n");
            let quoted = format!("  {name}: \"{value}\"\n");
            assert!(text.contains(&plain) || text.contains(&quoted), "{text}");
        }
    }
}

/// As the tasks of bookinfo have it: all routes first, then one of them anew.
#[test]
fn an_object_conflicts_with_no_other_version_of_itself() {
    let rule = |subset: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: web, namespace: demo}}\n\
             spec: {{hosts: [web], http: [{{route: [{{destination: {{host: web, subset: {subset}}}}}]}}]}}\n"
        )
    };
    let both = format!("{GOOD}---\n{}---\n{}", rule("v1"), rule("v1"));
    let found = lines_of(&both);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("duplicate of "), "{found:?}");
}

/// Istio 1.1's samples have them.
#[test]
fn workloads_of_old_versions_are_workloads() {
    let old = GOOD.replace("apps/v1", "extensions/v1beta1");
    assert_ne!(old, GOOD);
    assert_eq!(lines_of(&old), lines_of(GOOD));
}

#[test]
fn fitting_objects_have_no_findings() {
    let routes = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: web, namespace: demo}\nspec:\n  \
                  hosts: [www.example.com, web]\n  gateways: [front, mesh]\n  http:\n  - route: [{destination: {host: web, subset: v1, port: {number: 80}}}]\n    \
                  mirror: {host: x.out.example}\n";
    assert_eq!(lines_of(&format!("{GOOD}{routes}")), [""; 0]);
}

#[test]
fn references_to_missing_objects_are_reported() {
    let routes = |rest: &str| {
        beside(
            "VirtualService",
            "v",
            &format!("{{hosts: [www.example.com], {rest}}}"),
        )
    };
    let route = "http: [{route: [{destination: {host: web}}]}]";
    for (rest, want) in [
        (format!("gateways: [none], {route}"), "Error [IST0101] spec.gateways[0]: the gateway \"none\" does not exist"),
        (format!("gateways: [edge/front], {route}"), "Error [IST0101] spec.gateways[0]: the gateway \"edge/front\" does not exist"),
        (
            "gateways: [mesh], http: [{match: [{gateways: [other]}], route: [{destination: {host: web}}]}]".to_owned(),
            "Error [IST0101] spec.http[0].match[0].gateways[0]: the gateway \"other\" does not exist",
        ),
        (
            "http: [{route: [{destination: {host: we}}]}]".to_owned(),
            "Error [IST0101] spec.http[0].route[0].destination.host: the host \"we\" does not exist",
        ),
        (
            "http: [{route: [{destination: {host: web, subset: v2}}]}]".to_owned(),
            "Error [IST0101] spec.http[0].route[0].destination.subset: no DestinationRule has the subset \"v2\" of \"web\"",
        ),
        (
            "http: [{route: [{destination: {host: web, port: {number: 81}}}]}]".to_owned(),
            "Error [IST0101] spec.http[0].route[0].destination.port: \"web\" has no port 81",
        ),
        (
            "http: [{delegate: {name: d}}]".to_owned(),
            "Error [IST0101] spec.http[0].delegate: the VirtualService \"demo/d\" does not exist",
        ),
        (
            "tcp: [{route: [{destination: {host: gone.example}}]}]".to_owned(),
            "Error [IST0101] spec.tcp[0].route[0].destination.host: the host \"gone.example\" does not exist",
        ),
    ] {
        assert_eq!(routes(&rest), [want], "{rest}");
    }
    assert_eq!(routes(&format!("gateways: [demo/front], {route}")), [""; 0]);
    let outside = beside(
        "VirtualService",
        "v",
        "{hosts: [other.example], gateways: [front], http: [{route: [{destination: {host: web}}]}]}",
    );
    assert_eq!(
        outside,
        ["Warning [IST0132] spec.gateways[0]: the gateway \"front\" does not serve other.example"]
    );
    let rule = beside("DestinationRule", "d", "{host: gone.example}");
    assert_eq!(
        rule,
        ["Warning [IST0174] spec.host: no service has the host \"gone.example\""]
    );
    let secret = beside(
        "Gateway",
        "g",
        "{selector: {istio: ingressgateway}, servers: [{port: {number: 443, name: a, protocol: HTTPS}, hosts: [a.example], tls: {mode: SIMPLE, credentialName: none}}]}",
    );
    assert_eq!(
        secret,
        ["Error [IST0101] spec.servers[0].tls.credentialName: the secret \"none\" is not in edge"]
    );
    let two = "apiVersion: v1\nkind: Service\nmetadata: {name: two, namespace: demo}\nspec: {selector: {app: web}, ports: [{name: http, port: 80}, {name: http-b, port: 81}]}\n---\n\
               apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v, namespace: demo}\nspec: {hosts: [x.example], http: [{route: [{destination: {host: two}}]}]}\n";
    assert_eq!(
        lines_of(&format!("{GOOD}{two}")),
        [
            "Error [IST0112] (VirtualService demo/v a.yaml:61) spec.http[0].route[0].destination: \"two\" has the ports 80, 81: say which one"
        ]
    );
}

/// Several gateways may share the hosts of a VirtualService.
#[test]
fn hosts_are_to_be_served_by_one_of_the_gateways() {
    let gateways = |more: &str| {
        let gateway = |name: &str, host: &str| {
            format!(
                "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: {name}, namespace: demo}}\nspec: {{selector: \
                 {{istio: ingressgateway}}, servers: [{{port: {{number: 443, name: a, protocol: HTTPS}}, hosts: [{host}], tls: {{mode: \
                 PASSTHROUGH}}}}]}}\n---\n"
            )
        };
        let routes = format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v, namespace: demo}}\nspec: {{{more}, http: \
             [{{route: [{{destination: {{host: web}}}}]}}]}}\n"
        );
        let all = [gateway("one", "a.org"), gateway("two", "b.org"), routes];
        let lines = lines_of(&format!("{GOOD}{}", all.concat())).into_iter();
        let own = lines.filter_map(|line| {
            let (_, rest) = line.split_once("VirtualService demo/v a.yaml:")?;
            Some(rest.split_once(") ").unwrap().1.to_owned())
        });
        own.collect::<Vec<_>>()
    };
    for (spec, want) in [
        ("hosts: [a.org, b.org], gateways: [one, two]", vec![]),
        ("hosts: [a.org, c.org], gateways: [one, mesh]", vec![]),
        (
            "hosts: [a.org, c.org], gateways: [one]",
            vec!["spec.gateways[0]: the gateway \"one\" does not serve c.org"],
        ),
        (
            "hosts: [a.org], gateways: [one, two]",
            vec!["spec.gateways[1]: the gateway \"two\" does not serve a.org"],
        ),
        (
            "hosts: [a.org, b.org, c.org], gateways: [one, two]",
            vec!["spec.hosts: none of the gateways serves c.org"],
        ),
        (
            "hosts: [c.org], gateways: [one, two]",
            vec![
                "spec.gateways[0]: the gateway \"one\" does not serve c.org",
                "spec.gateways[1]: the gateway \"two\" does not serve c.org",
            ],
        ),
        (
            "hosts: [a.org, c.org], gateways: [one, gone]",
            vec!["spec.gateways[1]: the gateway \"gone\" does not exist"],
        ),
    ] {
        assert_eq!(gateways(spec), want, "{spec}");
    }
}

#[test]
fn namespaces_are_looked_for_where_any_is_known() {
    let of = |namespaces: &str, kind: &str, spec: &str| -> Vec<String> {
        let (version, metadata) = match kind {
            "AuthorizationPolicy" => ("security.istio.io/v1", ""),
            "Service" => (
                "v1",
                ", annotations: {networking.istio.io/exportTo: '., edge,nowhere'}",
            ),
            _ => ("networking.istio.io/v1", ""),
        };
        let namespaces = namespaces.split_whitespace().map(|name| {
            format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n---\n")
        });
        let namespaces: String = namespaces.collect();
        let text = format!(
            "{GOOD}{namespaces}apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x, namespace: demo{metadata}}}\nspec: {spec}\n"
        );
        let lines = lines_of(&text).into_iter();
        let own = lines.filter_map(|line| {
            let (_, rest) = line.split_once(&format!("[IST0101] ({kind} demo/x "))?;
            Some(rest.split_once(") ").unwrap().1.to_owned())
        });
        own.collect()
    };
    let policy = "{rules: [{from: [{source: {namespaces: [demo, 'd*', '*ge', '*', 'x*', '*x', nowhere], notNamespaces: [edge, gone]}}]}]}";
    let route = "{hosts: [x.org], exportTo: [., '*', '~', edge, nowhere], http: [{directResponse: {status: 200}}]}";
    let rule = "{host: web, exportTo: [demo, nowhere]}";
    let service = "{selector: {app: web}, ports: [{name: http, port: 80}]}";
    let known = "demo edge istio-system";
    let source = |at: &str, name: &str| {
        format!("spec.rules[0].from[0].source.{at}: the namespace \"{name}\" does not exist")
    };
    assert_eq!(
        of(known, "AuthorizationPolicy", policy),
        [
            source("namespaces[4]", "x*"),
            source("namespaces[5]", "*x"),
            source("namespaces[6]", "nowhere"),
            source("notNamespaces[1]", "gone"),
        ]
    );
    for (kind, spec, path) in [
        ("VirtualService", route, "spec.exportTo[4]"),
        ("DestinationRule", rule, "spec.exportTo[1]"),
        ("Service", service, "metadata.annotations"),
    ] {
        let want = format!("{path}: the namespace \"nowhere\" does not exist");
        assert_eq!(of(known, kind, spec), [want], "{kind}");
    }
    for (kind, spec) in [("AuthorizationPolicy", policy), ("VirtualService", route)] {
        assert_eq!(of("", kind, spec), [""; 0], "{kind}");
    }
    // Every cluster has these, and `edge` has objects, though only one is among the objects itself.
    let everywhere = "[default, istio-system, kube-node-lease, kube-public, kube-system, 'istio-*', edge, nowhere]";
    let policy = format!("{{rules: [{{from: [{{source: {{namespaces: {everywhere}}}}}]}}]}}");
    assert_eq!(
        of("demo", "AuthorizationPolicy", &policy),
        [source("namespaces[7]", "nowhere")]
    );
    let rule = format!("{{host: web, exportTo: {everywhere}}}");
    assert_eq!(
        of("demo", "DestinationRule", &rule),
        [
            "spec.exportTo[5]: the namespace \"istio-*\" does not exist",
            "spec.exportTo[7]: the namespace \"nowhere\" does not exist",
        ]
    );
}

/// It took 39 s: each host was looked for among all that a gateway does not serve.
#[test]
fn many_hosts_at_many_gateways_cost_no_square_of_the_hosts() {
    const GATEWAYS: usize = 50;
    let gateways = (0..GATEWAYS).map(|at| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {{name: g{at}, namespace: demo}}\nspec: {{selector: \
             {{istio: ingressgateway}}, servers: [{{port: {{number: 443, name: a, protocol: HTTPS}}, hosts: [h{at}.org], tls: {{mode: \
             PASSTHROUGH}}}}]}}\n---\n"
        )
    });
    let gateways: String = gateways.collect();
    let names: Vec<_> = (0..GATEWAYS).map(|at| format!("g{at}")).collect();
    let names = names.join(", ");
    let work = |hosts: usize| {
        let hosts: Vec<_> = (0..hosts).map(|at| format!("h{at}.org")).collect();
        let hosts = hosts.join(", ");
        let text = format!(
            "{GOOD}{gateways}apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v, namespace: demo}}\nspec: \
             {{hosts: [{hosts}], gateways: [{names}], tls: [{{match: [{{sniHosts: [a.org], gateways: [{names}]}}], route: \
             [{{destination: {{host: web}}}}]}}]}}\n"
        );
        move || {
            let lines = lines_of(&text);
            let mut own = lines.iter().filter(|line| line.contains("IST0132"));
            let line = own.next().unwrap();
            assert!(line.contains("none of the gateways serves h50.org, h51.org"));
            assert_eq!(own.count(), 0);
        }
    };
    crate::growth::assert_linear(32, work(1_250), work(40_000));
}

#[test]
fn a_policy_of_a_namespace_without_workloads_is_told() {
    let of = |namespace: &str, spec: &str| {
        let text = format!(
            "{GOOD}apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: x, namespace: {namespace}}}\nspec: {spec}\n"
        );
        let lines = lines_of(&text).into_iter();
        let own =
            lines.filter(|line| line.contains("(AuthorizationPolicy ") && line.contains("/x "));
        own.collect::<Vec<_>>().join(" ")
    };
    let all = "{rules: [{}]}";
    let finding = of("empty", all);
    assert!(
        finding.contains("Warning [IST0127]")
            && finding.ends_with("spec: no workload is in the namespace \"empty\""),
        "{finding}"
    );
    for namespace in ["demo", "istio-system"] {
        assert_eq!(of(namespace, all), "", "{namespace}");
    }
    let service = "{targetRefs: [{kind: Service, name: web}], rules: [{}]}";
    assert!(!of("empty", service).contains("IST0127"));
}

/// As discovery says it once a router is connected.
#[test]
fn a_rule_for_sidecars_that_selects_routers_alone_is_told() {
    let router = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: edge, namespace: demo}\n\
                  spec: {template: {metadata: {labels: {app: edge}}, spec: {containers: [{name: istio-proxy, args: [proxy, router, --domain, x]}]}}}\n";
    let injected = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: edge, namespace: demo}\n\
                    spec: {template: {metadata: {labels: {app: edge}, annotations: {inject.istio.io/templates: gateway}}}}\n";
    let pod = |metadata: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p, namespace: demo, {metadata}}}\n"
        )
    };
    let owner = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: edge-1, controller: true}]";
    let replica = pod(&format!(
        "labels: {{app: edge, pod-template-hash: '1'}}, {owner}"
    ));
    let other =
        pod(&format!("labels: {{app: edge}}, {owner}")).replace("app: edge", "app: edge, x: y");
    let alone = pod("labels: {app: edge}");
    let sidecar = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: app, namespace: demo}\n\
                   spec: {template: {metadata: {labels: {app: edge}}}}\n";
    let labelled = router.replace("app: edge", "app: edge, x: z");
    for (objects, is_told) in [
        (router.to_owned(), true),
        (injected.to_owned(), true),
        (format!("{router}{replica}"), true),
        (format!("{router}{alone}"), false),
        (format!("{router}{sidecar}"), false),
        // The pod is of another maker, which is not among the objects.
        (format!("{labelled}{other}"), false),
        (router.replace("router", "sidecar"), false),
    ] {
        let text = format!(
            "{GOOD}{objects}---\napiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: s, namespace: demo}}\n\
             spec: {{workloadSelector: {{labels: {{app: edge}}}}, egress: [{{hosts: ['./*']}}]}}\n\
             ---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: p, namespace: demo}}\n\
             spec: {{selector: {{matchLabels: {{app: edge}}}}, mtls: {{mode: STRICT}}}}\n"
        );
        let found = whole(&[file(&text)], None);
        let told = found
            .iter()
            .filter(|one| one.text.contains("routers alone"));
        // `validate --references` has those that no object has by itself.
        let told = told.filter(|one| !one.is_of_one());
        let told = told.map(|one| format!("{} {} {}", one.code(), one.kind, one.path));
        let expected: &[&str] = match is_told {
            true => &[
                "IST0127 Sidecar spec.workloadSelector.labels",
                "IST0127 PeerAuthentication spec.selector.matchLabels",
            ],
            false => &[],
        };
        assert_eq!(told.collect::<Vec<_>>(), expected, "{objects}");
    }
}

/// As `istioctl analyze` has it: also of a service that no workload among the objects belongs to.
#[test]
fn subsets_go_by_labels_of_workloads_and_of_places() {
    let of = |objects: &str, labels: &str| {
        let text = format!(
            "{objects}apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: d, namespace: demo}}\nspec: {{host: \
             web, subsets: [{{name: s, labels: {{{labels}}}}}]}}\n"
        );
        let lines = lines_of(&text);
        lines.iter().filter(|line| line.contains("IST0173")).count()
    };
    let alone = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: demo}\nspec: {selector: {app: web}, ports: [{name: \
                 http, port: 80}]}\n---\n";
    let rows = [
        (alone, "version: v1", 1),
        (GOOD, "version: v1", 0),
        (GOOD, "version: v2", 1),
        (GOOD, "topology.kubernetes.io/region: r", 0),
        (GOOD, "topology.kubernetes.io/zone: z, version: v1", 0),
        (GOOD, "topology.istio.io/subzone: s, version: v2", 1),
        (GOOD, "topology.istio.io/cluster: c", 0),
        (GOOD, "topology.istio.io/network: n", 0),
        (GOOD, "kubernetes.io/hostname: h", 0),
        (GOOD, "topology.kubernetes.io/region: ''", 1),
    ];
    for (objects, labels, count) in rows {
        assert_eq!(of(objects, labels), count, "{labels}");
    }
}

/// As files of a tutorial have it: the gateway is Istio's own, and a rule that is not valid is there.
#[test]
fn objects_of_the_installation_and_broken_ones_count_as_present() {
    let alone = "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: a}}\n---\n\
                 apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: g}\nspec: {selector: {istio: ingressgateway}, servers: []}\n---\n\
                 apiVersion: v1\nkind: Service\nmetadata: {name: dns, namespace: kube-system}\nspec: {externalName: a.example, type: ExternalName, ports: [{name: x, port: 90}]}\n---\n\
                 apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v}\nspec: {hosts: [a.example], gateways: [g], http: [{directResponse: {status: 200}}]}\n";
    let found = lines_of(alone);
    let codes: Vec<_> = found
        .iter()
        .map(|line| line.split_whitespace().nth(1).unwrap())
        .collect();
    // The servers alone are missing, so that no host is served.
    assert_eq!(codes, ["[IST0106]", "[IST0132]"], "{found:?}");
}

/// The object is refused for it already.
#[test]
fn an_empty_host_is_no_reference() {
    for (kind, spec) in [
        (
            "VirtualService",
            "{hosts: [a.example], http: [{route: [{destination: {host: '', subset: s}}]}]}",
        ),
        ("DestinationRule", "{host: ''}"),
    ] {
        let found = beside(kind, "v", spec);
        let of_object = |line: &String| line.contains("IST0106");
        assert!(
            !found.is_empty() && found.iter().all(of_object),
            "{kind}: {found:?}"
        );
    }
}

#[test]
fn a_service_that_is_not_exported_is_not_there() {
    let entry = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: own, namespace: other}\nspec: {hosts: [own.example], exportTo: [TO], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}\n---\n\
                 apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v, namespace: demo}\nspec: {hosts: [x.example], http: [{route: [{destination: {host: own.example}}]}]}\n";
    for (to, count) in [("'.'", 1), ("'~'", 1), ("'*'", 0), ("demo", 0), ("edge", 1)] {
        let text = entry.replace("TO", to);
        assert_eq!(lines_of(&format!("{GOOD}{text}")).len(), count, "{to}");
    }
}

#[test]
fn contradictions_are_reported_at_both_objects() {
    let twice = |kind: &str, version: &str, specs: [&str; 2]| -> Vec<String> {
        let objects = specs.iter().zip(["a", "b"]).map(|(spec, name)| {
            format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}, namespace: demo}}\nspec: {spec}\n---\n")
        });
        lines_of(&format!("{GOOD}{}", objects.collect::<String>()))
    };
    let networking = "networking.istio.io/v1";
    let route = "http: [{route: [{destination: {host: web}}]}]";
    let hosts = |hosts: &str| format!("{{hosts: [{hosts}], {route}}}");
    let found = twice(
        "VirtualService",
        networking,
        [&hosts("web"), &hosts("web.demo.svc.cluster.local")],
    );
    assert_eq!(
        found,
        [
            "Error [IST0109] (VirtualService demo/a a.yaml:56) spec.hosts: demo/b has the host \"web.demo.svc.cluster.local\" for sidecars, too: the oldest alone counts",
            "Error [IST0109] (VirtualService demo/b a.yaml:61) spec.hosts: demo/a has the host \"web.demo.svc.cluster.local\" for sidecars, too: the oldest alone counts",
        ]
    );
    assert_eq!(
        twice(
            "VirtualService",
            networking,
            [&hosts("web"), &hosts("x.example")]
        ),
        [""; 0]
    );
    let codes = |found: Vec<String>| -> Vec<String> {
        found
            .iter()
            .map(|line| line.split_whitespace().nth(1).unwrap().to_owned())
            .collect()
    };
    let peers =
        |specs: [&str; 2]| codes(twice("PeerAuthentication", "security.istio.io/v1", specs));
    let (strict, permissive) = ("{mtls: {mode: STRICT}}", "{mtls: {mode: PERMISSIVE}}");
    let of_web = "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}";
    let both = ["[GDN0003]", "[GDN0003]"];
    assert_eq!(peers([strict, permissive]), both);
    assert_eq!(peers([of_web, of_web]), both);
    assert_eq!(peers([of_web, strict]), [""; 0]);
    let egress = "egress: [{hosts: ['*/*']}]";
    let none = format!("{{{egress}}}");
    assert_eq!(
        codes(twice("Sidecar", networking, [&none, &none])),
        ["[IST0111]", "[IST0111]"]
    );
    let selecting =
        |labels: &str| format!("{{workloadSelector: {{labels: {{{labels}}}}}, {egress}}}");
    assert_eq!(
        codes(twice(
            "Sidecar",
            networking,
            [&selecting("app: web"), &selecting("version: v1")]
        )),
        ["[IST0110]", "[IST0110]"]
    );
    assert_eq!(
        codes(twice(
            "Sidecar",
            networking,
            [&selecting("app: web"), &none]
        )),
        [""; 0]
    );
    let gateway = |host: &str, port: u16| {
        format!(
            "{{selector: {{app: web}}, servers: [{{port: {{number: {port}, name: a, protocol: HTTP}}, hosts: ['{host}']}}]}}"
        )
    };
    assert_eq!(
        codes(twice(
            "Gateway",
            networking,
            [&gateway("*.example", 80), &gateway("a.example", 80)]
        )),
        ["[IST0145]", "[IST0145]"]
    );
    assert_eq!(
        codes(twice(
            "Gateway",
            networking,
            [&gateway("b.example", 80), &gateway("a.example", 80)]
        )),
        [""; 0]
    );
    // Another protocol has no place beside it, whatever its hosts are.
    let of = |protocol: &str, host: &str| gateway(host, 80).replace("HTTP", protocol);
    for (one, other, count) in [
        ("TCP", "HTTP", 2),
        ("HTTP", "TLS", 2),
        ("TCP", "TCP", 2),
        ("HTTP", "GRPC", 0),
    ] {
        let both = [&*of(one, "a.example"), &*of(other, "b.example")];
        let found = twice("Gateway", networking, both);
        let found: Vec<_> = found
            .iter()
            .filter(|line| line.contains("[IST0145]"))
            .collect();
        assert_eq!(found.len(), count, "{one} {other}: {found:?}");
    }
    // A workload that has both selectors.
    let selecting = |selector: &str| gateway("a.example", 80).replace("app: web", selector);
    for (one, other, count) in [
        ("app: web", "version: v1", 2),
        ("app: web", "app: web, version: v1", 2),
        ("app: web", "app: web, version: v9", 0),
        ("app: web", "istio: ingressgateway", 0),
    ] {
        let both = [&*selecting(one), &*selecting(other)];
        let found = codes(twice("Gateway", networking, both));
        let found = found.iter().filter(|code| **code == "[IST0145]");
        assert_eq!(found.count(), count, "{one} {other}");
    }
    // An address is one, however it is spelled.
    let addresses = |bind: &str, host: &str| {
        format!(
            "{{selector: {{app: web}}, servers: [{{port: {{number: 80, name: a, protocol: HTTP}}, bind: '{bind}', hosts: ['{host}']}}]}}"
        )
    };
    for (bind, host, other_bind, other_host, count) in [
        ("2001:db8::1", "a.example", "2001:DB8:0::1", "A.example", 2),
        ("2001:db8::1", "a.example", "2001:db8::2", "a.example", 0),
        ("", "a.example", "::", "a.example", 2),
        ("0.0.0.0", "2001:db8::1", "::", "2001:DB8:0::1", 2),
        ("", "2001:db8::1", "", "2001:db8::2", 0),
    ] {
        let both = [&*addresses(bind, host), &*addresses(other_bind, other_host)];
        let found = twice("Gateway", networking, both);
        assert_eq!(found.len(), count, "{bind} {host} {other_bind}: {found:?}");
    }
    let found = twice(
        "VirtualService",
        networking,
        [&hosts("'2001:db8::1'"), &hosts("'2001:DB8:0::1'")],
    );
    assert!(
        found.len() == 2 && found[0].contains("has the host \"2001:db8::1\""),
        "{found:?}"
    );
    let rule = |host: &str| {
        format!("{{host: '{host}', trafficPolicy: {{loadBalancer: {{simple: RANDOM}}}}}}")
    };
    let found = twice(
        "DestinationRule",
        networking,
        [&rule("2001:db8::1"), &rule("2001:DB8:0::1")],
    );
    assert_eq!(
        found.iter().filter(|one| one.contains("[GDN0002]")).count(),
        2,
        "{found:?}"
    );
    let rule = "{host: web, subsets: [{name: v1, labels: {version: v1}}]}";
    assert_eq!(
        codes(twice("DestinationRule", networking, [rule, "{host: web}"])),
        ["[GDN0002]", "[GDN0002]"]
    );
    let patch = "{configPatches: [{applyTo: HTTP_FILTER, match: {listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager, subFilter: {name: x}}}}}, patch: {operation: INSERT_BEFORE, value: {name: y}}}]}";
    let found = beside("EnvoyFilter", "f", patch);
    assert!(
        found[0].starts_with("Warning [IST0151] spec.configPatches[0].patch.operation"),
        "{found:?}"
    );
    let first = patch.replacen('{', "{priority: 1, ", 1);
    assert_eq!(beside("EnvoyFilter", "f", &first), [""; 0]);
    for (operation, target, count) in [
        ("REMOVE", "HTTP_FILTER", 0),
        (
            "REMOVE",
            "HTTP_FILTER, match: {listener: {filterChain: {filter: {name: x, subFilter: {name: z}}}}}",
            1,
        ),
        ("REMOVE", "CLUSTER", 1),
        ("REMOVE", "HTTP_ROUTE", 0),
        (
            "REPLACE",
            "NETWORK_FILTER, match: {listener: {filterChain: {filter: {name: x}}}}",
            1,
        ),
        ("REPLACE", "NETWORK_FILTER", 0),
        ("REPLACE", "CLUSTER", 0),
        ("INSERT_FIRST", "HTTP_FILTER", 0),
        ("MERGE", "CLUSTER", 0),
    ] {
        let spec = format!(
            "{{configPatches: [{{applyTo: {target}, patch: {{operation: {operation}, value: {{name: y}}}}}}]}}"
        );
        let found = beside("EnvoyFilter", "f", &spec);
        let found = found.iter().filter(|line| line.contains("[IST0151]"));
        let message = "takes away or replaces what another EnvoyFilter may have put there: without";
        assert!(
            found.clone().all(|line| line.contains(message)),
            "{operation}"
        );
        assert_eq!(found.count(), count, "{operation} {target}");
    }
    // Servers without a port are on none.
    let portless = gateway("a.example", 80).replace("number: 80, ", "");
    let found = codes(twice("Gateway", networking, [&portless, &portless]));
    assert!(!found.contains(&"[IST0145]".to_owned()), "{found:?}");
}

/// One tenant's objects must neither fill the disk nor stop the pipeline of all.
#[test]
fn each_of_many_equal_objects_names_a_few_others() {
    const PODS: usize = 1_000;
    let rows = [
        (
            5_000,
            "VirtualService",
            "{hosts: [a.com], http: [{route: [{destination: {host: a.com}}]}]}",
            "IST0109",
            "n/v0, n/v1, n/v2 and 4996 more have the host \"a.com\"",
        ),
        (
            1_000,
            "Sidecar",
            "{egress: [{hosts: ['*/*']}]}",
            "IST0111",
            "n/v0, n/v1, n/v2 and 997 more have no selector",
        ),
        (
            1_000,
            "Sidecar",
            "{workloadSelector: {labels: {a: b}}, egress: [{hosts: ['*/*']}]}",
            "IST0110",
            "n/v0 selects the workload p0, too",
        ),
        (
            1_000,
            "PeerAuthentication",
            "{mtls: {mode: STRICT}}",
            "GDN0003",
            "n/v0, n/v1, n/v2 and 997 more have no selector",
        ),
        (
            1_000,
            "DestinationRule",
            "{host: a.com, exportTo: [AT], trafficPolicy: {tls: {}}, subsets: [{name: v1}]}",
            "GDN0002",
            "",
        ),
        (
            1_000,
            "Gateway",
            "{selector: {a: b}, servers: [{port: {number: 80, name: h, protocol: HTTP}, hosts: ['AT.com']}]}",
            "IST0145",
            "",
        ),
    ];
    let pods = (0..PODS).map(|at| {
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p{at}, namespace: n, labels: {{a: b}}}}\n---\n")
    });
    let pods: String = pods.collect();
    for (many, kind, spec, code, message) in rows {
        let objects = (0..many).map(|at| {
            let spec = spec.replace("AT", &format!("a{at}"));
            let group = match kind {
                "PeerAuthentication" => "security",
                _ => "networking",
            };
            format!(
                "apiVersion: {group}.istio.io/v1\nkind: {kind}\nmetadata: {{name: v{at}, namespace: n}}\nspec: {spec}\n---\n"
            )
        });
        let pods = if code == "IST0110" { &*pods } else { "" };
        let text = pods.to_owned() + &objects.collect::<String>();
        let found = whole(&[file(&text)], None);
        let found: Vec<_> = found.into_iter().filter(|one| one.code() == code).collect();
        assert_eq!(
            found.len(),
            if message.is_empty() { 0 } else { many },
            "{kind}"
        );
        let printed = written(&found, MessageFormat::Log).unwrap();
        assert!(
            printed.contains(message) && printed.len() < many * 200,
            "{kind}"
        );
    }
}

#[test]
fn selectors_without_workloads_are_reported() {
    for (kind, spec, want) in [
        (
            "AuthorizationPolicy",
            "{selector: {matchLabels: {app: x}}, rules: [{}]}",
            "Warning [IST0127] spec.selector.matchLabels: no workload has the labels app=x",
        ),
        (
            "PeerAuthentication",
            "{selector: {matchLabels: {app: x, b: c}}}",
            "Warning [IST0127] spec.selector.matchLabels: no workload has the labels app=x,b=c",
        ),
        (
            "Sidecar",
            "{workloadSelector: {labels: {app: x}}, egress: [{hosts: ['*/*']}]}",
            "Error [IST0101] spec.workloadSelector.labels: no workload has the labels app=x",
        ),
        (
            "EnvoyFilter",
            "{workloadSelector: {labels: {istio: ingressgateway}}, configPatches: []}",
            "Warning [IST0127] spec.workloadSelector.labels: no workload has the labels istio=ingressgateway",
        ),
        (
            "Gateway",
            "{selector: {app: x}, servers: [{port: {number: 80, name: a, protocol: HTTP}, hosts: [a.example]}]}",
            "Error [IST0101] spec.selector: no workload has the labels app=x",
        ),
        (
            "Gateway",
            "{selector: {istio: ingressgateway}, servers: [{port: {number: 80, name: a, protocol: HTTP}, hosts: [a.example]}]}",
            "Warning [IST0104] spec.servers[0].port: no service of the workloads istio=ingressgateway has the port 80",
        ),
        (
            "Service",
            "{selector: {app: x}, ports: [{name: http, port: 80}]}",
            "Warning [GDN0001] spec.selector: has no endpoints: no workload has the labels app=x",
        ),
        (
            "Service",
            "{ports: [{name: http, port: 80}]}",
            "Warning [GDN0001] spec: has no endpoints: it has no selector, and there are no Endpoints or EndpointSlices of its name",
        ),
        (
            "ServiceEntry",
            "{hosts: [s.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC}",
            "Warning [GDN0001] spec: has no endpoints: it names none",
        ),
        (
            "Service",
            "{selector: {app: web}, ports: [{name: web, port: 80}]}",
            "Info [IST0118] spec.ports[0].name: the name \"web\" of port 80 declares no protocol: proxies read it from the first bytes, and a server that speaks first waits",
        ),
        (
            "DestinationRule",
            "{host: web.demo.svc.cluster.local, subsets: [{name: v9, labels: {version: v9}}]}",
            "Error [IST0173] spec.subsets[0].labels: no workload of \"web.demo.svc.cluster.local\" has the labels version=v9",
        ),
    ] {
        assert_eq!(beside(kind, "x", spec), [want], "{kind} {spec}");
    }
    for (kind, spec) in [
        ("Service", "{type: ExternalName, externalName: a.example}"),
        (
            "Service",
            "{selector: {app: web}, ports: [{name: web, port: 80, appProtocol: http}]}",
        ),
        ("AuthorizationPolicy", "{rules: [{}]}"),
        (
            "ServiceEntry",
            "{hosts: [s.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
        ),
    ] {
        assert_eq!(beside(kind, "x", spec), [""; 0], "{kind} {spec}");
    }
    // Where no workload is among the objects nothing is known of any.
    let alone = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: a}\nspec: {selector: {matchLabels: {app: x}}}\n";
    assert_eq!(lines_of(alone), [""; 0]);
}

#[test]
fn findings_of_single_objects_have_their_messages() {
    let text = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata:\n  name: v\nspec:\n  hosts: [a_b]\n  htp: []\n---\n\
                apiVersion: authentication.istio.io/v1alpha1\nkind: MeshPolicy\nmetadata: {name: default}\nspec: {}\n";
    let all = whole(&[file(text)], Some("own"));
    let lines: Vec<String> = all.iter().map(Located::as_line).collect();
    assert!(
        lines[0].starts_with("Error [IST0106] (VirtualService own/v a.yaml:"),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("did you mean \"http\"?")),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("Warning [IST0133] (MeshPolicy default a.yaml:")),
        "{lines:?}"
    );
    // What cannot be read is told, and the rest is looked at.
    let broken = file("a: 1\na: 2\n");
    let analysis = analyze(&[broken], None, ("istio-system", None));
    assert_eq!(analysis.unread.len(), 1, "{:?}", analysis.unread);
}

/// As in `validate`: a file that was named is taken at its word.
#[test]
fn files_of_other_programs_are_skipped_below_directories_only() {
    let template = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v, namespace: demo}\n\
                    spec: {hosts: [web], http: [{timeout: '{{ .Values.timeout }}', route: [{destination: {host: web}}]}]}\n";
    let broken = "apiVersion: networking.istio.io/v1\nkind: [\n";
    for (text, is_skipped) in [
        ("a: [\n", true),
        ("apiVersion: v1\nkind: [\n{{ end }}\n", true),
        (template, true),
        (broken, false),
    ] {
        for below in [true, false] {
            let named = NamedFile {
                below,
                ..file(text)
            };
            let analysis = analyze(&[named], None, ("istio-system", None));
            let is_quiet = analysis.unread.is_empty() && analysis.located.is_empty();
            assert_eq!(is_quiet, below && is_skipped, "{text}");
        }
    }
}

#[test]
fn a_file_without_an_object_and_a_namespace_without_one_are_told() {
    let is_whole = |files: &[NamedFile], namespace: Option<&str>| {
        let analysis = analyze(files, namespace, ("istio-system", None));
        analysis.unread.is_empty() && analysis.missing_namespace.is_none()
    };
    let below = |text: &str| NamedFile {
        below: true,
        ..file(text)
    };
    assert!(is_whole(&[file(GOOD)], None));
    for text in ["a word", "17", "[]", "- a: b", "", "# nothing\n---\n"] {
        assert!(!is_whole(&[file(GOOD), file(text)], None), "{text}");
        assert!(is_whole(&[file(GOOD), below(text)], None), "{text}");
    }
    for (namespace, holds) in [("demo", true), ("edge", true), ("dmeo", false)] {
        assert_eq!(
            is_whole(&[file(GOOD)], Some(namespace)),
            holds,
            "{namespace}"
        );
    }
    assert!(is_whole(&[], Some("demo")));
    let nameless = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";
    assert!(is_whole(&[file(nameless)], Some("new")));
    let empty = "apiVersion: v1\nkind: Namespace\nmetadata: {name: new}\n";
    assert!(is_whole(&[file(empty)], Some("new")));
}

#[test]
fn services_and_secrets_of_ingresses_are_looked_for() {
    let ingress = |class: &str| {
        format!(
            "{GOOD}apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: i, namespace: demo}}\nspec:\n  ingressClassName: \
             {class}\n  tls: [{{hosts: [a.example], secretName: none}}, {{hosts: [a.example], secretName: certificate}}]\n  rules:\n  \
             - host: a.example\n    http:\n      paths:\n\
             \x20     - {{path: /a, pathType: Prefix, backend: {{service: {{name: web, port: {{number: 80}}}}}}}}\n\
             \x20     - {{path: /b, pathType: Prefix, backend: {{service: {{name: web, port: {{number: 81}}}}}}}}\n\
             \x20     - {{path: /c, pathType: Prefix, backend: {{service: {{name: nobody, port: {{number: 80}}}}}}}}\n\
             \x20     - {{path: /d, pathType: Prefix, backend: {{serviceName: nobody, servicePort: 80}}}}\n\
             \x20     - {{path: /e, pathType: Prefix, backend: {{serviceName: web, servicePort: 81}}}}\n"
        )
    };
    let found: Vec<_> = lines_of(&ingress("istio"))
        .iter()
        .filter(|line| line.contains("(Ingress demo/i"))
        .map(|line| line.split_once(") ").unwrap().1.to_owned())
        .collect();
    assert_eq!(
        found,
        [
            "spec.rules[0].http.paths[1].backend.service.port: \"web\" has no port 81",
            "spec.rules[0].http.paths[2].backend.service.name: the service \"nobody\" does not exist",
            "spec.rules[0].http.paths[3].backend.serviceName: the service \"nobody\" does not exist",
            "spec.rules[0].http.paths[4].backend.servicePort: \"web\" has no port 81",
        ]
    );
    assert_eq!(lines_of(&ingress("nginx")), [""; 0]);
    let all = whole(&[file(&ingress("istio"))], None);
    let secrets = all.iter().filter(|one| one.path.contains("secretName"));
    let secrets: Vec<_> = secrets.map(|one| (&*one.path, &*one.text)).collect();
    let message = "has no effect: routers read /etc/istio/ingress-certs/tls.crt and tls.key; a server of a Gateway can name a Secret in \
                 credentialName";
    assert_eq!(
        secrets,
        [
            (
                "spec.tls[0].secretName",
                "the secret \"none\" does not exist"
            ),
            ("spec.tls[0].secretName", message),
            ("spec.tls[1].secretName", message),
        ]
    );
}

#[test]
fn parts_of_ingresses_that_nothing_is_made_of_are_said() {
    let backend = |port: &str| format!("{{service: {{name: web, port: {port}}}}}");
    let ingress = |class: &str, port: &str| {
        format!(
            "{GOOD}apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: i, namespace: demo, annotations: \
             {{kubernetes.io/ingress.class: {class}}}}}\nspec:\n  defaultBackend: {}\n  rules:\n  - host: a.example\n    http: \
             {{paths: [{{path: /, pathType: Prefix, backend: {}}}]}}\n",
            backend("{number: 80}"),
            backend(port)
        )
    };
    let of = |class: &str, port: &str| {
        let found = whole(&[file(&ingress(class, port))], None);
        let of_ingress = found.into_iter().map(|one| one.as_line());
        let lines = of_ingress.filter(|line| line.contains("(Ingress demo/i"));
        lines.collect::<Vec<_>>().join("; ")
    };
    let both = of("istio", "{name: none}");
    assert!(
        both.contains("spec.defaultBackend: a default backend is not served"),
        "{both}"
    );
    assert!(
        both.contains("spec.rules[0]") && both.matches("IST0133").count() == 2,
        "{both}"
    );
    let one = of("istio", "{name: http}");
    assert_eq!(one.matches("IST0133").count(), 1, "{one}");
    // Of another controller nothing is known.
    assert_eq!(of("nginx", "{name: none}"), "");
}

#[test]
fn secrets_of_every_field_are_looked_for() {
    let gateway = |tls: &str| {
        let server = format!(
            "{{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: ['*.example.com'], tls: {{mode: SIMPLE, {tls}}}}}"
        );
        format!("{{selector: {{istio: ingressgateway}}, servers: [{server}]}}")
    };
    let found = beside(
        "Gateway",
        "g",
        &gateway("credentialNames: [certificate, missing]"),
    );
    let missing: Vec<_> = found.iter().filter(|one| one.contains("secret")).collect();
    let expected = "spec.servers[0].tls.credentialNames[1]: the secret \"missing\" is not in edge";
    assert!(
        missing.len() == 1 && missing[0].contains(expected),
        "{found:?}"
    );
    let selector = "workloadSelector: {matchLabels: {app: web}}";
    let tls = "tls: {mode: SIMPLE, credentialName: missing}";
    for (spec, path) in [
        (
            format!("trafficPolicy: {{{tls}}}"),
            "spec.trafficPolicy.tls.credentialName",
        ),
        (
            format!("trafficPolicy: {{portLevelSettings: [{{port: {{number: 80}}, {tls}}}]}}"),
            "spec.trafficPolicy.portLevelSettings[0].tls.credentialName",
        ),
        (
            format!("subsets: [{{name: v1, labels: {{version: v1}}, trafficPolicy: {{{tls}}}}}]"),
            "spec.subsets[0].trafficPolicy.tls.credentialName",
        ),
    ] {
        let found = beside(
            "DestinationRule",
            "d",
            &format!("{{host: web, {selector}, {spec}}}"),
        );
        let expected = format!("{path}: the secret \"missing\" is not in demo");
        assert!(found.iter().any(|one| one.contains(&expected)), "{found:?}");
        // A gateway may have it, wherever that is.
        let found = beside("DestinationRule", "d", &format!("{{host: web, {spec}}}"));
        assert!(!found.iter().any(|one| one.contains("secret")), "{found:?}");
    }
}

#[test]
fn routes_by_claims_want_a_gateway_that_verifies_tokens() {
    let rule = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v, namespace: demo}\nspec: {hosts: \
                [a.example.com], gateways: [front], http: [{match: [{headers: {'@request.auth.claims.sub': {exact: a}}}], route: \
                [{destination: {host: web}}]}]}\n---\n";
    let tokens = |namespace: &str, selector: &str| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: r, namespace: {namespace}}}\nspec: \
             {{{selector}jwtRules: [{{issuer: a, jwks: '{{\"keys\": []}}'}}]}}\n---\n"
        )
    };
    let is_reported_for = |rule: &str, tokens: &str| {
        let found = lines_of(&format!("{GOOD}{rule}{tokens}"));
        found.iter().any(|one| one.contains("[IST0149]"))
    };
    let is_reported = |tokens: &str| is_reported_for(rule, tokens);
    // Without tokens every request meets it.
    assert!(!is_reported_for(
        &rule.replace("headers", "withoutHeaders"),
        ""
    ));
    let router = "selector: {matchLabels: {istio: ingressgateway}}, ";
    assert!(is_reported(""));
    assert!(is_reported(&tokens("demo", "")));
    assert!(is_reported(&tokens(
        "edge",
        "selector: {matchLabels: {istio: other}}, "
    )));
    assert!(!is_reported(&tokens("edge", "")));
    assert!(!is_reported(&tokens("edge", router)));
    assert!(!is_reported(&tokens("istio-system", router)));
}

#[test]
fn connections_of_an_entry_without_addresses_are_told() {
    let entry = |spec: &str| {
        let found = beside("ServiceEntry", "e", spec);
        found.iter().filter(|one| one.contains("[IST0134]")).count()
    };
    let hosts = "hosts: [db.example], resolution: DNS";
    assert_eq!(
        entry(&format!(
            "{{{hosts}, ports: [{{number: 27017, name: m, protocol: MONGO}}]}}"
        )),
        1
    );
    // As Istio's: undeclared, and declared as nothing.
    for port in [
        "{number: 443, name: https}",
        "{number: 443, name: https, protocol: ''}",
        "{number: 9000, name: a}",
    ] {
        assert_eq!(entry(&format!("{{{hosts}, ports: [{port}]}}")), 1, "{port}");
    }
    let both =
        "ports: [{number: 3306, name: a, protocol: TCP}, {number: 443, name: b, protocol: TLS}]";
    assert_eq!(entry(&format!("{{{hosts}, {both}}}")), 1);
    assert_eq!(
        entry(&format!("{{{hosts}, addresses: [10.1.1.1], {both}}}")),
        0
    );
    assert_eq!(
        entry(&format!(
            "{{{hosts}, ports: [{{number: 80, name: h, protocol: HTTP}}]}}"
        )),
        0
    );
}

#[test]
fn containers_that_run_as_the_proxy_are_told() {
    let of = |pod: &str| {
        let deployment = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d, namespace: demo}}\nspec: {{template: {{metadata: \
             {{labels: {{app: web}}}}, spec: {{{pod}}}}}}}\n---\n"
        );
        let found = lines_of(&format!("{GOOD}{deployment}"));
        found
            .into_iter()
            .filter(|one| one.contains("[IST0144]"))
            .collect::<Vec<_>>()
    };
    let proxy = "securityContext: {runAsUser: 1337}";
    let lines = of(&format!("containers: [{{name: a}}, {{name: b, {proxy}}}]"));
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].contains("spec.template.spec.containers[1]: b runs as user 1337"),
        "{lines:?}"
    );
    assert_eq!(
        of(&format!("{proxy}, containers: [{{name: a}}, {{name: b}}]")).len(),
        2
    );
    assert_eq!(
        of(&format!(
            "{proxy}, containers: [{{name: a, securityContext: {{runAsUser: 1}}}}]"
        ))
        .len(),
        0
    );
    assert_eq!(
        of(&format!("containers: [{{name: istio-proxy, {proxy}}}]")).len(),
        0
    );
}

#[test]
fn pods_without_a_proxy_may_run_as_its_user() {
    let count_for = |name: &str| {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/kubernetes");
        let text = std::fs::read_to_string(path.join(name)).unwrap();
        assert!(text.contains("runAsUser: 1337"), "{name}");
        let found = whole(&[file(&text)], None);
        found.iter().filter(|one| one.code() == "IST0144").count()
    };
    for name in ["all.yaml", "edge.yaml"] {
        assert_eq!(count_for(name), 0, "{name}");
    }
}

/// Suppressions name them, as with istioctl.
#[test]
fn findings_of_the_rules_have_the_codes_of_istioctl() {
    let codes = |kind: &str, spec: &str| {
        let object = format!(
            "apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: o, namespace: demo}}\nspec: {spec}\n---\n"
        );
        let found = whole(&[file(&format!("{GOOD}{object}"))], None);
        found
            .iter()
            .map(|one| one.code().to_owned())
            .collect::<Vec<_>>()
    };
    let route = "route: [{destination: {host: web}}]";
    let unreached = format!(
        "{{hosts: [web], http: [{{{route}}}, {{match: [{{uri: {{prefix: /a}}}}], {route}}}]}}"
    );
    assert!(codes("VirtualService", &unreached).contains(&"IST0130".to_owned()));
    let old = "{host: web, trafficPolicy: {outlierDetection: {consecutiveErrors: 5}}}";
    assert!(codes("DestinationRule", old).contains(&"IST0002".to_owned()));
}

/// As discovery tells it of a mesh.
#[test]
fn settings_that_no_port_of_their_host_is_for_are_told() {
    let limits =
        "connectionPool: {http: {http2MaxRequests: 9, maxRetries: 0, h2UpgradePolicy: DEFAULT}}";
    let of_port =
        |number: u16| format!("portLevelSettings: [{{port: {{number: {number}}}, {limits}}}]");
    let field = "spec.trafficPolicy.portLevelSettings[0]";
    let tcp = "ingress.edge.svc.cluster.local";
    for (host, policy, expected) in [
        ("web", of_port(80), None),
        ("web", limits.to_owned(), None),
        (
            "web",
            of_port(9999),
            Some(format!("{field}: has no effect: no service with its host has a port 9999")),
        ),
        (
            tcp,
            limits.to_owned(),
            Some("spec.trafficPolicy.connectionPool.http.http2MaxRequests: has no effect: no service with its host has a port of HTTP".to_owned()),
        ),
        ("none.example", of_port(9999), None),
    ] {
        let spec = format!("{{host: {host}, trafficPolicy: {{{policy}}}}}");
        let found = beside("DestinationRule", "d", &spec).into_iter();
        let mut own = found.filter(|line| line.contains("GDN0005"));
        let expected = expected.map(|text| format!("Warning [GDN0005] {text}"));
        assert_eq!((own.next(), own.next()), (expected, None), "{spec}");
    }
    let route = format!(
        "{GOOD}apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v, namespace: demo}}\nspec: {{hosts: [x.example], http: \
         [{{route: [{{destination: {{host: {tcp}}}}}]}}]}}\n---\napiVersion: networking.istio.io/v1\nkind: DestinationRule\n\
         metadata: {{name: d, namespace: demo}}\nspec: {{host: {tcp}, trafficPolicy: {{{limits}}}}}\n"
    );
    assert!(!lines_of(&route).iter().any(|line| line.contains("GDN0005")));
}

#[test]
fn creation_times_and_objects_of_the_gateway_api_are_looked_at() {
    for (object, line) in [
        (
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web, namespace: demo}\nspec: {}\n",
            "Warning [IST0133] (HTTPRoute demo/web a.yaml:LINE) kind: gudgeon does not read Gateway API objects; they have no effect",
        ),
        (
            "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: s, namespace: demo, creationTimestamp: now}\n\
             spec: {host: web}\n",
            "Error [IST0106] (DestinationRule demo/s a.yaml:LINE) metadata.creationTimestamp: want a time, got \"now\"",
        ),
    ] {
        let files = [file(&format!("{GOOD}{object}"))];
        let found = whole(&files, None);
        let (head, tail) = line.split_once("LINE").unwrap();
        let is_it = |one: &Located| {
            let one = one.as_line();
            one.starts_with(head) && one.ends_with(tail)
        };
        assert!(found.iter().any(is_it), "{found:?}");
    }
}

/// As discovery tells it of a mesh.
#[test]
fn routes_that_no_port_of_their_hosts_is_for_are_told() {
    let to = "route: [{destination: {host: web, port: {number: 80}}}]";
    let code = "Warning [GDN0004] spec";
    for (spec, expected) in [
        (
            format!("{{hosts: [web], tcp: [{{{to}}}]}}"),
            format!(
                "{code}.tcp: no tcp route applies to sidecars: no service with one of the hosts has a port of TCP"
            ),
        ),
        (
            format!("{{hosts: [ingress.edge.svc.cluster.local], http: [{{{to}}}]}}"),
            format!(
                "{code}.http: no http route applies to sidecars: no service with one of the hosts has a port of HTTP"
            ),
        ),
        (
            format!("{{hosts: [web], http: [{{match: [{{port: 80}}, {{port: 9999}}], {to}}}]}}"),
            format!(
                "{code}.http[0].match[1].port: it never matches: no service with one of the hosts has a port 9999 of HTTP"
            ),
        ),
    ] {
        assert_eq!(beside("VirtualService", "v", &spec), [expected], "{spec}");
    }
    for spec in [
        format!("{{hosts: [web], http: [{{match: [{{port: 80}}], {to}}}]}}"),
        format!("{{hosts: [web, x.example], http: [{{match: [{{port: 81}}], {to}}}]}}"),
        format!(
            "{{hosts: [web], gateways: [mesh, front], http: [{{match: [{{port: 443, gateways: [front]}}], {to}}}]}}"
        ),
    ] {
        let found = beside("VirtualService", "v", &spec);
        assert!(
            !found.iter().any(|line| line.contains("GDN0004")),
            "{found:?}"
        );
    }
    // Requests to the host come in at the wildcard's port.
    let entry = |name: &str, host: &str, protocol: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: demo}}\nspec: {{hosts: \
             ['{host}'], addresses: [240.0.0.{name}], ports: [{{number: 80, name: p, protocol: {protocol}}}], resolution: STATIC}}\n---\n"
        )
    };
    let route = format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v, namespace: demo}}\nspec: {{hosts: [a.w.com], \
         http: [{{{to}}}]}}\n"
    );
    let (one, all) = (entry("1", "a.w.com", "TCP"), entry("2", "*.w.com", "HTTP"));
    for (services, expected) in [(one.clone(), 1), (one + &all, 0)] {
        let files = [file(&format!("{GOOD}{services}---\n{route}"))];
        let found = whole(&files, None);
        let count = found.iter().filter(|one| one.code() == "GDN0004").count();
        assert_eq!(count, expected, "{services}");
    }
}

/// A log of CI has more readers than the file.
#[test]
fn no_secret_is_reported() {
    let uri = "https://me:S3CRET word@a:x/k?access_token=S3CRET";
    let text = format!(
        "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: a, namespace: n}}\n\
         spec: {{jwtRules: [{{issuer: i, jwksUri: '{uri}'}}]}}\n"
    );
    let found = whole(&[file(&text)], None);
    let all = written(&found, MessageFormat::Text).unwrap();
    assert!(
        all.contains("https://…@a:x/k?access_token=…") && !all.contains("S3CRET"),
        "{all}"
    );
}
