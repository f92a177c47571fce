//! The layout of `--help`: flags in groups, spelled as the program's name has them, with examples.
//!
//! Under `gudgeon` all flags are in kebab case, as those of Kubernetes' own programs; under an original's name they are
//! spelled as its users know them. Both are accepted everywhere.

use clap::builder::Str;
use clap::{Arg, Command};

use super::values::kebab;
use crate::exit;

/// Commands whose flags are shown in groups.
const GROUPED: [&str; 7] = [
    "all",
    "injector",
    "sidecar-injector",
    "discovery",
    "galley",
    "inject",
    "kube-inject",
];

/// Each group's flags, as the originals spell them; clap shows the groups in the order of their first flags.
pub(super) const GROUPS: [(&str, &[&str]); 10] = [
    ("Manifests", &["filename", "output", "emitTemplate"]),
    (
        "Injection",
        &[
            "injectConfig",
            "injectValues",
            "injectConfigFile",
            "valuesFile",
            "revision",
            "nativeSidecars",
        ],
    ),
    (
        "Built-in template",
        &[
            "proxyImage",
            "initImage",
            "discoveryAddress",
            "cni",
            "coreDump",
            "hub",
            "tag",
            "includeIPRanges",
            "excludeIPRanges",
            "includeInboundPorts",
            "excludeInboundPorts",
            "imagePullPolicy",
            "statusPort",
            "readinessInitialDelaySeconds",
            "readinessPeriodSeconds",
            "readinessFailureThreshold",
            "sidecarProxyUID",
            "rewriteAppProbe",
        ],
    ),
    (
        "Mesh",
        &[
            "meshConfig",
            "meshConfigFile",
            "networksConfig",
            "domain",
            "trust-domain",
            "ignoreSecurityPolicies",
            "jwksAllow",
        ],
    ),
    (
        "Sources",
        &[
            "registries",
            "configDir",
            "configPath",
            "consulserverURL",
            "watchConfigFiles",
            "enableServiceDiscovery",
            "enableAnalysis",
        ],
    ),
    (
        "Cluster",
        &[
            "kubeconfig",
            "context",
            "clusterID",
            "namespace",
            "appNamespace",
            "clusterRegistriesNamespace",
            "istioNamespace",
            "injectConfigMapName",
            "meshConfigMapName",
        ],
    ),
    (
        "Webhook",
        &[
            "reconcileWebhookConfig",
            "webhookConfigName",
            "webhookName",
            "webhookService",
            "enable-validation",
            "enable-reconcileWebhookConfiguration",
            "validation-port",
            "validation-webhook-config-file",
            "deployment-namespace",
            "service-name",
            "webhook-name",
            "validation-webhook-name",
            "unregisterValidationWebhook",
        ],
    ),
    (
        "Certificates",
        &[
            "tlsCertFile",
            "tlsKeyFile",
            "caCertFile",
            "validation.tls.clientCertificate",
            "validation.tls.privateKey",
            "validation.tls.caCertificates",
            "selfSigned",
            "selfSignedNames",
            "selfSignedTTL",
            "caOut",
        ],
    ),
    (
        "Configuration over MCP",
        &[
            "enable-server",
            "server-address",
            "server-maxReceivedMessageSize",
            "server-maxConcurrentStreams",
            "insecure",
            "accessListFile",
            "sinkAddress",
            "sinkAuthMode",
            "sinkMeta",
            "sinkServerName",
            "mcpServerAddrs",
            "mcpMaxMsgSize",
            "mcpSyncTimeout",
            "mcpSinkAddr",
        ],
    ),
    (
        "Listeners and health",
        &[
            "port",
            "httpAddr",
            "grpcAddr",
            "secureGrpcAddr",
            "monitoringAddr",
            "monitoringPort",
            "debugAddr",
            "ctrlz_address",
            "ctrlz_port",
            "keepaliveInterval",
            "keepaliveTimeout",
            "keepaliveMaxServerConnectionAge",
            "healthCheckInterval",
            "healthCheckFile",
            "livenessProbePath",
            "livenessProbeInterval",
            "readinessProbePath",
            "readinessProbeInterval",
            "drainDuration",
        ],
    ),
];
/// Flags of every command that writes a log.
const LOG: [&str; 3] = ["log_as_json", "log_output_level", "log_target"];

/// By program and command.
const EXAMPLES: [(&str, &str, &str); 17] = [
    (
        "gudgeon",
        "all",
        "  # In a cluster, with certificates of its own
  gudgeon all --self-signed
  # Without one: services and rules from a directory, webhooks on port 8443
  gudgeon all --config-dir ./config --self-signed --port 8443",
    ),
    (
        "gudgeon",
        "gudgeon",
        "  # A control plane from a directory of YAML, without a cluster
  gudgeon discovery --config-dir ./config
  # What the webhook would make of a Deployment
  gudgeon inject -f deployment.yaml
  # Whether rules of Istio are valid
  gudgeon validate -f rules.yaml",
    ),
    (
        "gudgeon",
        "injector",
        "  # In a cluster, with certificates of its own
  gudgeon injector --self-signed
  # In a cluster, with certificates from a Secret and Istio's ConfigMap
  gudgeon injector --tls-cert-file /certs/tls.crt --tls-key-file /certs/tls.key --ca-cert-file /certs/ca.crt --inject-config /inject/config
  # On a laptop, for a cluster elsewhere that reaches it by name
  gudgeon injector --self-signed --self-signed-names laptop.example --port 8443 --kubeconfig ./kubeconfig",
    ),
    (
        "gudgeon",
        "discovery",
        "  # In a cluster
  gudgeon discovery
  # Without one: services and rules from a directory
  gudgeon discovery --config-dir ./config
  # Services of Consul, rules from galley
  gudgeon discovery --registries Consul --consulserver-url http://127.0.0.1:8500 --mcp-server-addrs mcps://galley:9901",
    ),
    (
        "gudgeon",
        "galley",
        "  # In a cluster: the webhook with certificates of its own
  gudgeon galley --self-signed
  # Rules from a directory, over MCP without TLS
  gudgeon galley --config-path ./config --insecure",
    ),
    (
        "gudgeon",
        "inject",
        "  # Into the cluster, as build/kubernetes/all.yaml injects
  gudgeon inject --proxy-image localhost/pintle-envoy:0.1.0 --discovery-address istio-pilot.istio-system:15010 -f deployment.yaml | kubectl apply -f -
  # With the configuration that Istio's injector has in the cluster
  gudgeon inject -f ./manifests -o injected.yaml --inject-config-map-name istio-sidecar-injector --mesh-config-map-name istio
  # The built-in template, to begin one's own with
  gudgeon inject --emit-template",
    ),
    (
        "gudgeon",
        "validate",
        "  # A file and a directory
  gudgeon validate -f rules.yaml -f ./config
  # What a cluster has
  kubectl get virtualservices,destinationrules -A -o yaml | gudgeon validate -f -",
    ),
    ("gudgeon", "analyze", "  # The cluster of the kubeconfig, all namespaces\n  gudgeon analyze -A
  # Files alone; without the last flag beside the cluster of the kubeconfig
  gudgeon analyze -f ./config -f deployments.yaml --use-kube=false",
    ),
    (
        "gudgeon",
        "request",
        "  # Which proxies are in sync
  gudgeon request GET /debug/syncz
  # What a proxy was sent
  gudgeon request GET /debug/config_dump?proxyID=web.demo --http-addr 127.0.0.1:8080",
    ),
    (
        "gudgeon",
        "proxy-status",
        "  # Of a discovery in a cluster
  kubectl -n istio-system port-forward svc/istio-pilot 8080 & gudgeon proxy-status
  # Elsewhere
  gudgeon proxy-status --http-addr 127.0.0.1:15014",
    ),
    (
        "pilot-discovery",
        "pilot-discovery",
        "  # In a cluster
  pilot-discovery discovery
  # Which proxies are in sync
  pilot-discovery request GET /debug/syncz",
    ),
    (
        "pilot-discovery",
        "discovery",
        "  # In a cluster, for one namespace
  pilot-discovery discovery --appNamespace demo
  # Without one
  pilot-discovery discovery --configDir ./config",
    ),
    (
        "pilot-discovery",
        "request",
        "  # Which proxies are in sync
  pilot-discovery request GET /debug/syncz",
    ),
    (
        "sidecar-injector",
        "sidecar-injector",
        "  # In a cluster, with certificates of its own
  sidecar-injector --selfSigned
  # As Istio's chart has it
  sidecar-injector --caCertFile=/etc/istio/certs/root-cert.pem --tlsCertFile=/etc/istio/certs/cert-chain.pem --tlsKeyFile=/etc/istio/certs/key.pem --injectConfig=/etc/istio/inject/config --meshConfig=/etc/istio/config/mesh",
    ),
    (
        "galley",
        "galley",
        "  # In a cluster: the webhook with certificates of its own
  galley server --selfSigned
  # Rules from a directory, over MCP without TLS
  galley server --configPath=./config --insecure",
    ),
    (
        "istioctl",
        "kube-inject",
        "  # Into the cluster
  istioctl kube-inject -f deployment.yaml | kubectl apply -f -
  # Without one
  istioctl kube-inject -f deployment.yaml --injectConfigFile config --meshConfigFile mesh",
    ),
    (
        "istioctl",
        "validate",
        "  # A file and a directory
  istioctl validate -f rules.yaml -f ./config",
    ),
];

/// A program's commands as they are documented.
pub(super) fn dressed(command: Command) -> Command {
    let program = command.get_name().to_owned();
    let exit_codes = exit::TABLE;
    let top = match examples(&program, &program) {
        Some(examples) => format!("Examples:\n{examples}\n\n{exit_codes}"),
        None => exit_codes.to_owned(),
    };
    below(command, &program).after_help(top)
}

fn below(command: Command, program: &str) -> Command {
    let name = command.get_name().to_owned();
    let command = match examples(program, &name) {
        Some(examples) => command.after_help(format!("Examples:\n{examples}")),
        None => command,
    };
    let is_grouped = GROUPED.contains(&&*name);
    let command = command.mut_args(|arg| {
        let arg = grouped(arg, is_grouped);
        if program == "gudgeon" {
            in_kebab(arg)
        } else {
            arg
        }
    });
    command.mut_subcommands(|command| below(command, program))
}

fn examples(program: &str, command: &str) -> Option<&'static str> {
    let is_its = |row: &&(&str, &str, &str)| (row.0, row.1) == (program, command);
    EXAMPLES.iter().find(is_its).map(|row| row.2)
}

fn grouped(arg: Arg, all: bool) -> Arg {
    let Some(long) = arg.get_long() else {
        return arg;
    };
    let group = if LOG.contains(&long) {
        Some("Log")
    } else {
        let is_its = |row: &&(&str, &[&str])| all && row.1.contains(&long);
        GROUPS.iter().find(is_its).map(|row| row.0)
    };
    match group {
        Some(group) => arg.help_heading(group),
        None => arg,
    }
}

/// The other spelling goes on working.
fn in_kebab(arg: Arg) -> Arg {
    let arg = match arg.get_help().map(|help| spelled(&help.to_string())) {
        Some(help) => arg.help(help),
        None => arg,
    };
    let Some(long) = arg.get_long().map(ToOwned::to_owned) else {
        return arg;
    };
    let kebab = kebab(&long);
    if kebab == long {
        return arg;
    }
    arg.long(Str::from(kebab)).alias(Str::from(long))
}

/// A sentence with the flags in it in kebab case.
fn spelled(help: &str) -> String {
    let mut out = String::with_capacity(help.len() + 8);
    let mut rest = help;
    while let Some((before, flag)) = rest.split_once("--") {
        let is_of_flag = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let end = flag.find(|letter| !is_of_flag(letter));
        let (flag, after) = flag.split_at(end.unwrap_or(flag.len()));
        out.push_str(before);
        out.push_str("--");
        out.push_str(&kebab(flag));
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::cli::programs::Name;
    use crate::cli::{Parsed, parse};
    use crate::exit::Exit;

    const NAMES: [Name; 5] = [
        Name::Gudgeon,
        Name::PilotDiscovery,
        Name::Galley,
        Name::SidecarInjector,
        Name::Istioctl,
    ];

    fn parsed(line: &str) -> Result<Parsed, crate::cli::EarlyExit> {
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(&arguments)
    }

    /// All commands of all programs, with their own.
    fn commands() -> Vec<(String, Command)> {
        fn add(program: &str, command: &Command, all: &mut Vec<(String, Command)>) {
            all.push((program.to_owned(), command.clone()));
            for below in command.get_subcommands() {
                add(program, below, all);
            }
        }
        let mut all = Vec::new();
        for name in NAMES {
            let command = name.documented();
            add(command.get_name(), &command, &mut all);
        }
        all
    }

    #[test]
    fn every_flag_of_a_large_command_has_a_group_and_every_group_its_flags() {
        let mut seen = Vec::new();
        for (program, command) in commands() {
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                let Some(long) = arg.get_long() else { continue };
                let is_large = GROUPED.contains(&command.get_name());
                let place = format!("{program} {}: --{long}", command.get_name());
                assert!(!is_large || arg.get_help_heading().is_some(), "{place}");
                seen.extend(
                    arg.get_all_aliases()
                        .unwrap_or_default()
                        .iter()
                        .map(|one| (*one).to_owned()),
                );
                seen.push(long.to_owned());
            }
        }
        for (group, flags) in GROUPS {
            for flag in flags {
                assert!(seen.iter().any(|seen| seen == flag), "{group}: {flag}");
            }
        }
    }

    #[test]
    fn flags_are_spelled_as_the_name_has_them() {
        for (program, command) in commands() {
            let mut command = command;
            let help = command.render_long_help().to_string();
            if program != "gudgeon" {
                continue;
            }
            for flag in help.split("--").skip(1) {
                let is_of_flag =
                    |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
                let end = flag
                    .find(|letter| !is_of_flag(letter))
                    .unwrap_or(flag.len());
                let flag = &flag[..end];
                assert_eq!(flag, kebab(flag), "{}", command.get_name());
            }
        }
        let help = |line: &str| parsed(line).unwrap_err().text;
        assert!(help("gudgeon injector --help").contains("--self-signed-ttl"));
        assert!(help("sidecar-injector --help").contains("--selfSignedTTL"));
        assert!(help("galley --help").contains("--enable-reconcileWebhookConfiguration"));
        assert!(help("pilot-discovery discovery --help").contains("like --httpAddr"));
        assert!(help("gudgeon discovery --help").contains("like --http-addr"));
    }

    #[test]
    fn every_example_can_be_typed() {
        let mut count = 0;
        for (program, command, text) in EXAMPLES {
            let is_there =
                |row: &(String, Command)| row.0 == program && row.1.get_name() == command;
            assert!(commands().iter().any(is_there), "{program} {command}");
            let lines = text.lines().map(str::trim);
            for line in lines.filter(|line| !line.starts_with('#')) {
                let own = line
                    .split(['|', '&'])
                    .find(|part| part.trim().starts_with(program));
                let parsed = parsed(own.expect(line))
                    .unwrap_or_else(|ended| panic!("{line}: {}", ended.text));
                assert!(parsed.warnings.is_empty(), "{line}");
                count += 1;
            }
        }
        assert!(count > 25, "{count}");
    }

    /// By flag and by word, of every program and of every command.
    #[test]
    fn the_version_is_asked_for_as_anywhere() {
        let word = parsed("gudgeon version").unwrap();
        let crate::cli::Action::Version(flags) = word.action else {
            panic!()
        };
        let expected = crate::cli::version(&flags);
        for line in [
            "gudgeon --version",
            "gudgeon -V",
            "gudgeon injector --version",
            "gudgeon galley -V",
            "gudgeon validate -V",
            "sidecar-injector --version",
            "pilot-discovery -V",
            "pilot-discovery discovery --version",
            "galley --version",
            "galley server -V",
            "istioctl --version",
            "istioctl kube-inject -V",
        ] {
            let ended = parsed(line).unwrap_err();
            assert_eq!(
                (ended.exit, &*ended.text),
                (Exit::Done, &*expected),
                "{line}"
            );
        }
    }
}
