//! Fields and rules together: everything that is wrong with an object.

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::Value as Json;

use super::document::Part;
use super::{Finding, Object, limit, read, rules};
use crate::yaml::Node;

pub(super) fn check(value: &Json) -> (Option<Object>, Vec<Finding>) {
    let (object, mut findings) = check_all(value);
    if findings.len() > 1 {
        Part::new(&Node::of_json(value)).order(&mut findings);
    }
    limit(&mut findings);
    (object, findings)
}

pub(super) fn check_all(value: &Json) -> (Option<Object>, Vec<Finding>) {
    let (mut object, mut findings) = read(value);
    if let Some(object) = &mut object {
        let unread = Unread::of(&findings);
        let rules = rules::check(object).into_iter();
        findings.extend(rules.filter(|found| !unread.holds(&found.path)));
        if findings.iter().any(Finding::is_error) {
            object.body = Bytes::new();
        }
    }
    (object, findings)
}

/// Places of which something was said when their fields were read: rules have nothing to add.
struct Unread(HashSet<String>);

impl Unread {
    fn of(findings: &[Finding]) -> Self {
        let errors = findings.iter().filter(|found| found.is_error());
        Self(errors.map(|found| found.path.clone()).collect())
    }

    /// Whether it is one of them, or below one.
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

    fn said(spec: Json) -> Vec<String> {
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
            .map(|found| format!("{}: {}", found.path, found.message))
            .collect()
    }

    fn route(rest: &Json) -> Json {
        json!({"hosts": ["a"], "http": [{"route": rest}]})
    }

    #[test]
    fn fields_and_rules_stand_in_one_order() {
        assert_eq!(
            said(
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
            said(route(&json!([{"destination": {"host": "x"}}]))),
            Vec::<String>::new()
        );
    }

    #[test]
    fn what_could_not_be_read_is_not_judged() {
        let both = |weight: Json| json!([{"destination": {"host": "x"}, "weight": weight}, {"destination": {"host": "y"}, "weight": 1}]);
        let unread = said(route(&both(json!("x"))));
        assert_eq!(unread.len(), 1, "{unread:?}");
        assert!(
            unread[0].starts_with("spec.http[0].route[0].weight: "),
            "{unread:?}"
        );
        assert_eq!(
            said(route(&both(json!(98)))),
            ["spec.http[0].route: weights add up to 99, not 100"]
        );
        let unread = said(route(&json!([{"destination": 5}])));
        assert_eq!(
            unread,
            ["spec.http[0].route[0].destination: expected an object"]
        );
        let unread = said(route(&json!([null])));
        assert_eq!(unread, ["spec.http[0].route[0]: must not be null"]);
    }

    #[test]
    fn a_hundred_are_kept_and_the_others_counted() {
        let hosts: Vec<_> = (0..150).map(|at| format!("a_{at}")).collect();
        let mut spec = route(&json!([{"destination": {"host": "x"}}]));
        spec["hosts"] = json!(hosts);
        let all = said(spec);
        assert_eq!(all.len(), 101);
        assert!(all[99].starts_with("spec.hosts[99]: "));
        assert_eq!(all[100], ": … and 50 more");
    }
}
