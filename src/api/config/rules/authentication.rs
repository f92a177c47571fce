//! Policy and MeshPolicy: how identity was proven until 1.5.

use std::collections::HashSet;

use super::context::Context;
use super::cursor::Cursor;
use super::{parts, predicates as is};
use crate::finding::quoted;

pub(in crate::config) fn policy(context: &Context<'_>) {
    let targets = context.spec.get("targets");
    if context.name == "default" && !targets.is_empty() {
        targets.fail("not in the policy default");
    }
    if context.name != "default" {
        targets.not_empty();
    }
    for target in targets.items() {
        let name = target.get("name");
        name.check(is::label(name.text()));
        for port in target.get("ports").items() {
            let (number, name) = (port.get("number"), port.get("name"));
            if name.is_set() {
                name.check(is::label(name.text()));
            } else if !name.is_broken() {
                number.check(is::port(number.number()));
            }
        }
    }
    methods(&context.spec);
}

pub(in crate::config) fn mesh_policy(context: &Context<'_>) {
    named_default(context);
    let targets = context.spec.get("targets");
    if !targets.is_empty() {
        targets.fail("not for the whole mesh");
    }
    methods(&context.spec);
}

pub(super) fn named_default(context: &Context<'_>) {
    if !matches!(context.name, "" | "default") {
        let quoted = quoted(context.name);
        context.name_at.fail(format!("{quoted} is not \"default\""));
    }
}

fn methods(spec: &Cursor<'_>) {
    let mut issuers = HashSet::new();
    for peer in spec.get("peers").items() {
        let token = peer.get("jwt");
        if token.is_set() {
            jwt(&token, &mut issuers);
        }
    }
    for origin in spec.get("origins").items() {
        let token = origin.get("jwt");
        if token.required() {
            jwt(&token, &mut issuers);
        }
    }
}

fn jwt<'a>(token: &Cursor<'a>, issuers: &mut HashSet<&'a str>) {
    let issuer = token.get("issuer");
    if issuer.not_empty() && !issuers.insert(issuer.text()) {
        issuer.fail(format!("duplicate issuer {}", quoted(issuer.text())));
    }
    for name in ["audiences", "jwtHeaders", "jwtParams"] {
        parts::none_empty(&token.get(name));
    }
    token.get("jwksUri").check_text(is::jwks_uri);
}
