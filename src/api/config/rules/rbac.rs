//! ServiceRole, ServiceRoleBinding, RbacConfig and ClusterRbacConfig: authorization until 1.5.

use super::authentication::named_default;
use super::context::Context;
use super::cursor::Cursor;
use super::predicates as is;
use crate::finding::quoted;

pub(in crate::config) fn role(context: &Context<'_>) {
    let rules = context.spec.get("rules");
    rules.not_empty();
    rules.items().for_each(|rule| access_rule(&rule));
}

fn access_rule(rule: &Cursor<'_>) {
    rule.apart("methods", "notMethods");
    rule.apart("ports", "notPorts");
    for name in ["ports", "notPorts"] {
        for port in rule.get(name).items() {
            port.check(is::port(port.number()));
        }
    }
    let by_port = rule.has("ports") || rule.has("notPorts");
    for constraint in rule.get("constraints").items() {
        let key = constraint.get("key");
        key.not_empty();
        constraint.get("values").not_empty();
        if by_port && key.text() == "destination.port" {
            key.fail("not beside ports or notPorts");
        }
    }
}

pub(in crate::config) fn binding(context: &Context<'_>) {
    let spec = &context.spec;
    let subjects = spec.get("subjects");
    subjects.not_empty();
    subjects.items().for_each(|one| subject(&one));
    let ways = ["roleRef", "role", "actions"];
    if spec.lacks(&ways) || spec.set_fields(&ways).len() > 1 {
        spec.fail("exactly one of roleRef, role, actions");
    }
    let reference = spec.get("roleRef");
    if reference.is_set() {
        let kind = reference.get("kind");
        if kind.text() != "ServiceRole" {
            kind.fail(format!("{} is not \"ServiceRole\"", quoted(kind.text())));
        }
        reference.get("name").not_empty();
    }
    spec.get("actions")
        .items()
        .for_each(|rule| access_rule(&rule));
    let role = spec.get("role");
    if role.text() == "/" {
        role.fail("\"/\" is not the name of a role");
    }
}

fn subject(subject: &Cursor<'_>) {
    let all = [
        "user",
        "group",
        "properties",
        "names",
        "notNames",
        "groups",
        "notGroups",
        "namespaces",
        "notNamespaces",
        "ips",
        "notIps",
    ];
    let fields = subject.set_fields(&all);
    let properties = subject.get("properties");
    let only_properties = fields.iter().all(|name| *name == "properties");
    if only_properties && properties.is_empty() && !subject.any_broken(&all) {
        subject.fail("must not be empty");
    }
    for name in ["names", "notNames"] {
        for one in subject.get(name).items() {
            // `a*` and `*a` are prefix and suffix; "*" alone would be all users, or the authenticated ones.
            if one.text() == "*" {
                one.fail("\"*\" alone is not a name");
            }
        }
    }
    for (key, at) in properties.entries() {
        let field = match key {
            "source.principal" => "names",
            "request.auth.claims[groups]" => "groups",
            "source.namespace" => "namespaces",
            "source.ip" => "ips",
            _ => continue,
        };
        if subject.has(field) {
            at.fail(format!("not beside {field}"));
        }
    }
}

pub(in crate::config) fn config(context: &Context<'_>) {
    named_default(context);
    let spec = &context.spec;
    for (mode, name) in [
        ("ON_WITH_INCLUSION", "inclusion"),
        ("ON_WITH_EXCLUSION", "exclusion"),
    ] {
        if spec.get("mode").text() == mode {
            spec.get(name).required();
        }
    }
}

pub(in crate::config) fn old_config(context: &Context<'_>) {
    context.spec.deprecated("use ClusterRbacConfig");
    config(context);
}
