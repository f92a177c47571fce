//! The flags of galley: those of Istio's Galley 1.1 to 1.5, and the flags of its versions that are ignored here.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};

use super::values::{age, boolean, duration, path};
use super::{CompletionFlags, LogFlags, ProbeFlags, VersionFlags};

/// The path at which Istio's manifests mount the mesh configuration of Galley.
const GALLEY_MESH_CONFIG: &str = "/etc/mesh-config/mesh";

/// Flags that are ignored, and whether they take a value.
pub(super) const WITHOUT_MEANING: [(&str, bool); 10] = [
    ("deployment-name", true),
    ("disableResourceReadyCheck", false),
    ("excludedResourceKinds", true),
    ("useOldProcessor", false),
    ("resyncPeriod", true),
    ("enableProfiling", false),
    ("pprofPort", true),
    ("enableGRPCTracing", false),
    ("profile", false),
    ("config", true),
];

/// `gudgeon galley`, and a link named `galley`: there the role may be named once more.
#[derive(Debug, Parser)]
#[command(
    name = "galley",
    about = "The validating webhook, and configuration over MCP"
)]
pub(super) struct GalleyCommand {
    /// The role, as the original has it; the only one.
    #[arg(value_name = "server", hide = true, value_parser = ["server"])]
    server: Option<String>,
    #[command(flatten)]
    pub(super) flags: GalleyFlags,
    #[command(subcommand)]
    pub(super) instead: Option<GalleySubcommand>,
}

#[derive(Debug, Subcommand)]
pub(super) enum GalleySubcommand {
    /// Ask whether a probe file was written lately.
    Probe(ProbeFlags),
    /// Print the version.
    Version(VersionFlags),
    /// Print a shell's completions.
    Completion(CompletionFlags),
}

/// What the role is told.
#[derive(Args, Clone, Debug)]
pub struct GalleyFlags {
    /// Configuration as files: a directory with all below it, or one file; no cluster is asked then.
    #[arg(long = "configPath", value_name = "PATH", default_value = "", hide_default_value = true, value_parser = path)]
    pub config_path: PathBuf,
    /// How the API server is reached outside of a cluster.
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true, value_parser = path)]
    pub kubeconfig: PathBuf,
    /// Mesh configuration [default: /etc/mesh-config/mesh where it exists].
    #[arg(long = "meshConfigFile", value_name = "FILE")]
    pub mesh_config_file: Option<PathBuf>,
    /// The mesh configuration where no flag names one: of `gudgeon all`, that of the other roles.
    #[arg(skip = GALLEY_MESH_CONFIG)]
    pub usual_mesh_config: &'static str,
    /// DNS suffix of service host names.
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    pub domain: String,
    /// Look at configuration again when its files change; otherwise on SIGUSR1 and SIGHUP only.
    #[arg(long = "watchConfigFiles", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub watch_config_files: bool,
    /// Make entries of services, endpoints, pods and nodes.
    #[arg(long = "enableServiceDiscovery", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub enable_service_discovery: bool,
    /// Write what is wrong with an object into its status, where the cluster lets it.
    #[arg(long = "enableAnalysis", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub enable_analysis: bool,
    #[command(flatten)]
    pub mcp: McpFlags,
    #[command(flatten)]
    pub webhook: ValidationFlags,
    /// The live probe's file; empty: none.
    #[arg(long = "livenessProbePath", value_name = "FILE", default_value = "/healthLiveness", value_parser = path)]
    pub liveness_probe_path: PathBuf,
    /// How often it is written.
    #[arg(long = "livenessProbeInterval", value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub liveness_probe_interval: Duration,
    /// The file that is there while it is ready; empty: none.
    #[arg(long = "readinessProbePath", value_name = "FILE", default_value = "/healthReadiness", value_parser = path)]
    pub readiness_probe_path: PathBuf,
    /// How often it is written.
    #[arg(long = "readinessProbeInterval", value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub readiness_probe_interval: Duration,
    /// Plain HTTP port for metrics and readiness; 0: off.
    #[arg(long = "monitoringPort", value_name = "PORT", default_value_t = 15014)]
    pub monitoring_port: u16,
    /// Where the page is.
    #[arg(
        long = "ctrlz_address",
        value_name = "ADDRESS",
        default_value = "127.0.0.1"
    )]
    pub ctrlz_address: String,
    /// Port of the page; 0: off.
    #[arg(long = "ctrlz_port", value_name = "PORT", default_value_t = 9876)]
    pub ctrlz_port: u16,
    /// How long the listeners stay after TERM.
    #[arg(long = "drainDuration", value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub drain_duration: Duration,
    #[command(flatten)]
    pub log: LogFlags,
}

/// Of what serves configuration over MCP.
#[derive(Args, Clone, Debug)]
pub struct McpFlags {
    /// Serve configuration.
    #[arg(long = "enable-server", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub enable_server: bool,
    /// Where: tcp://HOST:PORT, HOST:PORT or unix:///PATH.
    #[arg(
        long = "server-address",
        value_name = "ADDRESS",
        default_value = "tcp://0.0.0.0:9901"
    )]
    pub server_address: String,
    /// Longest request.
    #[arg(
        long = "server-maxReceivedMessageSize",
        value_name = "BYTES",
        default_value_t = 1 << 20
    )]
    pub server_max_received_message_size: u32,
    /// Streams at a time.
    #[arg(
        long = "server-maxConcurrentStreams",
        value_name = "COUNT",
        default_value_t = 1024
    )]
    pub server_max_concurrent_streams: u32,
    /// Serve without TLS.
    #[arg(long, value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub insecure: bool,
    /// Whose client certificates are allowed; no file: all that are verified.
    #[arg(
        long = "accessListFile",
        value_name = "FILE",
        default_value = "/etc/config/accesslist.yaml"
    )]
    pub access_list_file: PathBuf,
    /// Certificate chain.
    #[arg(
        long = "tlsCertFile",
        value_name = "FILE",
        default_value = "/etc/certs/cert-chain.pem"
    )]
    pub tls_cert_file: PathBuf,
    /// Its private key: PKCS#8, PKCS#1 or SEC1.
    #[arg(
        long = "tlsKeyFile",
        value_name = "FILE",
        default_value = "/etc/certs/key.pem"
    )]
    pub tls_key_file: PathBuf,
    /// CA bundle that the other side's certificate is verified with.
    #[arg(
        long = "caCertFile",
        value_name = "FILE",
        default_value = "/etc/certs/root-cert.pem"
    )]
    pub ca_cert_file: PathBuf,
    /// A sink that is dialled, beside those that dial.
    #[arg(
        long = "sinkAddress",
        value_name = "HOST:PORT",
        default_value = "",
        hide_default_value = true
    )]
    pub sink_address: String,
    /// How: NONE or MUTUAL_TLS.
    #[arg(
        long = "sinkAuthMode",
        value_name = "MODE",
        default_value = "",
        hide_default_value = true
    )]
    pub sink_auth_mode: String,
    /// Metadata of that stream.
    #[arg(
        long = "sinkMeta",
        value_name = "KEY=VALUE,…",
        value_delimiter = ',',
        action = ArgAction::Append
    )]
    pub sink_meta: Vec<String>,
    /// Name in its certificate [default: that of the address].
    #[arg(long = "sinkServerName", value_name = "NAME")]
    pub sink_server_name: Option<String>,
    /// Between two pings of a gRPC connection.
    #[arg(long = "keepaliveInterval", value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub keepalive_interval: Duration,
    /// For the answer to a ping.
    #[arg(long = "keepaliveTimeout", value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub keepalive_timeout: Duration,
    /// Age at which a gRPC connection is told to go, ±10 %; infinity or 0s: never [default: infinity].
    #[arg(long = "keepaliveMaxServerConnectionAge", value_name = "DURATION", value_parser = age)]
    pub keepalive_max_server_connection_age: Option<Duration>,
}

impl ValidationFlags {
    /// Charts of 1.1 to 1.4 name no port. Their Service, which knows none but its own, leads to 443; and they give the file.
    pub(crate) fn port(&self) -> u16 {
        let of_chart = !self.webhook_config_file.as_os_str().is_empty();
        self.port.unwrap_or(if of_chart { 443 } else { 9443 })
    }
}

/// Of the webhook.
#[derive(Args, Clone, Debug)]
pub struct ValidationFlags {
    /// Serve the webhook [default: true; with --configPath, where its certificate is there].
    #[arg(long = "enable-validation", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub enable_validation: Option<bool>,
    /// Keep the webhook configuration.
    #[arg(long = "enable-reconcileWebhookConfiguration", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub enable_reconcile: bool,
    /// Certificate chain of the webhook [default: that of --tlsCertFile].
    #[arg(long = "validation.tls.clientCertificate", value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Its private key [default: that of --tlsKeyFile].
    #[arg(long = "validation.tls.privateKey", value_name = "FILE")]
    pub private_key: Option<PathBuf>,
    /// CA bundle of the webhook configuration [default: that of --caCertFile].
    #[arg(long = "validation.tls.caCertificates", value_name = "FILE")]
    pub ca_certificates: Option<PathBuf>,
    /// HTTPS port; 0: a free one [default: 9443; with --validation-webhook-config-file 443, where charts of 1.1 to 1.4 send to].
    #[arg(long = "validation-port", value_name = "PORT")]
    pub port: Option<u16>,
    /// What the webhook configuration is made from.
    #[arg(long = "validation-webhook-config-file", value_name = "FILE", default_value = "", hide_default_value = true, value_parser = path)]
    pub webhook_config_file: PathBuf,
    /// Namespace of the Service.
    #[arg(
        long = "deployment-namespace",
        value_name = "NAMESPACE",
        default_value = "istio-system"
    )]
    pub deployment_namespace: String,
    /// Name of the Service.
    #[arg(
        long = "service-name",
        value_name = "NAME",
        default_value = "istio-galley"
    )]
    pub service_name: String,
    /// Name of the ValidatingWebhookConfiguration.
    #[arg(
        long = "webhook-name",
        value_name = "NAME",
        default_value = "istio-galley"
    )]
    pub webhook_name: String,
    /// Delete the webhook configuration instead.
    #[arg(long = "unregisterValidationWebhook", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub unregister: bool,
    /// Make CA and certificate of the webhook in memory; its files are not read.
    #[arg(long = "selfSigned", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub self_signed: bool,
    /// Further names or addresses in the own certificate.
    #[arg(long = "selfSignedNames", value_name = "NAME,…", value_delimiter = ',')]
    pub self_signed_names: Vec<String>,
    /// Its life: renewed at two thirds; the CA lives 12 times as long.
    #[arg(long = "selfSignedTTL", value_name = "DURATION", default_value = "720h", value_parser = duration)]
    pub self_signed_ttl: Duration,
}
