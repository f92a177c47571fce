//! Routes by headers that RequestAuthentications make of claims.

use super::{GOOD, lines_of};

const BY_GROUP: &str = "headers: {x-group: {exact: admin}}";
const GROUP: &str = "outputClaimToHeaders: [{header: X-Group, claim: group}]";

/// A VirtualService at the gateway in `edge`, with this match.
fn rule(headers: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {{name: v, namespace: demo}}\nspec: {{hosts: \
         [a.example.com], gateways: [front], http: [{{match: [{{{headers}}}], route: [{{destination: {{host: web}}}}]}}]}}\n---\n"
    )
}

fn tokens(namespace: &str, output: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: r, namespace: {namespace}}}\nspec: \
         {{jwtRules: [{{issuer: a, jwks: '{{\"keys\": []}}', {output}}}]}}\n---\n"
    )
}

fn told_of(objects: &str) -> Option<String> {
    let mut lines = lines_of(objects).into_iter();
    lines.find(|line| line.contains("[GDN0006]"))
}

fn told(headers: &str, policies: &str) -> Option<String> {
    told_of(&format!("{GOOD}{}{policies}", rule(headers)))
}

/// Envoy chooses the route anew for verified tokens alone: a client without one, that wrote the header, took the route of others.
#[test]
fn routes_by_headers_that_are_made_of_claims_are_told() {
    let line = told(BY_GROUP, &tokens("edge", GROUP)).unwrap();
    assert!(
        line.contains(
            "spec.http[0].match[0].headers[x-group]: a client without a token chooses the route by writing \"x-group\" itself"
        ) && line.ends_with("match \"@request.auth.claims.group\""),
        "{line}"
    );
    let payload = tokens("edge", "outputPayloadToHeader: x-payload");
    let line = told("withoutHeaders: {x-payload: {}}", &payload).unwrap();
    assert!(
        line.ends_with("match \"@request.auth.claims.NAME\""),
        "{line}"
    );
    // Another header, policies of other workloads, and the match that is meant.
    assert_eq!(told("headers: {x-other: {}}", &tokens("edge", GROUP)), None);
    assert_eq!(told(BY_GROUP, &tokens("demo", GROUP)), None);
    let by_claim = "headers: {'@request.auth.claims.group': {exact: admin}}";
    assert_eq!(told(by_claim, &tokens("edge", GROUP)), None);
}

#[test]
fn every_header_that_is_made_of_a_claim_is_looked_at() {
    let other = tokens("demo", "outputClaimToHeaders: [{header: x-a, claim: a}]");
    let policies = other + &tokens("edge", GROUP);
    let line = told("headers: {x-a: {exact: a}, x-group: {exact: b}}", &policies).unwrap();
    assert!(line.contains("headers[x-group]"), "{line}");
}

#[test]
fn a_header_is_told_with_the_claim_that_the_gateway_makes_it_of() {
    let other = "outputClaimToHeaders: [{header: x-group, claim: team}]";
    for (demo, edge, claim) in [(other, GROUP, "group"), (GROUP, other, "team")] {
        let policies = tokens("demo", demo) + &tokens("edge", edge);
        let line = told(BY_GROUP, &policies).unwrap();
        let end = format!("match \"@request.auth.claims.{claim}\"");
        assert!(line.ends_with(&end), "{line}");
    }
}

/// Without workloads only the namespaces tell which policies hold for the gateway's.
#[test]
fn policies_of_other_namespaces_make_no_headers_for_unknown_workloads() {
    let gateway = "apiVersion: networking.istio.io/v1\nkind: Gateway\nmetadata: {name: front, namespace: demo}\nspec: {selector: \
                   {istio: ingressgateway}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: \
                   ['*.example.com']}]}\n---\n";
    for (namespace, is_told) in [("demo", true), ("istio-system", true), ("other", false)] {
        let objects = format!("{gateway}{}{}", rule(BY_GROUP), tokens(namespace, GROUP));
        assert_eq!(told_of(&objects).is_some(), is_told, "{namespace}");
    }
}
