//! Fields and rules together: all findings about an object.

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::Value as Json;

use super::document::Part;
use super::fields::Walker;
use super::{Finding, FindingKind, Object, limit, read};
use crate::yaml::Node;

pub(super) fn check(value: &Json) -> (Option<Object>, Vec<Finding>) {
    let (object, mut findings) = check_all(value);
    // The order needs a tree of the whole object, which a single finding is not worth.
    if findings.len() > 1 {
        Part::new(&Node::of_json(value)).sort(&mut findings);
    }
    limit(&mut findings);
    (object, findings)
}

pub(super) fn check_all(value: &Json) -> (Option<Object>, Vec<Finding>) {
    let (mut object, mut findings) = read(value);
    if let Some(object) = &mut object {
        add_rule_findings(object, &mut findings);
        if findings.iter().any(Finding::is_error) {
            object.body = Bytes::new();
        }
    }
    (object, findings)
}

/// Checks an object that came by the wire: its numbers of enumerations, see [`refuse_unknown_numbers`], and its rules. The
/// findings are in no particular order.
#[must_use]
pub fn check_received(object: &mut Object) -> Vec<Finding> {
    let mut findings = refuse_unknown_numbers(object);
    add_rule_findings(object, &mut findings);
    findings
}

/// Reports each number in an object of the wire that its enumeration lacks. It is `null` in the spec
/// afterwards.
#[must_use]
pub fn refuse_unknown_numbers(object: &mut Object) -> Vec<Finding> {
    let mut walker = Walker::new();
    walker.path.enter("spec");
    walker.refuse_unknown_numbers(object.kind.message, &mut object.spec);
    walker.findings.into_vec()
}

/// Adds the findings of rules at readable places.
fn add_rule_findings(object: &Object, findings: &mut Vec<Finding>) {
    let unread = UnreadableFields::of(findings);
    let rules = check_rules(object).into_iter();
    findings.extend(rules.filter(|finding| !unread.holds(&finding.path)));
}

/// Checks an object by the rules of its kind: findings in no particular order, and none about values that could not be read.
#[must_use]
pub fn check_rules(object: &Object) -> Vec<Finding> {
    let Object {
        kind,
        namespace,
        name,
        spec,
        ..
    } = object;
    kind.check_rules(namespace, name, spec)
}

/// Unreadable places, which have findings already: rules have nothing to add. A message with two members of a
/// oneof is not among them, since all of it was read.
struct UnreadableFields(HashSet<String>);

impl UnreadableFields {
    fn of(findings: &[Finding]) -> Self {
        let errors = findings
            .iter()
            .filter(|finding| finding.is_error() && finding.kind != FindingKind::OneofConflict)
            // Those that were not kept have no path.
            .filter(|finding| !finding.path.is_empty());
        Self(errors.map(|finding| finding.path.clone()).collect())
    }

    /// Returns true if the path is one of them, or below one.
    fn holds(&self, path: &str) -> bool {
        let mut ends = path.match_indices(['.', '[']).map(|(at, _)| at);
        !self.0.is_empty()
            && (self.0.contains(path)
                || ends.any(|end| path.get(..end).is_some_and(|above| self.0.contains(above))))
    }
}

#[cfg(test)]
#[allow(
    clippy::needless_pass_by_value,
    reason = "values are made where they are wanted"
)]
mod tests {
    use super::*;
    use serde_json::json;

    fn finding_texts(spec: Json) -> Vec<String> {
        let (object, findings) = check(&json!({
            "apiVersion": "networking.istio.io/v1",
            "kind": "VirtualService",
            "metadata": {"name": "a"},
            "spec": spec,
        }));
        let has_error = findings.iter().any(Finding::is_error);
        assert_eq!(object.unwrap().body.is_empty(), has_error);
        findings
            .into_iter()
            .map(|finding| format!("{}: {}", finding.path, finding.message))
            .collect()
    }

    fn route(rest: &Json) -> Json {
        json!({"hosts": ["a"], "http": [{"route": rest}]})
    }

    #[test]
    fn fields_and_rules_stand_in_one_order() {
        assert_eq!(
            finding_texts(
                json!({"hosts": ["a_"], "htp": [], "http": [{"timeout": "0s", "route": [{"destination": {"host": "x", "nothing": 1}}]}], "gateways": ["/"]})
            ),
            [
                "spec.hosts[0]: \"a_\" is not a host name: \"a_\" is not a DNS label",
                "spec.htp: unknown field, did you mean \"http\"?",
                "spec.http[0].timeout: duration 0s is less than 1ms",
                "spec.http[0].route[0].destination.nothing: unknown field",
                "spec.gateways[0]: \"/\" is not NAMESPACE/NAME",
            ]
        );
        assert_eq!(
            finding_texts(route(&json!([{"destination": {"host": "x"}}]))),
            Vec::<String>::new()
        );
    }

    #[test]
    fn rules_skip_an_unreadable_field() {
        let both = |weight: Json| json!([{"destination": {"host": "x"}, "weight": weight}, {"destination": {"host": "y"}, "weight": 1}]);
        let unread = finding_texts(route(&both(json!("x"))));
        assert_eq!(unread.len(), 1, "{unread:?}");
        assert!(
            unread[0].starts_with("spec.http[0].route[0].weight: "),
            "{unread:?}"
        );
        assert_eq!(
            finding_texts(route(&both(json!(98)))),
            ["spec.http[0].route: weights add up to 99, not 100"]
        );
        let unread = finding_texts(route(&json!([{"destination": 5}])));
        assert_eq!(
            unread,
            ["spec.http[0].route[0].destination: want an object, got 5"]
        );
        let unread = finding_texts(route(&json!([null])));
        assert_eq!(unread, ["spec.http[0].route[0]: must not be null"]);
    }

    fn of(kind: &str, group: &str, spec: Json) -> Vec<String> {
        let (_, findings) = check(&json!({
            "apiVersion": group,
            "kind": kind,
            "metadata": {"name": "a", "namespace": "ns"},
            "spec": spec,
        }));
        let findings = findings.into_iter();
        findings
            .map(|finding| format!("{}: {}", finding.path, finding.message))
            .collect()
    }

    #[test]
    fn two_members_of_a_oneof_hide_nothing_below_them() {
        let redirect = json!({"port": 80, "derivePort": "FROM_REQUEST_PORT", "redirectCode": 200, "scheme": "ftp"});
        assert_eq!(
            finding_texts(json!({"hosts": ["a"], "http": [{"redirect": redirect}]})),
            [
                "spec.http[0].redirect: only one of port, derivePort may be set",
                "spec.http[0].redirect.redirectCode: 200 is neither 0 nor in 300..399",
                "spec.http[0].redirect.scheme: \"ftp\" is neither http nor https",
            ]
        );
        let balancer = json!({
            "simple": "RANDOM",
            "consistentHash": {"httpCookie": {"ttl": "1s"}},
            "localityLbSetting": {"distribute": [{"from": "a", "to": {"b": 99}}]},
        });
        assert_eq!(
            of(
                "DestinationRule",
                "networking.istio.io/v1",
                json!({"host": "a", "trafficPolicy": {"loadBalancer": balancer}})
            ),
            [
                "spec.trafficPolicy.loadBalancer: only one of simple, consistentHash may be set",
                "spec.trafficPolicy.loadBalancer.consistentHash.httpCookie.name: must not be empty",
                "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to: weights add up to 99, not 100",
            ]
        );
        // A field that is there twice was not read: nobody knows which was meant.
        assert_eq!(
            finding_texts(
                json!({"hosts": ["a"], "http": [{"redirect": {"uri": "/", "redirectCode": 1, "redirect_code": 302}}]})
            ),
            ["spec.http[0].redirect.redirectCode: written twice"]
        );
    }

    /// A value that cannot be read might be anything: rules that look at it from elsewhere say nothing either.
    #[test]
    fn an_unreadable_field_breaks_no_rule_of_another() {
        const NETWORKING: &str = "networking.istio.io/v1";
        const SECURITY: &str = "security.istio.io/v1";
        const RBAC: &str = "rbac.istio.io/v1alpha1";
        const AUTHENTICATION: &str = "authentication.istio.io/v1alpha1";
        const CONFIG: &str = "config.istio.io/v1alpha2";
        let http = |route: Json| json!({"hosts": ["a"], "http": [route]});
        let to = json!([{"destination": {"host": "x"}}]);
        let policy = |policy: Json| json!({"host": "a", "trafficPolicy": policy});
        let gateway = |server: Json| json!({"servers": [server]});
        let tls = |tls: Json| json!({"servers": [{"hosts": ["a.b"], "port": {"number": 1, "name": "a", "protocol": "TLS"}, "tls": tls}]});
        let entry = |rest: Json| {
            let mut entry = json!({"hosts": ["a.b"], "ports": [{"number": 1, "name": "h", "protocol": "HTTP"}]});
            let fields = entry.as_object_mut().unwrap();
            fields.extend(rest.as_object().unwrap().clone());
            entry
        };
        let patch = |patch: Json| json!({"configPatches": [patch]});
        let allow = |rule: Json| json!({"action": "ALLOW", "rules": [rule]});
        let deny = |rule: Json| json!({"action": "DENY", "rules": [rule]});
        let manager = json!({"name": "envoy.http_connection_manager", "subFilter": {"name": "x"}});
        let locality = |setting: Json| json!({"host": "a", "trafficPolicy": {"loadBalancer": {"localityLbSetting": setting}}});
        #[rustfmt::skip]
        let rows = [
            ("VirtualService", NETWORKING, json!({"hosts": ["a"], "http": 5}), "spec.http"),
            ("VirtualService", NETWORKING, json!({"hosts": 5, "gateways": ["a/b"], "http": [{"route": to}]}), "spec.hosts"),
            ("VirtualService", NETWORKING, json!({"hosts": ["a", 5], "tls": [{"match": [{"sniHosts": ["b"]}], "route": to}]}), "spec.hosts[1]"),
            ("VirtualService", NETWORKING, json!({"hosts": ["*"], "gateways": 5, "http": [{"route": to}]}), "spec.gateways"),
            ("VirtualService", NETWORKING, json!({"hosts": ["*"], "gateways": [5], "http": [{"route": to}]}), "spec.gateways[0]"),
            ("VirtualService", NETWORKING, json!({"hosts": ["a"], "http": [{"match": 5, "route": to}, {"route": to}]}), "spec.http[0].match"),
            ("VirtualService", NETWORKING, json!({"hosts": ["a"], "http": [{"match": [{"uri": {"exact": 5}}], "route": to}, {"match": [{"uri": {"exact": "a"}}], "route": to}]}), "spec.http[0].match[0].uri.exact"),
            ("VirtualService", NETWORKING, http(json!({"route": 5})), "spec.http[0].route"),
            ("VirtualService", NETWORKING, http(json!({"redirect": 5})), "spec.http[0].redirect"),
            ("VirtualService", NETWORKING, http(json!({"redirect": {"uri": 5}})), "spec.http[0].redirect.uri"),
            ("VirtualService", NETWORKING, http(json!({"route": to, "rewrite": {"uri": 5}})), "spec.http[0].rewrite.uri"),
            ("VirtualService", NETWORKING, http(json!({"route": to, "retries": {"attempts": "x", "retryOn": "5xx"}})), "spec.http[0].retries.attempts"),
            ("VirtualService", NETWORKING, http(json!({"route": to, "fault": {"abort": 5}})), "spec.http[0].fault.abort"),
            ("VirtualService", NETWORKING, http(json!({"route": to, "fault": {"abort": {"httpStatus": "x"}}})), "spec.http[0].fault.abort.httpStatus"),
            ("VirtualService", NETWORKING, http(json!({"route": to, "corsPolicy": {"allowOrigins": [{"exact": 5}]}})), "spec.http[0].corsPolicy.allowOrigins[0].exact"),
            ("DestinationRule", NETWORKING, policy(json!({"loadBalancer": 5})), "spec.trafficPolicy.loadBalancer"),
            ("DestinationRule", NETWORKING, policy(json!({"portLevelSettings": [{"port": {"number": 1}, "tls": 5}]})), "spec.trafficPolicy.portLevelSettings[0].tls"),
            ("DestinationRule", NETWORKING, policy(json!({"connectionPool": {"tcp": 5}})), "spec.trafficPolicy.connectionPool.tcp"),
            ("DestinationRule", NETWORKING, policy(json!({"tls": {"mode": "MUTUAL", "credentialName": 5}})), "spec.trafficPolicy.tls.credentialName"),
            ("DestinationRule", NETWORKING, policy(json!({"outlierDetection": {"consecutiveLocalOriginFailures": 1, "splitExternalLocalOriginErrors": 5}})), "spec.trafficPolicy.outlierDetection.splitExternalLocalOriginErrors"),
            ("DestinationRule", NETWORKING, policy(json!({"outlierDetection": 5, "loadBalancer": {"localityLbSetting": {"failover": [{"from": "a", "to": "b"}]}}})), "spec.trafficPolicy.outlierDetection"),
            ("DestinationRule", NETWORKING, locality(json!({"distribute": [{"from": "a", "to": {"a": "x", "b": 50}}]})), "spec.trafficPolicy.loadBalancer.localityLbSetting.distribute[0].to.a"),
            ("DestinationRule", NETWORKING, json!({"host": "a", "workloadSelector": {"matchLabels": 5}}), "spec.workloadSelector.matchLabels"),
            ("Gateway", NETWORKING, gateway(json!({"hosts": ["a.b"], "port": {"number": 1, "name": "a", "protocol": 7}, "tls": {"httpsRedirect": true}})), "spec.servers[0].port.protocol"),
            ("Gateway", NETWORKING, gateway(json!({"hosts": ["a.b"], "port": 5, "tls": {"httpsRedirect": true}})), "spec.servers[0].port"),
            ("Gateway", NETWORKING, gateway(json!({"hosts": ["a.b"], "bind": 5, "port": {"number": 0, "name": "a", "protocol": "HTTP"}})), "spec.servers[0].bind"),
            ("Gateway", NETWORKING, tls(json!({"mode": 99, "credentialName": "a"})), "spec.servers[0].tls.mode"),
            ("Gateway", NETWORKING, tls(json!({"mode": "MUTUAL", "credentialName": 5})), "spec.servers[0].tls.credentialName"),
            ("Gateway", NETWORKING, tls(json!({"mode": "SIMPLE", "tlsCertificates": 5})), "spec.servers[0].tls.tlsCertificates"),
            ("Gateway", NETWORKING, tls(json!({"mode": "MUTUAL", "caCertificates": 5, "tlsCertificates": [{"serverCertificate": "a", "privateKey": "b"}]})), "spec.servers[0].tls.caCertificates"),
            ("ServiceEntry", NETWORKING, entry(json!({"resolution": "FOO", "endpoints": [{"address": "10.0.0.1"}]})), "spec.resolution"),
            ("ServiceEntry", NETWORKING, entry(json!({"resolution": 9, "hosts": ["a.b", "c.d"], "addresses": ["10.0.0.0/8"], "ports": [{"number": 1, "name": "a", "protocol": "TCP"}]})), "spec.resolution"),
            ("ServiceEntry", NETWORKING, entry(json!({"hosts": ["*.b"], "resolution": "DNS", "endpoints": 5})), "spec.endpoints"),
            ("ServiceEntry", NETWORKING, entry(json!({"resolution": "STATIC", "endpoints": [{"network": 5}]})), "spec.endpoints[0].network"),
            ("ServiceEntry", NETWORKING, json!({"hosts": ["a.b"], "resolution": "STATIC", "ports": [{"number": 1, "name": 5, "protocol": "HTTP"}], "endpoints": [{"address": "10.0.0.1", "ports": {"h": 1}}]}), "spec.ports[0].name"),
            ("ServiceEntry", NETWORKING, json!({"hosts": ["a.b"], "resolution": "STATIC", "ports": 5, "endpoints": [{"address": "10.0.0.1", "ports": {"h": 1}}]}), "spec.ports"),
            ("WorkloadEntry", NETWORKING, json!({"network": 5}), "spec.network"),
            ("Sidecar", NETWORKING, json!({"egress": 5}), "spec.egress"),
            ("Sidecar", NETWORKING, json!({"outboundTrafficPolicy": {"mode": 9, "egressProxy": {"host": "a", "port": {"number": 1}}}}), "spec.outboundTrafficPolicy.mode"),
            ("Sidecar", NETWORKING, json!({"ingress": [{"port": {"number": 1, "name": "a", "protocol": 5}, "tls": {"mode": "SIMPLE", "serverCertificate": "a", "privateKey": "b"}}]}), "spec.ingress[0].port.protocol"),
            ("Sidecar", NETWORKING, json!({"egress": [{"hosts": ["./*"], "bind": "10.0.0.1", "port": {"number": "x", "name": "a", "protocol": "HTTP"}}]}), "spec.egress[0].port.number"),
            ("EnvoyFilter", "networking.istio.io/v1alpha3", patch(json!({"applyTo": "CLUSTER", "patch": {"operation": "FOO"}})), "spec.configPatches[0].patch.operation"),
            ("EnvoyFilter", "networking.istio.io/v1alpha3", patch(json!({"applyTo": "FOO", "match": {"listener": {"filterChain": {"filter": manager}}}, "patch": {"operation": "REMOVE"}})), "spec.configPatches[0].applyTo"),
            ("AuthorizationPolicy", SECURITY, json!({"action": "FOO", "provider": {"name": "a"}}), "spec.action"),
            ("AuthorizationPolicy", SECURITY, json!({"selector": {"matchLabels": 5}}), "spec.selector.matchLabels"),
            ("AuthorizationPolicy", SECURITY, json!({"targetRefs": [{"group": 5, "kind": "Gateway", "name": "a"}]}), "spec.targetRefs[0].group"),
            ("AuthorizationPolicy", SECURITY, allow(json!({"from": [{"source": {"namespaces": 5}}]})), "spec.rules[0].from[0].source.namespaces"),
            ("AuthorizationPolicy", SECURITY, allow(json!({"when": [{"key": "source.ip", "values": 5}]})), "spec.rules[0].when[0].values"),
            ("AuthorizationPolicy", SECURITY, deny(json!({"to": [{"operation": {"paths": ["/a"], "ports": 5}}]})), "spec.rules[0].to[0].operation.ports"),
            ("PeerAuthentication", SECURITY, json!({"selector": {"matchLabels": 5}, "portLevelMtls": {"80": {"mode": "STRICT"}}}), "spec.selector.matchLabels"),
            ("PeerAuthentication", SECURITY, json!({"selector": 5, "portLevelMtls": {"80": {"mode": "STRICT"}}}), "spec.selector"),
            ("RequestAuthentication", SECURITY, json!({"jwtRules": [{"issuer": 5}]}), "spec.jwtRules[0].issuer"),
            ("Policy", AUTHENTICATION, json!({"targets": [{"name": "a", "ports": [{"name": 5}]}]}), "spec.targets[0].ports[0].name"),
            ("ServiceRoleBinding", RBAC, json!({"subjects": [{"user": "a"}], "roleRef": 5}), "spec.roleRef"),
            ("ServiceRoleBinding", RBAC, json!({"subjects": [{"user": 5}], "role": "a"}), "spec.subjects[0].user"),
            ("HTTPAPISpec", CONFIG, json!({"patterns": [{"httpMethod": "GET", "uriTemplate": 5}]}), "spec.patterns[0].uriTemplate"),
            ("HTTPAPISpec", CONFIG, json!({"patterns": [{"httpMethod": "GET", "regex": "a"}], "apiKeys": [{"query": 5}]}), "spec.apiKeys[0].query"),
            ("HTTPAPISpecBinding", CONFIG, json!({"services": [{"name": 5}], "apiSpecs": [{"name": "a"}]}), "spec.services[0].name"),
            ("QuotaSpec", CONFIG, json!({"rules": [{"quotas": [{"quota": "a", "charge": 1}], "match": [{"clause": {"a": {"exact": 5}}}]}]}), "spec.rules[0].match[0].clause.a.exact"),
        ];
        for (kind, group, spec, unread) in rows {
            let findings = of(kind, group, spec.clone());
            let errors = findings
                .iter()
                .filter(|text| !text.contains(": deprecated, "));
            let errors: Vec<_> = errors.collect();
            assert!(
                matches!(*errors, [one] if one.starts_with(&format!("{unread}: "))),
                "{kind} {spec}: {findings:#?}"
            );
        }
    }

    #[test]
    fn a_hundred_are_kept_and_the_others_counted() {
        let hosts: Vec<_> = (0..150).map(|at| format!("a_{at}")).collect();
        let mut spec = route(&json!([{"destination": {"host": "x"}}]));
        spec["hosts"] = json!(hosts);
        let all = finding_texts(spec);
        assert_eq!(all.len(), 101);
        assert!(all[99].starts_with("spec.hosts[99]: "));
        assert_eq!(all[100], ": … and 50 more");
    }
}
