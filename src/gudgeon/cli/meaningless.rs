//! Flags of some versions of the originals that are accepted and ignored, with a warning.

use super::{discovery, galley};

/// Flags of all commands that write a log, and whether they take a value.
const OF_LOGS: [(&str, bool); 13] = [
    ("log_caller", true),
    ("log_callers", false),
    ("log_rotate", true),
    ("log_rotate_max_age", true),
    ("log_rotate_max_backups", true),
    ("log_rotate_max_size", true),
    ("log_stacktrace_level", true),
    ("log_backtrace_at", true),
    ("logtostderr", false),
    ("alsologtostderr", false),
    ("stderrthreshold", true),
    ("vmodule", true),
    ("vklog", true),
];
/// Flags of all commands that lack the ctrlz page, and whether they take a value.
const OF_PAGES: [(&str, bool); 2] = [("ctrlz_port", true), ("ctrlz_address", true)];
const OF_INJECT: [(&str, bool); 6] = [
    // Of installations by an operator, and of clusters whose webhook has the templates.
    ("operatorFileName", true),
    ("webhookConfig", true),
    // Manifests name their namespace.
    ("namespace", true),
    ("debug", false),
    ("verbosity", true),
    ("setVersionString", true),
];
const OF_VALIDATE: [(&str, bool); 7] = [
    // The verdict is the output, and no cluster is queried.
    ("log_as_json", false),
    ("log_output_level", true),
    ("log_target", true),
    ("context", true),
    ("istioNamespace", true),
    ("kubeconfig", true),
    ("referential", false),
];
const OF_PROXY_STATUS: [(&str, bool); 5] = [
    // Discovery is asked by its port, for all proxies.
    ("context", true),
    ("istioNamespace", true),
    ("kubeconfig", true),
    ("namespace", true),
    ("revision", true),
];
const OF_VERSION: [(&str, bool); 6] = [
    // No cluster is queried for the versions of what runs there.
    ("context", true),
    ("istioNamespace", true),
    ("kubeconfig", true),
    ("namespace", true),
    ("remote", false),
    ("revision", true),
];
const OF_ANALYZE: [(&str, bool); 12] = [
    ("as", true),
    // All that is below a directory is read.
    ("color", false),
    ("discovery", false),
    ("ignore-unknown", false),
    ("log_as_json", false),
    ("log_output_level", true),
    ("log_target", true),
    ("recursive", false),
    ("remote-contexts", true),
    ("revision", true),
    ("timeout", true),
    ("verbose", false),
];

/// Flags that discovery ignores and the webhooks use.
const OF_WEBHOOKS: [&str; 3] = ["tlsCertFile", "tlsKeyFile", "caCertFile"];

/// Returns the warning about an ignored flag. Files of certificates have another name here.
pub(super) fn warning(name: &str) -> String {
    match OF_WEBHOOKS.contains(&name) {
        true => format!(
            "ignoring --{name}: certificates are those in the directory that PILOT_CERT_DIR names"
        ),
        false => format!("ignoring --{name}: it has no meaning here"),
    }
}

/// Iterates over the flags that discovery or galley ignores, and that no role uses: each once.
pub(super) fn of_all() -> impl Iterator<Item = &'static (&'static str, bool)> {
    let of_discovery = &discovery::WITHOUT_MEANING;
    let of_galley = galley::WITHOUT_MEANING.iter();
    let of_galley = of_galley.filter(|flag| !of_discovery.contains(flag));
    let all = of_discovery.iter().chain(of_galley);
    all.filter(|(name, _)| !OF_WEBHOOKS.contains(name))
}

/// Iterates over the ignored flags of a command, each with true if it takes a value.
pub(super) fn of(
    command: &str,
    has_log: bool,
) -> impl Iterator<Item = (&'static str, bool)> + use<> {
    let own: &[(&str, bool)] = match command {
        "discovery" => &discovery::WITHOUT_MEANING,
        "galley" => &galley::WITHOUT_MEANING,
        "inject" | "kube-inject" => &OF_INJECT,
        "analyze" => &OF_ANALYZE,
        "validate" => &OF_VALIDATE,
        "version" => &OF_VERSION,
        "proxy-status" => &OF_PROXY_STATUS,
        _ => &[],
    };
    let is_all = command == "all";
    let logs = has_log || matches!(command, "analyze" | "validate");
    let pages = logs && command != "galley";
    let all = |wanted: bool, flags: &'static [(&str, bool)]| if wanted { flags } else { &[] };
    let logs = all(logs, &OF_LOGS).iter();
    let pages = all(pages, &OF_PAGES).iter();
    // `all` has no list of its own.
    let roles = of_all().filter(move |_| is_all);
    logs.chain(pages).chain(own).chain(roles).copied()
}

/// The letter that the original had for it, where no other flag of the command has it.
pub(super) fn short(name: &str) -> Option<char> {
    match name {
        "namespace" => Some('n'),
        "istioNamespace" => Some('i'),
        "config" | "kubeconfig" => Some('c'),
        "referential" => Some('x'),
        "discovery" => Some('d'),
        "recursive" => Some('R'),
        "verbose" => Some('v'),
        _ => None,
    }
}
