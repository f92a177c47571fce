//! The real Envoy reads everything that is made, each proxy's resources in one bootstrap: what it refuses, no proxy would
//! take from a stream either.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::too_many_lines,
    reason = "a test may panic, and starts Envoy"
)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use prost::Message;
use xds::node::Dns;
use xds::snapshot::Snapshot;
use xds::view::{Type, View};

use self::support::bootstrap::bootstrap;

fn envoy() -> PathBuf {
    let path = std::env::var_os("PINTLE_ENVOY").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/envoy/envoy-1.40.0"),
        PathBuf::from,
    );
    assert!(
        path.exists(),
        "{} is missing: run build/envoy first",
        path.display()
    );
    path
}

/// A certificate that signs itself, under the names that a mesh uses.
fn certificates(directory: &Path) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=test",
            "-keyout",
            "key.pem",
            "-out",
            "cert-chain.pem",
        ])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let root = directory.join("root-cert.pem");
    std::fs::copy(directory.join("cert-chain.pem"), root).unwrap();
}

/// How a cluster of names is refreshed, for Envoys that do not say that they know the type of cluster that says it today.
fn is_known(line: &str) -> bool {
    let names = ["Cluster.dns_refresh_rate'", "Cluster.respect_dns_ttl'"];
    line.contains("Deprecated field") && names.iter().any(|name| line.contains(name))
}

#[test]
fn envoy_takes_what_every_kind_of_proxy_is_given() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let envoy = envoy();
    let mut failed = Vec::new();
    let path = directory.path().to_str().unwrap();
    let rows = support::rows(path).into_iter();
    for row in rows.chain([support::patched(path)]) {
        let snapshot = Snapshot::new(row.world, support::settings());
        for dns in [Dns::ClusterType, Dns::Fields] {
            let mut node = (*row.node).clone();
            node.dns = dns;
            let view = snapshot.view(&Arc::new(node));
            let path = directory.path().join(format!("{}.pb", row.name));
            std::fs::write(&path, bootstrap(&*view).encode_to_vec()).unwrap();
            let run = Command::new(&envoy)
                .args([
                    "--mode",
                    "validate",
                    "--log-level",
                    "warning",
                    "--config-path",
                ])
                .arg(&path)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            println!("{}: {} clusters", row.name, view.all(Type::Cluster).len());
            let is_known = |line: &&str| dns == Dns::Fields && is_known(line);
            let complaints: Vec<_> = said.lines().filter(|line| !is_known(line)).collect();
            if !run.status.success() || !complaints.is_empty() {
                failed.push(format!("{}, {dns:?}: {}", row.name, complaints.join("\n")));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Whether Envoy takes all of a proxy's resources; else why not.
fn takes(envoy: &Path, file: &Path, view: &dyn View) -> Result<(), String> {
    std::fs::write(file, bootstrap(view).encode_to_vec()).unwrap();
    let run = Command::new(envoy)
        .args([
            "--mode",
            "validate",
            "--log-level",
            "warning",
            "--config-path",
        ])
        .arg(file)
        .output()
        .unwrap();
    if run.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&run.stderr).into_owned())
}

/// One rule that Envoy refuses takes the routes of all services from every proxy that sees it: what it would refuse is refused
/// by the rules, or is made of nothing.
#[test]
fn envoy_takes_whatever_the_rules_let_through() {
    let directory = tempfile::tempdir().unwrap();
    certificates(directory.path());
    let certificates = directory.path().to_str().unwrap();
    let envoy = envoy();
    let file = directory.path().join("rules.pb");
    let mut wrong = Vec::new();
    for (kind, spec) in support::edges() {
        let Some(row) = support::with_rule(kind, &spec, certificates) else {
            continue;
        };
        let snapshot = Snapshot::new(row.world, support::settings());
        if let Err(why) = takes(&envoy, &file, &*snapshot.view(&row.node)) {
            let spec = &spec[..spec.len().min(300)];
            wrong.push(format!("{kind} {spec}\n  {why}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
