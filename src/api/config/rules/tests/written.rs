//! All rows in one file, so that whoever reads objects can be asked about each of them: the webhook, `validate`, discovery from
//! files, from an API server and by MCP have one rule book.

use std::fmt::Display;

use serde_json::{Value, json};

use super::*;

/// An object, and what the rules say of it.
pub(super) struct Row {
    kind: &'static str,
    name: &'static str,
    spec: String,
    findings: Vec<String>,
}

impl Row {
    pub(super) fn new(
        kind: &'static str,
        name: &'static str,
        spec: impl Display,
        findings: &[impl ToString],
    ) -> Self {
        Self {
            kind,
            name,
            spec: spec.to_string(),
            findings: findings.iter().map(ToString::to_string).collect(),
        }
    }

    fn json(&self) -> Value {
        let row = KINDS.iter().find(|row| row.kind == self.kind).unwrap();
        json!({
            "apiVersion": format!("{}/{}", row.group, row.versions[0]),
            "kind": self.kind,
            "name": self.name,
            "spec": self.spec,
            "said": self.findings,
        })
    }
}

/// A spec that is longer shows a bound, and little else.
const MAX_SPEC_BYTES: usize = 4096;

/// `GUDGEON_WRITE_ROWS=1` writes the file.
#[test]
fn all_rows_are_in_the_file_for_those_who_read_objects() {
    let all = [
        predicates::rows(),
        virtual_service::rows(),
        virtual_service_http::rows(),
        destination_rule::rows(),
        edge::gateway::rows(),
        edge::service_entry::rows(),
        edge::workload_entry::rows(),
        sidecar::listeners::rows(),
        sidecar::patches::rows(),
        security::peer::rows(),
        security::request::rows(),
        policy::rows(),
        old::policy::rows(),
        old::mesh_policy::rows(),
        old::role::rows(),
        old::binding::rows(),
        old::cluster_config::rows(),
        old::api::rows(),
        old::api_binding::rows(),
        old::quota_binding::rows(),
        old::quota::rows(),
        mesh::rows(),
    ];
    let rows = all.iter().flatten();
    // A mesh configuration is no object.
    let rows = rows.filter(|row| row.kind != "MeshConfig" && row.spec.len() <= MAX_SPEC_BYTES);
    let text: String = rows.map(|row| format!("{}\n", row.json())).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rows.jsonl");
    if std::env::var_os("GUDGEON_WRITE_ROWS").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let file = include_str!("../../../tests/rows.jsonl");
    assert!(
        file == text,
        "{path} is old: run this with GUDGEON_WRITE_ROWS=1"
    );
}
