//! Endpoints of subsets: they change without a change of the rule that makes them.

use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;

use crate::client::*;
use crate::place::Place;

const RULE: &str = "apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: demo}
spec: {host: web, subsets: [{name: v1, labels: {version: v1}}]}
";

/// A service of Kubernetes with pods of version 1 at these addresses.
fn web(addresses: &[&str]) -> String {
    let mut text = "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: demo}\nspec: {clusterIP: 10.0.0.1, ports: [{name: \
                    http, port: 80}]}\n---\napiVersion: v1\nkind: Endpoints\nmetadata: {name: web, namespace: demo}\nsubsets:\n- ports: \
                    [{name: http, port: 8080}]\n  addresses:\n"
        .to_owned();
    for address in addresses {
        text.push_str(&format!(
            "  - {{ip: {address}, targetRef: {{kind: Pod, name: web-{address}, namespace: demo}}}}\n"
        ));
    }
    for address in addresses {
        text.push_str(&format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: web-{address}, namespace: demo, labels: {{version: v1}}}}\nstatus: \
             {{podIP: {address}, phase: Running}}\n"
        ));
    }
    text
}

#[tokio::test]
async fn a_change_of_endpoints_alone_reaches_subsets() {
    const SUBSET: &str = "outbound|80|v1|web.demo.svc.cluster.local";
    let discovery = Place::new()
        .with("config/rule.yaml", RULE)
        .with("config/web.yaml", &web(&["10.1.0.1"]))
        .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask(CDS, &[]);
    let cds = stream.hear(CDS).await;
    assert!(
        names_of(&cds).contains(&SUBSET.to_owned()),
        "{:?}",
        names_of(&cds)
    );
    stream.say(request(EDS, &[SUBSET]));
    let eds = stream.hear(EDS).await;
    stream.ack(&eds, &[SUBSET]);
    stream.ack(&cds, &[]);
    let count = |eds| {
        let assignment: ClusterLoadAssignment = decoded(eds, SUBSET);
        let places = assignment.endpoints.iter();
        places.map(|place| place.lb_endpoints.len()).sum::<usize>()
    };
    assert_eq!(count(&eds), 1);
    discovery
        .place
        .write("config/web.yaml", &web(&["10.1.0.1", "10.1.0.2"]));
    let eds = stream.hear(EDS).await;
    assert_eq!(count(&eds), 2);
}
