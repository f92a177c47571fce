//! The rules of the crates of the control plane, read off their files and their dependencies: who knows whom, what is
//! pure, how long a file may be.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test may panic, starts cargo and reads files"
)]

#[path = "../../../tests/homonyms.rs"]
mod homonyms;
#[path = "../../../tests/imports.rs"]
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use imports::Edges;

/// Folders under `src`, each with those of the others that it may know.
const CRATES: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("inject", &["gudgeon-api"]),
    ("sources", &["gudgeon-api"]),
    ("xds", &["gudgeon-api"]),
    ("mcp", &["gudgeon-api"]),
    ("transform", &["gudgeon-api"]),
    ("jsonpath", &[]),
    (
        "gudgeon",
        &[
            "gudgeon-api",
            "gudgeon-inject",
            "gudgeon-mcp",
            "gudgeon-sources",
            "gudgeon-transform",
            "gudgeon-xds",
        ],
    ),
];

/// Rooms of a crate, each with those that it may know: they stand above it, so that there is no circle.
type Rooms = &'static [(&'static str, &'static [&'static str])];

const ROOMS: &[(&str, Rooms)] = &[
    (
        "api",
        &[
            ("backoff", &[]),
            ("count", &[]),
            ("debounce", &[]),
            ("duration", &[]),
            ("did_you_mean", &[]),
            ("proto_json", &[]),
            ("proxy_ports", &[]),
            ("log_repeats", &[]),
            ("redact", &[]),
            ("schema", &[]),
            ("security", &[]),
            ("size", &[]),
            ("text", &[]),
            ("url", &[]),
            ("version", &[]),
            ("well_known", &[]),
            ("finding", &["text", "url"]),
            ("yaml", &["size", "text"]),
            ("model", &["security"]),
            ("names", &[]),
            ("overlay", &["schema"]),
            ("timestamp", &["duration"]),
            ("kubernetes", &["text", "timestamp"]),
            ("wire", &["duration", "proto_json", "schema", "timestamp"]),
            (
                "envoy",
                &[
                    "duration",
                    "finding",
                    "did_you_mean",
                    "proto_json",
                    "timestamp",
                    "well_known",
                    "wire",
                ],
            ),
            (
                "config",
                &[
                    "count",
                    "duration",
                    "envoy",
                    "finding",
                    "model",
                    "names",
                    "did_you_mean",
                    "proto_json",
                    "proxy_ports",
                    "schema",
                    "security",
                    "size",
                    "text",
                    "timestamp",
                    "well_known",
                    "wire",
                    "yaml",
                ],
            ),
            ("read", &["config", "finding", "schema", "wire", "yaml"]),
            (
                "networking",
                &["config", "finding", "model", "read", "schema", "size"],
            ),
            (
                "mesh",
                &[
                    "config", "finding", "model", "names", "overlay", "read", "schema", "yaml",
                ],
            ),
        ],
    ),
    (
        "inject",
        &[
            ("agent_probes", &[]),
            ("ids", &[]),
            ("json_eq", &[]),
            ("operation", &[]),
            ("output_error", &[]),
            ("pod", &[]),
            ("quantity", &[]),
            ("schema", &[]),
            ("value", &[]),
            ("yaml", &[]),
            ("admission_plugins", &["pod"]),
            ("interface", &["ids"]),
            ("selector", &["yaml"]),
            ("status", &["pod"]),
            ("template_names", &["pod"]),
            ("warnings", &["pod", "schema"]),
            ("protected_containers", &["pod", "warnings"]),
            ("yaml_safe", &["interface"]),
            ("concurrency", &["pod", "quantity"]),
            ("decision", &["pod", "selector"]),
            ("merge", &["output_error", "pod", "schema"]),
            ("native_sidecar", &["pod", "status"]),
            ("output_types", &["schema", "yaml"]),
            ("text_slots", &["output_types"]),
            ("render_cache", &["text_slots", "output_types"]),
            ("json_patch", &["json_eq", "operation", "pod"]),
            ("data", &["interface", "pod", "schema", "value"]),
            ("labels", &["data", "pod", "warnings"]),
            ("template", &["data", "pod", "value", "yaml", "yaml_safe"]),
            ("template_set", &["render_cache", "template"]),
            ("file", &["decision", "selector", "template", "yaml"]),
            (
                "probes",
                &["agent_probes", "file", "pod", "status", "warnings"],
            ),
            ("release", &["file", "labels", "pod"]),
            (
                "layer",
                &[
                    "merge",
                    "native_sidecar",
                    "output_error",
                    "output_types",
                    "pod",
                    "release",
                    "schema",
                    "yaml",
                ],
            ),
            (
                "overrides",
                &[
                    "merge",
                    "pod",
                    "protected_containers",
                    "schema",
                    "status",
                    "output_types",
                    "warnings",
                ],
            ),
            (
                "user_volumes",
                &[
                    "output_error",
                    "pod",
                    "schema",
                    "output_types",
                    "yaml",
                    "yaml_safe",
                ],
            ),
            (
                "annotations",
                &["pod", "quantity", "user_volumes", "yaml_safe"],
            ),
            ("metrics", &["annotations", "pod", "status"]),
            (
                "builtin",
                &["annotations", "template_set", "file", "interface", "yaml"],
            ),
            (
                "reinject",
                &[
                    "admission_plugins",
                    "metrics",
                    "pod",
                    "probes",
                    "quantity",
                    "protected_containers",
                    "schema",
                    "status",
                ],
            ),
            (
                "fragment",
                &[
                    "annotations",
                    "merge",
                    "output_error",
                    "pod",
                    "probes",
                    "quantity",
                    "release",
                    "render_cache",
                    "schema",
                    "output_types",
                    "yaml",
                ],
            ),
            (
                "replaced_values",
                &[
                    "json_eq",
                    "labels",
                    "metrics",
                    "pod",
                    "reinject",
                    "schema",
                    "status",
                    "output_types",
                    "yaml_safe",
                ],
            ),
            (
                "variables",
                &[
                    "annotations",
                    "fragment",
                    "pod",
                    "release",
                    "status",
                    "warnings",
                ],
            ),
            (
                "uninject",
                &[
                    "fragment",
                    "metrics",
                    "output_types",
                    "overrides",
                    "pod",
                    "probes",
                    "reinject",
                    "replaced_values",
                    "schema",
                    "status",
                    "template_names",
                ],
            ),
            (
                "config",
                &[
                    "annotations",
                    "builtin",
                    "template_set",
                    "data",
                    "decision",
                    "file",
                    "fragment",
                    "interface",
                    "release",
                    "render_cache",
                    "template",
                    "value",
                    "yaml",
                    "yaml_safe",
                ],
            ),
            ("describe", &["config", "template"]),
            (
                "template_data",
                &[
                    "annotations",
                    "concurrency",
                    "config",
                    "data",
                    "interface",
                    "pod",
                    "schema",
                    "template",
                    "user_volumes",
                ],
            ),
            (
                "injection",
                &[
                    "annotations",
                    "config",
                    "data",
                    "fragment",
                    "interface",
                    "json_patch",
                    "metrics",
                    "native_sidecar",
                    "output_error",
                    "output_types",
                    "pod",
                    "reinject",
                    "render_cache",
                    "replaced_values",
                    "status",
                    "template",
                    "template_data",
                    "user_volumes",
                    "variables",
                    "warnings",
                    "yaml",
                    "yaml_safe",
                ],
            ),
            (
                "overlay",
                &[
                    "annotations",
                    "data",
                    "injection",
                    "fragment",
                    "interface",
                    "labels",
                    "layer",
                    "merge",
                    "metrics",
                    "native_sidecar",
                    "overrides",
                    "pod",
                    "probes",
                    "protected_containers",
                    "reinject",
                    "release",
                    "replaced_values",
                    "schema",
                    "status",
                    "template_names",
                    "template_set",
                    "uninject",
                    "warnings",
                ],
            ),
            (
                "dry_run",
                &[
                    "config",
                    "data",
                    "injection",
                    "fragment",
                    "interface",
                    "layer",
                    "output_error",
                    "release",
                    "template",
                    "template_data",
                    "template_set",
                    "warnings",
                    "output_types",
                    "yaml",
                ],
            ),
            (
                "engine",
                &[
                    "annotations",
                    "config",
                    "data",
                    "decision",
                    "fragment",
                    "injection",
                    "interface",
                    "labels",
                    "metrics",
                    "native_sidecar",
                    "output_types",
                    "overlay",
                    "probes",
                    "reinject",
                    "release",
                    "render_cache",
                    "replaced_values",
                    "schema",
                    "status",
                    "template",
                    "uninject",
                    "warnings",
                ],
            ),
        ],
    ),
    (
        "transform",
        &[
            ("index", &[]),
            ("read", &[]),
            ("rounds", &[]),
            ("ingress", &["index", "rounds"]),
            ("services", &["index", "read"]),
        ],
    ),
    (
        "mcp",
        &[
            ("access", &[]),
            ("collections", &[]),
            ("limits", &[]),
            ("session", &[]),
            ("version", &[]),
            ("debounce", &["collections"]),
            ("snapshot", &["collections", "version"]),
            ("publish", &["collections", "debounce", "snapshot"]),
            ("sink", &["limits", "snapshot", "version"]),
            ("source", &["collections", "limits", "snapshot", "version"]),
            ("objects", &["sink", "snapshot"]),
        ],
    ),
    (
        "xds",
        &[
            ("cluster_names", &[]),
            ("settings", &[]),
            ("node", &[]),
            ("reason", &[]),
            ("resource_names", &[]),
            ("view", &["resource_names"]),
            ("common", &["cluster_names", "node", "settings"]),
            ("finish", &["common", "view"]),
            ("scope", &["common", "settings"]),
            (
                "rules",
                &["cluster_names", "common", "finish", "node", "scope", "view"],
            ),
            (
                "resources",
                &[
                    "common", "finish", "node", "rules", "scope", "settings", "view",
                ],
            ),
            (
                "snapshot",
                &[
                    "cluster_names",
                    "common",
                    "finish",
                    "node",
                    "resource_names",
                    "resources",
                    "rules",
                    "scope",
                    "settings",
                    "view",
                ],
            ),
            ("debounce", &["reason"]),
            ("stream", &["reason", "resource_names", "view"]),
        ],
    ),
    (
        "sources",
        &[
            ("offload", &[]),
            ("error_text", &[]),
            ("interim_limit", &[]),
            ("panics", &[]),
            ("disk", &[]),
            ("kind", &[]),
            ("catalogue", &["kind"]),
            ("contribution", &["kind"]),
            ("aggregate", &["contribution"]),
            (
                "kubernetes",
                &[
                    "catalogue",
                    "contribution",
                    "disk",
                    "error_text",
                    "interim_limit",
                    "kind",
                    "offload",
                    "panics",
                ],
            ),
            ("reconcile", &["catalogue", "kind", "kubernetes", "panics"]),
            (
                "consul",
                &["contribution", "error_text", "interim_limit", "offload"],
            ),
            (
                "directory",
                &["catalogue", "contribution", "disk", "kind", "kubernetes"],
            ),
            (
                "memory",
                &[
                    "catalogue",
                    "contribution",
                    "directory",
                    "kind",
                    "kubernetes",
                ],
            ),
        ],
    ),
    (
        "gudgeon",
        &[
            ("file_writer", &[]),
            ("clock", &[]),
            ("descriptors", &[]),
            ("exit", &[]),
            ("html", &[]),
            ("log_rate_limiter", &[]),
            ("cli", &["exit"]),
            ("file", &["file_writer"]),
            ("secrets", &[]),
            ("exposition", &["cli"]),
            ("log", &["cli"]),
            ("parameters", &["cli"]),
            ("named_files", &["file"]),
            (
                "analyze",
                &["cli", "exit", "file", "named_files", "secrets"],
            ),
            (
                "validate",
                &["analyze", "cli", "exit", "named_files", "secrets"],
            ),
            ("serve", &["cli", "descriptors", "exit"]),
            ("file_states", &["exposition", "html"]),
            ("config_file", &["exit", "file", "file_states", "log"]),
            ("admission", &["serve"]),
            ("tls", &["file", "html", "log", "config_file"]),
            ("process", &["exit", "log", "tls"]),
            (
                "shared",
                &["cli", "exit", "exposition", "process", "secrets", "serve"],
            ),
            ("webhook_configuration", &["shared", "tls"]),
            ("watch", &["clock", "config_file", "process"]),
            (
                "grpc",
                &[
                    "clock",
                    "descriptors",
                    "file",
                    "file_states",
                    "log_rate_limiter",
                    "serve",
                    "tls",
                    "watch",
                ],
            ),
            (
                "injector",
                &[
                    "admission",
                    "file_writer",
                    "cli",
                    "exit",
                    "exposition",
                    "file",
                    "file_states",
                    "html",
                    "webhook_configuration",
                    "log",
                    "parameters",
                    "process",
                    "serve",
                    "shared",
                    "tls",
                    "config_file",
                    "watch",
                ],
            ),
            (
                "manifest",
                &["admission", "cli", "exit", "file", "injector", "parameters"],
            ),
            (
                "mcp",
                &[
                    "cli",
                    "clock",
                    "exit",
                    "file",
                    "file_states",
                    "grpc",
                    "secrets",
                    "log_rate_limiter",
                    "serve",
                    "tls",
                    "watch",
                ],
            ),
            (
                "discovery",
                &[
                    "cli",
                    "clock",
                    "config_file",
                    "exit",
                    "exposition",
                    "file_states",
                    "grpc",
                    "html",
                    "log",
                    "mcp",
                    "process",
                    "secrets",
                    "log_rate_limiter",
                    "serve",
                    "shared",
                    "tls",
                    "watch",
                ],
            ),
            (
                "galley",
                &[
                    "admission",
                    "file_writer",
                    "cli",
                    "clock",
                    "exit",
                    "exposition",
                    "file",
                    "file_states",
                    "grpc",
                    "html",
                    "webhook_configuration",
                    "log",
                    "mcp",
                    "named_files",
                    "process",
                    "secrets",
                    "log_rate_limiter",
                    "serve",
                    "shared",
                    "tls",
                    "config_file",
                    "watch",
                ],
            ),
            (
                "all",
                &[
                    "cli",
                    "discovery",
                    "exit",
                    "exposition",
                    "galley",
                    "html",
                    "injector",
                    "log",
                    "serve",
                    "shared",
                    "tls",
                ],
            ),
        ],
    ),
];

const PURE: [&str; 5] = ["api", "inject", "mcp", "transform", "xds"];

/// Messages with gRPC clients beside them, which no feature leaves out: what is below it is not asked for by us. That the
/// clients are not used is read off the sources.
const MESSAGES: &str = "envoy-types";

/// A runtime, a socket, a process, entropy or a clock: none of them is below a pure crate.
const IMPURE: [&str; 24] = [
    "async-std",
    "fastrand",
    "futures-executor",
    "getrandom",
    "h2",
    "hyper",
    "iana-time-zone",
    "inotify",
    "jiff",
    "kube",
    "libc",
    "mio",
    "nix",
    "notify",
    "rand",
    "ring",
    "rustix",
    "rustls",
    "signal-hook",
    "smol",
    "socket2",
    "time",
    "tokio",
    "tonic",
];

/// Features of dependencies that are pure without them.
const IMPURE_FEATURES: [&str; 3] = [
    "chrono feature \"clock\"",
    "chrono feature \"now\"",
    "uuid feature \"v4\"",
];

/// The same in the sources. Parsing an address is no socket.
const IMPURE_WORDS: [&str; 19] = [
    "Instant::now",
    "SystemTime",
    "TcpListener",
    "TcpStream",
    "ToSocketAddrs",
    "UdpSocket",
    "UnixListener",
    "UnixStream",
    "async fn",
    "env::args",
    "env::var",
    "process::Command",
    "std::fs",
    "std::thread",
    "thread::",
    "stdin()",
    "stdout()",
    "tokio",
    "tonic",
];

/// A lint to think by, and no reason to cut one type into two files.
const MAX_FILE_LINES: usize = 400;

/// Files of one concern that are longer, and how long they may be: rebuilt with the rooms of `xds`, `sources` and the streams.
const LONGER_FILES: &[(&str, usize)] = &[
    ("api/envoy/descriptor_pool.rs", 420),
    ("api/envoy/encode.rs", 459),
    ("gudgeon/serve/request_limit.rs", 570),
    ("inject/annotations.rs", 440),
    ("inject/probes.rs", 495),
    ("xds/common/service_ports.rs", 490),
    ("xds/snapshot/mod.rs", 651),
    ("xds/snapshot/proxy.rs", 585),
    ("xds/resources/listeners/gateway.rs", 470),
    ("xds/resources/listeners/outbound.rs", 520),
    ("xds/rules/gateway.rs", 515),
    ("xds/scope/visibility.rs", 605),
    ("xds/resources/listeners/inbound.rs", 540),
    ("xds/stream/answer.rs", 478),
    ("xds/scope.rs", 450),
    ("xds/scope/destination_rule_idle_policies.rs", 470),
    ("xds/scope/envoy_filters.rs", 490),
    ("sources/disk.rs", 430),
    ("sources/kubernetes/watcher.rs", 520),
    ("sources/kubernetes/config/mod.rs", 490),
    ("sources/consul/schedule.rs", 420),
    ("sources/kubernetes/index/source.rs", 447),
    ("gudgeon/grpc/connections.rs", 452),
    ("gudgeon/discovery/sources/mcp.rs", 455),
    ("gudgeon/discovery/debug/page.rs", 415),
];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(name)
}

/// All Rust files of a crate, by their path below it.
fn sources(name: &str) -> Vec<(PathBuf, String)> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root).unwrap().to_path_buf(), text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&folder(name), &folder(name), &mut found);
    assert!(!found.is_empty(), "the sources of {name} are elsewhere");
    found
}

/// Without the items that are compiled for tests alone: modules, functions and implementations at the edge of the file.
fn code(text: &str) -> String {
    let mut compiled = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            compiled.push_str(line);
            compiled.push('\n');
            continue;
        }
        // An item without a body is one line; a body, and the arguments of an attribute, end at the edge.
        let is_last = |line: &str| !line.starts_with(' ') && line.ends_with([';', '}']);
        lines.find(|line| is_last(line));
    }
    compiled
}

/// Tests and what runs while building are no part of the library.
fn is_library(path: &Path) -> bool {
    let beside = path
        .iter()
        .any(|part| part == "tests" || part == "build" || part == "examples" || part == "benches");
    let named = path
        .file_name()
        .is_some_and(|name| name == "tests.rs" || name == "build.rs");
    !beside && !named
}

fn package(name: &str) -> String {
    match name {
        "gudgeon" => name.to_owned(),
        // It takes the place of a crate.
        "jsonpath" => "jsonpath-rust".to_owned(),
        name => format!("gudgeon-{name}"),
    }
}

/// Returns the packages that a crate is linked with, itself included, one a line.
fn tree(name: &str, edges: &str) -> String {
    let package = package(name);
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "-p",
            &package,
            "-e",
            edges,
            "--prefix",
            "none",
            "--no-dedupe",
        ])
        .args(
            (name == "xds")
                .then_some(["--prune", MESSAGES])
                .into_iter()
                .flatten(),
        )
        .args(["--target", "x86_64-unknown-linux-musl"])
        .current_dir(folder(name))
        .output()
        .unwrap();
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    String::from_utf8(tree.stdout).unwrap()
}

fn linked(name: &str) -> BTreeSet<String> {
    tree(name, "normal,no-proc-macro")
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn each_crate_knows_those_below_it_only() {
    let members: BTreeSet<_> = [
        "gudgeon",
        "gudgeon-api",
        "gudgeon-inject",
        "gudgeon-mcp",
        "gudgeon-sources",
        "gudgeon-transform",
        "gudgeon-xds",
        "pintle",
        "pintle-probe",
    ]
    .map(str::to_owned)
    .into();
    for (name, known) in CRATES {
        let own = package(name);
        let linked = linked(name);
        let others: BTreeSet<_> = linked
            .intersection(&members)
            .filter(|found| **found != own)
            .cloned()
            .collect();
        let allowed: BTreeSet<_> = known.iter().map(|name| (*name).to_owned()).collect();
        assert!(others.is_subset(&allowed), "{name} knows {others:?}");
    }
}

#[test]
fn below_a_pure_crate_is_no_runtime_no_socket_and_no_clock() {
    for name in PURE {
        let found: Vec<_> = linked(name)
            .into_iter()
            .filter(|linked| IMPURE.contains(&linked.as_str()))
            .collect();
        assert!(found.is_empty(), "below {name}: {found:?}");
        let features = tree(name, "normal,features");
        for feature in IMPURE_FEATURES {
            assert!(!features.contains(feature), "below {name}: {feature}");
        }
    }
    // Or the lists say nothing: one of them must be found where it belongs.
    assert!(tree("api", "normal,features").contains("prost feature \"std\""));
    assert!(linked("api").contains("prost"));
}

#[test]
fn a_pure_crate_asks_for_nothing_but_its_arguments() {
    for name in PURE {
        for (path, text) in sources(name).iter().filter(|(path, _)| is_library(path)) {
            for (at, line) in code(text).lines().enumerate() {
                if line.trim_start().starts_with("//") {
                    continue;
                }
                for word in IMPURE_WORDS {
                    assert!(
                        !line.contains(word),
                        "{word} in {name}/{}:{}",
                        path.display(),
                        at + 1
                    );
                }
            }
        }
    }
}

#[test]
fn unsafe_is_forbidden() {
    for (name, _) in CRATES {
        for (path, text) in sources(name) {
            let is_root = path == Path::new("lib.rs") || path == Path::new("main.rs");
            assert!(
                !is_root || text.contains("#![forbid(unsafe_code)]"),
                "{name}/{}",
                path.display()
            );
        }
    }
}

#[test]
fn files_are_short_and_say_what_they_are() {
    for (name, _) in CRATES {
        for (path, text) in sources(name).iter().filter(|(path, _)| is_library(path)) {
            assert!(text.starts_with("//! "), "{name}/{}", path.display());
            let lines = code(text).lines().count();
            let file = format!("{name}/{}", path.display());
            let longer = LONGER_FILES.iter().find(|(known, _)| *known == file);
            let max = longer.map_or(MAX_FILE_LINES, |(_, max)| *max);
            assert!(lines <= max, "{file} has {lines} lines");
            // What has become short again leaves the list.
            assert!(
                longer.is_none() || lines > MAX_FILE_LINES,
                "{file} is no longer than others"
            );
        }
    }
}

/// The names that two or more types of a crate's production code have.
fn homonyms<'a>(files: impl Iterator<Item = (&'a Path, &'a str)>) -> BTreeSet<String> {
    let files = files.filter(|(path, _)| is_library(path));
    homonyms::homonyms(files.map(|(_, text)| code(text)))
}

#[test]
fn no_two_types_of_a_crate_have_one_name() {
    for (name, _) in CRATES {
        let files = sources(name);
        let found = homonyms(files.iter().map(|(path, text)| (&**path, &**text)));
        assert!(found.is_empty(), "{name}: types of one name: {found:?}");
    }
}

#[test]
fn homonyms_are_seen() {
    let files = [
        (
            "a.rs",
            "pub struct One {\n    type: u8,\n}\nenum Two {}\ntype Three<T> = Vec<T>;\n",
        ),
        (
            "b/c.rs",
            "pub(crate) struct One;\npub(in crate::b) trait Three {\n    type Four;\n}\n    pub(super) struct Two;\nimpl Two {}\nstructure Two\n",
        ),
        ("b/tests.rs", "struct Two;\n"),
        (
            "d.rs",
            "type Four = u8;\nfn f() {}\n#[cfg(test)]\nmod tests {\nstruct Two;\n}\n",
        ),
    ];
    let found = homonyms(files.iter().map(|(path, text)| (Path::new(path), *text)));
    assert_eq!(found, ["One", "Three", "Two"].map(str::to_owned).into());
}

/// The edges between the modules of each folder of a crate, by the folder's path.
fn edges_by_folder(name: &str) -> BTreeMap<String, Edges> {
    imports::siblings(&sources(name))
}

#[test]
fn rooms_know_those_above_them_and_are_on_the_map() {
    for (name, rooms) in ROOMS {
        for (at, (room, known)) in rooms.iter().enumerate() {
            let above: Vec<_> = rooms[..at].iter().map(|(room, _)| *room).collect();
            assert!(
                known.iter().all(|one| above.contains(one)),
                "{name}: {room} is in a circle"
            );
        }
        let lib = fs::read_to_string(folder(name).join("lib.rs")).unwrap();
        for (room, _) in *rooms {
            assert!(
                lib.contains(&format!("`{room}`")),
                "{name}: {room} is not on the map"
            );
        }
        if let Some((_, map)) = lib.split_once("ach room uses only rooms above it") {
            let place = |room: &str| map.find(&format!("`{room}`"));
            let pairs = rooms
                .iter()
                .flat_map(|(room, known)| known.iter().map(move |other| (*room, *other)));
            let below: Vec<_> = pairs
                .filter(|(room, other)| place(other) > place(room))
                .collect();
            assert!(
                below.is_empty(),
                "{name}: the map has the second of each below the first: {below:?}"
            );
        }
        let found = imports::top_modules(&sources(name));
        let listed: BTreeSet<String> = rooms.iter().map(|(room, _)| (*room).to_owned()).collect();
        assert_eq!(found, listed, "{name}");
        let edges = &edges_by_folder(name)[""];
        let listed = |room: &str, other: &str| {
            rooms
                .iter()
                .any(|(one, known)| *one == room && known.contains(&other))
        };
        let more = edges
            .iter()
            .filter(|((room, other), _)| !listed(room, other))
            .map(|((room, other), place)| format!("{room} knows {other} ({place})"));
        let fewer = rooms
            .iter()
            .flat_map(|(room, known)| known.iter().map(move |other| (*room, *other)))
            .filter(|(room, other)| !edges.contains_key(&((*room).into(), (*other).into())))
            .map(|(room, other)| format!("{room} does not know {other}"));
        let wrong: Vec<_> = more.chain(fewer).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
}

/// Each can be read, tested and moved without those above it.
#[test]
fn the_modules_of_a_folder_know_each_other_in_one_direction() {
    for (name, _) in CRATES {
        for (folder, edges) in edges_by_folder(name) {
            let pairs = edges.keys().map(|(from, to)| (&**from, &**to));
            let circle = imports::circle(pairs);
            let next = circle.iter().cycle().skip(1);
            let places = circle.iter().zip(next).map(|(from, to)| {
                let edge = ((*from).to_owned(), (*to).to_owned());
                format!("{from} knows {to} ({})", edges[&edge])
            });
            let places: Vec<_> = places.collect();
            assert!(circle.is_empty(), "{name}/{folder}: {}", places.join(", "));
        }
    }
}

/// A step of a flow: its crate, and the files of its module there.
struct Step {
    krate: String,
    module: String,
    text: String,
}

/// Finds `path`, a module of gudgeon, or another crate and its module.
fn step(path: &str) -> Option<Step> {
    let (first, rest) = path.split_once("::").unwrap_or((path, ""));
    let is_crate = CRATES.iter().any(|(name, _)| *name == first);
    let of_others = is_crate.then_some((first, rest));
    let places = [("gudgeon", path)].into_iter().chain(of_others);
    places.into_iter().find_map(|(krate, module)| {
        let place: PathBuf = module.split("::").collect();
        let files = sources(krate).into_iter();
        let own = files.filter(|(file, _)| {
            is_library(file) && (file.with_extension("") == place || file.starts_with(&place))
        });
        let texts: Vec<_> = own.map(|(_, text)| code(&text)).collect();
        (!texts.is_empty()).then(|| Step {
            krate: krate.to_owned(),
            module: module.to_owned(),
            text: texts.concat(),
        })
    })
}

/// Returns true if a path in its sources names the other: by its crate, or within one crate by its module.
fn knows(one: &Step, other: &Step) -> bool {
    let module = other.module.rsplit("::").next().unwrap_or_default();
    let name = match one.krate == other.krate {
        true => module,
        false => &*other.krate,
    };
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    let lines = one.text.lines().map(str::trim_start);
    let code: Vec<_> = lines.filter(|line| !line.starts_with("//")).collect();
    // A list of imports names it without a mark beside it.
    let mut of_imports = false;
    code.iter().any(|line| {
        of_imports |= line.starts_with("use ") || line.starts_with("pub use ");
        let named = line.match_indices(name).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + name.len()..]);
            let is_word = !before.ends_with(is_part) && !after.starts_with(is_part);
            is_word && (of_imports || before.ends_with("::") || after.starts_with("::"))
        });
        of_imports &= !line.ends_with(';');
        named
    })
}

/// Chains of paths in marks with arrows between, one chain for each run of them.
fn chains(text: &str) -> Vec<Vec<String>> {
    let mut chains: Vec<Vec<String>> = Vec::new();
    let mut goes_on = false;
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 1 {
            match chains.last_mut().filter(|_| goes_on) {
                Some(chain) => chain.push(part.to_owned()),
                None => chains.push(vec![part.to_owned()]),
            }
        } else {
            goes_on = part.trim() == "→";
        }
    }
    chains
}

/// The flows that `gudgeon`'s map promises, each room beside one that it knows or that knows it.
#[test]
fn flows_lead_through_rooms_that_know_each_other() {
    let lib = fs::read_to_string(folder("gudgeon").join("lib.rs")).unwrap();
    let docs: String = lib
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .skip_while(|line| line.trim() != "# Flows")
        .collect::<Vec<_>>()
        .join("\n");
    let items: Vec<&str> = docs.split("\n ").skip(1).collect();
    let numbered = items
        .iter()
        .filter(|item| item.starts_with(|first: char| first.is_ascii_digit()));
    assert_eq!(numbered.count(), 6, "{docs}");
    let all = chains(&docs);
    assert!(
        all.iter().filter(|chain| chain.len() > 2).count() >= 6,
        "{all:?}"
    );
    for chain in &all {
        let steps: Vec<Step> = chain
            .iter()
            .map(|path| step(path).unwrap_or_else(|| panic!("{path} is no module: {chain:?}")))
            .collect();
        for (pair, names) in steps.windows(2).zip(chain.windows(2)) {
            let [one, other] = pair else { unreachable!() };
            assert!(
                knows(one, other) || knows(other, one),
                "{names:?} do not know each other"
            );
        }
    }
}

#[test]
fn flows_that_are_none_are_seen() {
    let found = chains("1. a: `b` →\n `c::d` → e `f`, `g`");
    assert_eq!(found, [vec!["b", "c::d"], vec!["f"], vec!["g"]]);
    assert!(step("discovery::nowhere").is_none());
    let (xds, mcp) = (step("xds::stream").unwrap(), step("mcp::source").unwrap());
    assert_eq!((&*xds.krate, &*mcp.krate), ("xds", "mcp"));
    assert!(!knows(&xds, &mcp) && !knows(&mcp, &xds));
    assert!(!knows(&step("injector").unwrap(), &step("galley").unwrap()));
}

/// A reader who looks for a word of the field comes to its code by one look.
#[test]
fn the_glossary_leads_to_modules_that_begin_with_its_words() {
    let lib = fs::read_to_string(folder("gudgeon").join("lib.rs")).unwrap();
    let rows = lib
        .lines()
        .skip_while(|line| *line != "//! # Glossary")
        .skip_while(|line| *line != "//! |---|---|")
        .skip(1)
        .map_while(|line| line.strip_prefix("//! | "));
    let rows: Vec<(&str, &str)> = rows.filter_map(|row| row.split_once(" | ")).collect();
    assert!(rows.len() >= 12, "{rows:?}");
    for (words, modules) in rows {
        let paths: Vec<&str> = modules.split('`').skip(1).step_by(2).collect();
        assert!(!paths.is_empty(), "{words} leads nowhere");
        for path in paths {
            let head = head(path).unwrap_or_else(|| panic!("{path} is no module: {words}"));
            assert!(
                words.split(", ").any(|word| has_word(&head, word)),
                "the first lines of {path} have no {words:?}"
            );
        }
    }
    let stream = head("xds::stream::returning").unwrap();
    assert!(has_word(&stream, "clients") && !has_word("a back end", "ACK"));
    assert!(!has_word(&head("sources").unwrap(), "relist"));
}

/// The first lines of the file of a module, without those below it.
fn head(path: &str) -> Option<String> {
    let step = step(path)?;
    let place: PathBuf = step.module.split("::").collect();
    let own = [
        place.with_extension("rs"),
        place.join("mod.rs"),
        place.join("lib.rs"),
    ];
    let (_, text) = sources(&step.krate)
        .into_iter()
        .find(|(file, _)| own.contains(file))?;
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    Some(lines.collect::<Vec<_>>().join(" ").to_lowercase())
}

/// Returns true if a word of the text begins so: `ACK` is in `acknowledged`, and not in `back`.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(&word.to_lowercase())
        .any(|(at, _)| !text[..at].ends_with(is_part_of_name))
}

/// Files of production code in which the name of a kind stands, beyond the kind's own and the tables of kinds, of analyzers and of
/// their codes. A kind's own files, and their folders, begin with its name.
const FILES_THAT_NAME: [(&str, &[&str]); 10] = [
    (
        "AuthorizationPolicy",
        &["xds/scope/policies.rs", "xds/snapshot/security.rs"],
    ),
    (
        "DestinationRule",
        &[
            "gudgeon/analyze/inventory.rs",
            "gudgeon/discovery/sources/credentials.rs",
            "xds/scope.rs",
            "xds/scope/exported.rs",
            "xds/scope/shadowed.rs",
            "xds/scope/visibility.rs",
        ],
    ),
    ("EnvoyFilter", &[]),
    (
        "Gateway",
        &[
            "api/config/rules/parts.rs",
            "gudgeon/analyze/inventory.rs",
            "gudgeon/discovery/hub/ingresses.rs",
            "gudgeon/discovery/sources/credentials.rs",
            "sources/reconcile/validation/webhook_probe.rs",
            "xds/scope.rs",
        ],
    ),
    (
        "PeerAuthentication",
        &["api/model/world.rs", "xds/scope/policies.rs"],
    ),
    (
        "RequestAuthentication",
        &[
            "gudgeon/analyze/claims.rs",
            "xds/scope/policies.rs",
            "xds/snapshot/security.rs",
        ],
    ),
    (
        "ServiceEntry",
        &[
            "api/config/rules/parts.rs",
            "gudgeon/analyze/inventory.rs",
            "sources/aggregate/entries.rs",
        ],
    ),
    (
        "Sidecar",
        &[
            "xds/scope.rs",
            "xds/scope/mesh_rules.rs",
            "xds/scope/visibility.rs",
        ],
    ),
    (
        "VirtualService",
        &[
            "gudgeon/analyze/claims.rs",
            "gudgeon/analyze/destination_rule_idle_policies.rs",
            "gudgeon/discovery/hub/ingresses.rs",
            "gudgeon/discovery/source_facts.rs",
            "xds/resources/listeners/gateway.rs",
            "xds/resources/routes.rs",
            "xds/resources/routes/gateway.rs",
            "xds/scope.rs",
            "xds/scope/destination_rule_idle_policies.rs",
            "xds/scope/exported.rs",
            "xds/scope/gateways.rs",
            "xds/scope/hosts.rs",
            "xds/scope/visibility.rs",
        ],
    ),
    (
        "WorkloadEntry",
        &[
            "gudgeon/analyze/inventory.rs",
            "sources/aggregate/entries.rs",
            "sources/aggregate/selection.rs",
            "sources/aggregate/service_entry.rs",
            "transform/services/service_entry.rs",
        ],
    ),
];

/// `PeerAuthentication` as `peer_authentication`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (at, letter) in name.char_indices() {
        if at > 0 && letter.is_uppercase() {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

/// Without texts for people: a literal of one word may be a kind, a longer one only speaks of it.
fn without_prose(code: &str) -> String {
    // The backslashes first: the one before a closing quotation mark may be the second of two.
    let code = code
        .replace("'\"'", "")
        .replace(r"\\", "")
        .replace("\\\"", "");
    let (mut kept, mut is_literal) = (String::new(), false);
    for part in code.split('"') {
        if !is_literal || part.chars().all(is_part_of_name) {
            kept.push_str(part);
        }
        kept.push('"');
        is_literal = !is_literal;
    }
    kept
}

fn is_part_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Types of which a variant has a kind's name and is none.
const OTHERS_VARIANTS: [&str; 1] = ["PatchContext"];

/// Returns true if code names the kind, and not a variant of another type: `PatchContext::Gateway`.
fn names(text: &str, kind: &str) -> bool {
    let code = code(text);
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code = without_prose(&lines.collect::<Vec<_>>().join("\n"));
    code.match_indices(kind).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + kind.len()..]);
        let owner = before.strip_suffix("::").unwrap_or_default();
        let owner = owner.rsplit(|letter| !is_part_of_name(letter)).next();
        let is_variant = owner.is_some_and(|owner| OTHERS_VARIANTS.contains(&owner));
        let is_word = !before.ends_with(is_part_of_name) && !after.starts_with(is_part_of_name);
        is_word && !is_variant
    })
}

/// A kind costs its own files and a row; each further file that names it is one to remember with the next kind.
#[test]
fn a_kind_is_named_in_its_own_files_and_few_others() {
    let tables = [
        "api/config/kinds.rs",
        "api/config/kinds/earlier.rs",
        "api/model/kinds.rs",
        "gudgeon/analyze/analyzers.rs",
        "gudgeon/analyze/codes.rs",
    ];
    for (kind, expected) in FILES_THAT_NAME {
        let mut others = Vec::new();
        let own = snake(kind);
        for (name, _) in CRATES {
            let all = sources(name);
            for (path, text) in all.iter().filter(|(path, _)| is_library(path)) {
                let file = format!("{name}/{}", path.display());
                let is_own = file.split('/').any(|part| part.starts_with(&own));
                let is_counted =
                    !is_own && !tables.contains(&&*file) && !is_test_module(path, &all);
                if is_counted && names(text, kind) {
                    others.push(file);
                }
            }
        }
        others.sort();
        assert_eq!(others, expected, "{kind}");
    }
}

/// Returns true if a file is a module that its parent declares for tests alone.
fn is_test_module(path: &Path, all: &[(PathBuf, String)]) -> bool {
    let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
        return false;
    };
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    let parents = [
        folder.join("mod.rs"),
        folder.join("lib.rs"),
        folder.with_extension("rs"),
    ];
    let mut parents = all.iter().filter(|(path, _)| parents.contains(path));
    let declared = format!("mod {name};");
    parents.any(|(_, text)| {
        let declares = |text: &str| text.lines().any(|line| line.trim().ends_with(&declared));
        declares(text) && !declares(&code(text))
    })
}

#[test]
fn items_of_tests_are_no_code() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[cfg(test)]\n#[allow(\n    x,\n)]\nmod rows {\n    fn c() {}\n}\n#[cfg(test)]\nimpl A {\n    fn d() {}\n}\nfn e() {}\n";
    assert_eq!(code(text), "fn a() {}\nfn b() {}\nfn e() {}\n");
    assert!(names("let a = Sidecar::NAME;", "Sidecar"));
    assert!(names("[\"Sidecar\", \"a Sidecar\"]", "Sidecar"));
    assert!(names("let a = \"\\\\\"; f(Object::Sidecar(a))", "Sidecar"));
    for other in [
        "// Sidecar\nSidecars",
        "let text = \"no Sidecar \\\"a\\\" is\\n a Sidecar\";",
        "PatchContext::Sidecar",
    ] {
        assert!(!names(other, "Sidecar"), "{other}");
    }
}
