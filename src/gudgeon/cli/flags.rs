//! The flags of each command, with the names and defaults of the programs whose place they take.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args};

use super::values::{
    Level, MessageFormat, NativeSetting, ReportFormat, boolean, duration, given, host_port, image,
    path,
};

/// The path at which Istio's manifests mount an injection configuration; if a default path is absent, the built-in one is
/// used.
pub(crate) const INJECT_CONFIG: &str = "/etc/istio/inject/config";
pub(crate) const INJECT_VALUES: &str = "/etc/istio/inject/values";
pub(crate) const MESH_CONFIG: &str = "/etc/istio/config/mesh";

/// Flags that every command takes.
#[derive(Args, Clone, Debug, Default)]
pub struct LogFlags {
    /// Write log lines as JSON objects.
    #[arg(long = "log_as_json", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_possible_values = true, hide_default_value = true, global = true)]
    pub log_as_json: bool,
    /// Minimum level of log lines: debug, info, warn, error or none; Istio's `SCOPE:LEVEL` works, too.
    #[arg(
        long = "log_output_level",
        value_name = "LEVEL",
        default_value = "default:info",
        global = true
    )]
    pub log_output_level: String,
    /// Target of log lines: stdout, stderr or a file; repeatable.
    #[arg(long = "log_target", value_name = "TARGET", action = ArgAction::Append, global = true)]
    pub log_target: Vec<String>,
}

/// `gudgeon injector`, and a link named `sidecar-injector`.
#[derive(Args, Clone, Debug)]
pub struct InjectorFlags {
    /// Policy and templates [default: /etc/istio/inject/config where it exists, else built-in].
    #[arg(long = "injectConfig", value_name = "FILE")]
    pub inject_config: Option<PathBuf>,
    /// YAML or JSON object, `.Values` in templates [default: /etc/istio/inject/values where it exists].
    #[arg(long = "injectValues", value_name = "FILE")]
    pub inject_values: Option<PathBuf>,
    /// Mesh configuration [default: /etc/istio/config/mesh where it exists].
    #[arg(long = "meshConfig", value_name = "FILE")]
    pub mesh_config: Option<PathBuf>,
    /// Certificate chain to serve.
    #[arg(
        long = "tlsCertFile",
        value_name = "FILE",
        default_value = "/etc/istio/certs/cert-chain.pem"
    )]
    pub tls_cert_file: PathBuf,
    /// Its private key: PKCS#8, PKCS#1 or SEC1.
    #[arg(
        long = "tlsKeyFile",
        value_name = "FILE",
        default_value = "/etc/istio/certs/key.pem"
    )]
    pub tls_key_file: PathBuf,
    /// CA bundle for the webhook configuration.
    #[arg(
        long = "caCertFile",
        value_name = "FILE",
        default_value = "/etc/istio/certs/root-cert.pem"
    )]
    pub ca_cert_file: PathBuf,
    /// HTTPS port; 0: a free one.
    #[arg(long, value_name = "PORT", default_value_t = 443)]
    pub port: u16,
    /// Plain HTTP port for metrics, readiness and the page; 0: a free one, -1: off.
    #[arg(long = "monitoringPort", value_name = "PORT", default_value_t = 15014, value_parser = clap::value_parser!(i32).range(-1..=65535), allow_negative_numbers = true)]
    pub monitoring_port: i32,
    /// Additional plain HTTP listener, with /debug open to every client except pages of another Origin.
    #[arg(long = "debugAddr", value_name = "HOST:PORT")]
    pub debug_addr: Option<String>,
    /// Interval between writes of the health file; 0: never.
    #[arg(long = "healthCheckInterval", value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub health_check_interval: Duration,
    /// Path of the health file.
    #[arg(long = "healthCheckFile", value_name = "FILE", default_value = "")]
    pub health_check_file: String,
    /// Kubeconfig of the API server, outside of a cluster.
    #[arg(long, value_name = "FILE", default_value = "")]
    pub kubeconfig: String,
    /// Reconcile the CA bundle of the webhook configurations.
    #[arg(long = "reconcileWebhookConfig", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub reconcile_webhook_config: bool,
    /// MutatingWebhookConfiguration to patch; repeatable.
    #[arg(long = "webhookConfigName", value_name = "NAME", action = ArgAction::Append, default_value = "istio-sidecar-injector")]
    pub webhook_config_name: Vec<String>,
    /// Name of their webhook entries: NAME, or ending in `.NAME`.
    #[arg(
        long = "webhookName",
        value_name = "NAME",
        default_value = "sidecar-injector.istio.io"
    )]
    pub webhook_name: String,
    /// Generate CA and certificate in memory, and ignore the two TLS files.
    #[arg(long = "selfSigned", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub self_signed: bool,
    /// Name of the Service, for the self-signed certificate.
    #[arg(
        long = "webhookService",
        value_name = "NAME",
        default_value = "istio-sidecar-injector"
    )]
    pub webhook_service: String,
    /// Namespace of the Service [default: POD_NAMESPACE, else istio-system].
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Further DNS names or IP addresses in the self-signed certificate.
    #[arg(long = "selfSignedNames", value_name = "NAME,…", value_delimiter = ',')]
    pub self_signed_names: Vec<String>,
    /// Lifetime of the self-signed certificate, renewed at two thirds; the CA lives 12 times as long.
    #[arg(long = "selfSignedTTL", value_name = "DURATION", default_value = "720h", value_parser = duration)]
    pub self_signed_ttl: Duration,
    /// File to write the CA certificates in use to.
    #[arg(long = "caOut", value_name = "FILE")]
    pub ca_out: Option<PathBuf>,
    /// `.Revision` in templates [default: REVISION].
    #[arg(long, value_name = "REVISION")]
    pub revision: Option<String>,
    /// Inject the proxy as a native sidecar: off, on, auto or jobs.
    #[arg(
        long = "nativeSidecars",
        value_name = "WHEN",
        default_value = "off",
        value_enum
    )]
    pub(crate) native_sidecars: NativeSetting,
    #[command(flatten)]
    pub builtin: BuiltinFlags,
    /// Time for which listeners stay open after TERM.
    #[arg(long = "drainDuration", value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub drain_duration: Duration,
    #[command(flatten)]
    pub log: LogFlags,
}

impl InjectorFlags {
    /// The namespace of the webhook's Service.
    pub(crate) fn service_namespace(&self) -> String {
        let of_pod = std::env::var("POD_NAMESPACE").ok();
        let namespace = given(self.namespace.as_deref()).or_else(|| given(of_pod.as_deref()));
        namespace.unwrap_or("istio-system").to_owned()
    }
}

/// Parameters of the built-in template, for both commands.
#[derive(Args, Clone, Debug, Default)]
pub struct BuiltinFlags {
    /// Proxy image of the built-in template [default: pintle-envoy:VERSION].
    #[arg(long = "proxyImage", value_name = "IMAGE", value_parser = image)]
    pub proxy_image: Option<String>,
    /// Init image of the built-in template [default: istio/proxyv2:1.24.0].
    #[arg(long = "initImage", value_name = "IMAGE", value_parser = image)]
    pub init_image: Option<String>,
    /// Discovery address of the built-in template [default: istio-pilot:15010].
    #[arg(long = "discoveryAddress", value_name = "HOST:PORT", value_parser = host_port)]
    pub discovery_address: Option<String>,
    /// A CNI plugin redirects traffic: no istio-init in the built-in template.
    #[arg(long, value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub cni: Option<bool>,
    /// Let pods enable core dumps of the built-in template's proxy by annotation, with a privileged init container [default: false].
    #[arg(long = "coreDump", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub core_dump: Option<String>,
}

/// `probe`: whether a file was changed lately.
#[derive(Args, Clone, Debug)]
pub struct ProbeFlags {
    /// Path of the health file.
    #[arg(long = "probe-path", value_name = "FILE", default_value = "", value_parser = path)]
    pub probe_path: PathBuf,
    /// Maximum age of the health file.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub interval: Duration,
    #[command(flatten)]
    pub log: LogFlags,
}

/// `version`.
#[derive(Args, Clone, Debug, Default)]
pub struct VersionFlags {
    /// Print only the version number.
    #[arg(short, long, value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub short: bool,
    /// Output format: json or yaml.
    #[arg(short, long, value_name = "FORMAT", default_value = "", hide_default_value = true, value_parser = PossibleValuesParser::new(["", "json", "yaml"]), hide_possible_values = true)]
    pub output: String,
    #[command(flatten)]
    pub log: LogFlags,
}

/// `completion`.
#[derive(Args, Clone, Debug)]
pub struct CompletionFlags {
    /// Shell: bash, elvish, fish, powershell or zsh.
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `gudgeon validate`, `istioctl validate`.
#[derive(Args, Clone, Debug)]
pub struct ValidateFlags {
    /// Manifests: a file, a directory and all below it, or `-` for stdin; repeatable, or separated by commas.
    #[arg(short = 'f', long = "filename", value_name = "FILE", action = ArgAction::Append, value_delimiter = ',')]
    pub files: Vec<String>,
    /// Manifests, as with -f.
    #[arg(value_name = "FILE")]
    pub more: Vec<String>,
    /// Namespace of objects without one [default: default].
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Output format: text or json.
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_enum
    )]
    pub(crate) output: ReportFormat,
    /// Skip files and directories with this name or, with a slash, this path below a directory: `*` matches letters, `?` a letter,
    /// `**` directories; repeatable.
    #[arg(long, value_name = "GLOB", action = ArgAction::Append)]
    pub exclude: Vec<String>,
    /// Check references between objects, too, as `analyze` does.
    #[arg(long, value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true)]
    pub references: bool,
}

/// `gudgeon analyze`, `istioctl analyze`.
#[derive(Args, Clone, Debug)]
pub struct AnalyzeFlags {
    /// Manifests: a file, a directory and all below it, or `-` for stdin; repeatable.
    #[arg(short = 'f', long = "filename", value_name = "FILE", action = ArgAction::Append)]
    pub files: Vec<String>,
    /// Manifests, as with -f.
    #[arg(value_name = "FILE")]
    pub more: Vec<String>,
    /// Namespace of objects without one [default: default]; with a cluster, the namespace reported on [default: the context's].
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Report on all namespaces of the cluster.
    #[arg(short = 'A', long = "all-namespaces", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true)]
    pub all_namespaces: bool,
    /// Read the cluster, in addition to files [default: true if a kubeconfig or the pod's account exists].
    #[arg(short = 'k', long = "use-kube", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub use_kube: Option<bool>,
    /// Kubeconfig of the API server.
    #[arg(short = 'c', long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Root namespace: its selectors apply to all namespaces.
    #[arg(
        short = 'i',
        long = "istioNamespace",
        value_name = "NAMESPACE",
        default_value = "istio-system"
    )]
    pub istio_namespace: String,
    /// Mesh configuration [default: with a cluster, the ConfigMap istio of the root namespace].
    #[arg(long = "meshConfigFile", value_name = "FILE")]
    pub mesh_config_file: Option<PathBuf>,
    /// Output format: log, json or yaml.
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        default_value = "log",
        value_enum
    )]
    pub(crate) output: MessageFormat,
    /// Exit 1 from this level on: Info, Warning or Error.
    #[arg(long = "failureThreshold", value_name = "LEVEL", default_value = "Error", value_parser = Level::read)]
    pub(crate) failure_threshold: Level,
    /// Report from this level on: Info, Warning or Error.
    #[arg(long = "outputThreshold", value_name = "LEVEL", default_value = "Info", value_parser = Level::read)]
    pub(crate) output_threshold: Level,
    /// Suppress messages: CODE=KIND NAME.NAMESPACE, with * for any characters; repeatable.
    #[arg(short = 'S', long, value_name = "CODE=OBJECT", value_delimiter = ',', action = ArgAction::Append)]
    pub suppress: Vec<String>,
    /// Print the codes and exit.
    #[arg(short = 'L', long = "listAnalyzers", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true)]
    pub list_analyzers: bool,
}

/// `gudgeon inject`, `istioctl kube-inject`.
#[derive(Args, Clone, Debug)]
pub struct InjectFlags {
    /// Manifests: a file, a directory, or `-` for stdin; repeatable.
    #[arg(short = 'f', long = "filename", value_name = "FILE", action = ArgAction::Append)]
    pub files: Vec<String>,
    /// File to write to, only if no manifest failed [default: stdout].
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Policy and templates.
    #[arg(long = "injectConfigFile", value_name = "FILE")]
    pub inject_config_file: Option<PathBuf>,
    /// YAML or JSON object, `.Values` in templates.
    #[arg(long = "valuesFile", value_name = "FILE")]
    pub values_file: Option<PathBuf>,
    /// Mesh configuration.
    #[arg(long = "meshConfigFile", value_name = "FILE")]
    pub mesh_config_file: Option<PathBuf>,
    /// ConfigMap with the keys config and values.
    #[arg(long = "injectConfigMapName", value_name = "NAME")]
    pub inject_config_map_name: Option<String>,
    /// ConfigMap with the key mesh.
    #[arg(long = "meshConfigMapName", value_name = "NAME")]
    pub mesh_config_map_name: Option<String>,
    /// Namespace of these ConfigMaps.
    #[arg(
        short = 'i',
        long = "istioNamespace",
        value_name = "NAMESPACE",
        default_value = "istio-system"
    )]
    pub istio_namespace: String,
    /// Kubeconfig of the API server.
    #[arg(short = 'c', long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// `.Revision` in templates [default: REVISION].
    #[arg(short, long, value_name = "REVISION")]
    pub revision: Option<String>,
    /// Inject the proxy as a native sidecar: off, on, auto or jobs.
    #[arg(
        long = "nativeSidecars",
        value_name = "WHEN",
        default_value = "off",
        value_enum
    )]
    pub(crate) native_sidecars: NativeSetting,
    /// Print the built-in configuration with these flags, and inject nothing.
    #[arg(long = "emitTemplate", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true)]
    pub emit_template: bool,
    #[command(flatten)]
    pub builtin: BuiltinFlags,
    #[command(flatten)]
    pub kube_inject: KubeInjectFlags,
    #[command(flatten)]
    pub log: LogFlags,
}

/// Parameters that `kube-inject` had for its own template.
#[derive(Args, Clone, Debug, Default)]
pub struct KubeInjectFlags {
    /// Hub of the images HUB/proxyv2:TAG; needs --tag.
    #[arg(long, value_name = "HUB")]
    pub hub: Option<String>,
    /// Tag of the images; needs --hub.
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// Outbound IP ranges to redirect [default: *].
    #[arg(long = "includeIPRanges", value_name = "CIDRS")]
    pub include_ip_ranges: Option<String>,
    /// Outbound IP ranges not to redirect.
    #[arg(long = "excludeIPRanges", value_name = "CIDRS")]
    pub exclude_ip_ranges: Option<String>,
    /// Inbound ports to redirect [default: *].
    #[arg(long = "includeInboundPorts", value_name = "PORTS")]
    pub include_inbound_ports: Option<String>,
    /// Inbound ports not to redirect.
    #[arg(long = "excludeInboundPorts", value_name = "PORTS")]
    pub exclude_inbound_ports: Option<String>,
    /// Pull policy of the images [default: IfNotPresent].
    #[arg(long = "imagePullPolicy", value_name = "POLICY")]
    pub image_pull_policy: Option<String>,
    /// Status port of the agent [default: 15020].
    #[arg(long = "statusPort", value_name = "PORT")]
    pub status_port: Option<String>,
    /// Initial delay of the readiness probe [default: 1].
    #[arg(long = "readinessInitialDelaySeconds", value_name = "SECONDS")]
    pub readiness_initial_delay_seconds: Option<String>,
    /// Period of the readiness probe [default: 2].
    #[arg(long = "readinessPeriodSeconds", value_name = "SECONDS")]
    pub readiness_period_seconds: Option<String>,
    /// Failure threshold of the readiness probe [default: 30].
    #[arg(long = "readinessFailureThreshold", value_name = "COUNT")]
    pub readiness_failure_threshold: Option<String>,
    /// User ID of the proxy [default: 1337].
    #[arg(long = "sidecarProxyUID", value_name = "UID")]
    pub sidecar_proxy_uid: Option<String>,
    /// Rewrite the application's HTTP probes [default: true].
    #[arg(long = "rewriteAppProbe", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub rewrite_app_probe: Option<String>,
}
