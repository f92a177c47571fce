//! `build/kubernetes/crds.yaml`: definitions of the kinds that are read, made from the table of kinds.
//!
//! `GUDGEON_WRITE_CRDS=1 cargo test -p gudgeon-api crds` writes the file anew after a change of the table.

use std::fmt::Write as _;

use super::{Effect, KINDS, Kind};

const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../build/kubernetes/crds.yaml"
);

const HEAD: &str = "# The kinds of rules that gudgeon reads in this release, for a cluster that has none of Istio's.
#
#   kubectl apply -f build/kubernetes/crds.yaml
#
# If Istio's own definitions are installed, keep them: gudgeon reads those, too. This file has no kinds without effect in this release, so
# kubectl refuses objects that gudgeon would not enforce.
#
# The schemas describe no fields: galley's webhook and `gudgeon validate` check them, and report each error with its line. A test
# generates this file from src/api/config/kinds.rs, and says how.
";

/// Returns the short names that users of Istio type, by kind.
fn short(kind: &str) -> &'static [&'static str] {
    match kind {
        "VirtualService" => &["vs"],
        "DestinationRule" => &["dr"],
        "Gateway" => &["gw"],
        "ServiceEntry" => &["se"],
        "WorkloadEntry" => &["we"],
        "PeerAuthentication" => &["pa"],
        "RequestAuthentication" => &["ra"],
        "AuthorizationPolicy" => &["ap"],
        _ => &[],
    }
}

fn is_read(kind: &&Kind) -> bool {
    matches!(kind.effect, Effect::Enforced { .. } | Effect::Read) && !kind.versions.is_empty()
}

fn definition(kind: &Kind) -> String {
    let Kind {
        group,
        kind: name,
        plural,
        ..
    } = kind;
    let scope = if kind.cluster {
        "Cluster"
    } else {
        "Namespaced"
    };
    let singular = name.to_lowercase();
    let (first, _) = group.split_once('.').unwrap();
    let mut out = format!(
        "---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {plural}.{group}
spec:
  group: {group}
  scope: {scope}
  names:
    kind: {name}
    listKind: {name}List
    plural: {plural}
    singular: {singular}
    shortNames: [{}]
    categories: [istio-io, {first}-istio-io]
  versions:
",
        short(name).join(", ")
    );
    let newest = kind.versions.last();
    for version in kind.versions {
        let storage = newest == Some(version);
        write!(
            out,
            "    - name: {version}
      served: true
      storage: {storage}
      subresources: {{status: {{}}}}
      additionalPrinterColumns:
        - {{name: Age, type: date, jsonPath: .metadata.creationTimestamp}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
            status: {{type: object, x-kubernetes-preserve-unknown-fields: true}}
"
        )
        .unwrap();
    }
    out
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test compares a file of the repository"
)]
#[test]
fn the_file_has_the_kinds_that_are_read() {
    let read: Vec<_> = KINDS.iter().filter(is_read).collect();
    assert!(read.iter().any(|kind| kind.kind == "ServiceEntry"));
    let mut made = HEAD.to_owned();
    for kind in read {
        made.push_str(&definition(kind));
    }
    if std::env::var_os("GUDGEON_WRITE_CRDS").is_some() {
        std::fs::write(FILE, &made).unwrap();
    }
    let written = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        written == made,
        "build/kubernetes/crds.yaml is not what the table of kinds says: GUDGEON_WRITE_CRDS=1 writes it"
    );
}
