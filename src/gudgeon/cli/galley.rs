//! The flags of galley: those of Istio's Galley 1.1 to 1.5, and the flags of its versions that are ignored here.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};

use super::values::{DOMAIN, age, boolean, domain, duration, interval, path, ping_time};
use super::{CompletionFlags, LogFlags, ProbeFlags, VersionFlags};

/// The path at which Istio's manifests mount the mesh configuration of Galley.
const GALLEY_MESH_CONFIG: &str = "/etc/mesh-config/mesh";

/// The path at which Istio's manifests mount the access list.
pub(crate) const ACCESS_LIST: &str = "/etc/config/accesslist.yaml";

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
    /// Check that a probe file was written recently.
    Probe(ProbeFlags),
    /// Print the version.
    Version(VersionFlags),
    /// Print a shell's completions.
    Completion(CompletionFlags),
}

/// The flags of galley.
#[derive(Args, Clone, Debug)]
pub struct GalleyFlags {
    /// Configuration files: a directory and all below it, or one file, instead of a cluster.
    #[arg(long = "configPath", value_name = "PATH", default_value = "", hide_default_value = true, value_parser = path)]
    pub config_path: PathBuf,
    /// Kubeconfig of the API server, outside of a cluster.
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true, value_parser = path)]
    pub kubeconfig: PathBuf,
    /// Mesh configuration [default: /etc/mesh-config/mesh where it exists].
    #[arg(long = "meshConfigFile", value_name = "FILE")]
    pub mesh_config_file: Option<PathBuf>,
    /// The mesh configuration where no flag names one: of `gudgeon all`, that of the other roles.
    #[arg(skip = GALLEY_MESH_CONFIG)]
    pub usual_mesh_config: &'static str,
    /// The name of the flag above: of `gudgeon all`, that of discovery.
    #[arg(skip = "meshConfigFile")]
    pub mesh_config_flag: &'static str,
    /// DNS suffix of service host names.
    #[arg(long, value_name = "DOMAIN", default_value = DOMAIN, value_parser = domain)]
    pub domain: String,
    /// Reload configuration when its files change; if false, only on SIGUSR1 and SIGHUP.
    #[arg(long = "watchConfigFiles", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub watch_config_files: bool,
    /// Publish ServiceEntries made from Services, Endpoints, Pods and Nodes.
    #[arg(long = "enableServiceDiscovery", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub enable_service_discovery: bool,
    /// Write findings into the status of objects, if the account may.
    #[arg(long = "enableAnalysis", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub enable_analysis: bool,
    #[command(flatten)]
    pub mcp: McpFlags,
    #[command(flatten)]
    pub webhook: ValidationFlags,
    /// File for the liveness probe; empty: none.
    #[arg(long = "livenessProbePath", value_name = "FILE", default_value = "/healthLiveness", value_parser = path)]
    pub liveness_probe_path: PathBuf,
    /// Interval between writes of the probe file.
    #[arg(long = "livenessProbeInterval", value_name = "DURATION", default_value = "2s", value_parser = interval)]
    pub liveness_probe_interval: Duration,
    /// File that exists while galley is ready; empty: none.
    #[arg(long = "readinessProbePath", value_name = "FILE", default_value = "/healthReadiness", value_parser = path)]
    pub readiness_probe_path: PathBuf,
    /// Interval between writes of the probe file.
    #[arg(long = "readinessProbeInterval", value_name = "DURATION", default_value = "2s", value_parser = interval)]
    pub readiness_probe_interval: Duration,
    /// Plain HTTP port for metrics and readiness; 0: off.
    #[arg(long = "monitoringPort", value_name = "PORT", default_value_t = 15014)]
    pub monitoring_port: u16,
    /// Address of the page.
    #[arg(
        long = "ctrlz_address",
        value_name = "ADDRESS",
        default_value = "127.0.0.1"
    )]
    pub ctrlz_address: String,
    /// Port of the page; 0: off.
    #[arg(long = "ctrlz_port", value_name = "PORT", default_value_t = 9876)]
    pub ctrlz_port: u16,
    /// Time for which listeners stay open after TERM.
    #[arg(long = "drainDuration", value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub drain_duration: Duration,
    #[command(flatten)]
    pub log: LogFlags,
}

/// Flags of the MCP server.
#[derive(Args, Clone, Debug)]
pub struct McpFlags {
    /// Serve configuration over MCP.
    #[arg(long = "enable-server", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub enable_server: bool,
    /// Listener for MCP sinks: tcp://HOST:PORT, HOST:PORT or unix:///PATH.
    #[arg(
        long = "server-address",
        value_name = "ADDRESS",
        default_value = "tcp://0.0.0.0:9901"
    )]
    pub server_address: String,
    /// Maximum request of an MCP sink.
    #[arg(
        long = "server-maxReceivedMessageSize",
        value_name = "BYTES",
        default_value_t = 1 << 20
    )]
    pub server_max_received_message_size: u32,
    /// Maximum number of MCP streams.
    #[arg(
        long = "server-maxConcurrentStreams",
        value_name = "COUNT",
        default_value_t = 1024
    )]
    pub server_max_concurrent_streams: u32,
    /// Serve MCP without TLS.
    #[arg(long, value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub insecure: bool,
    /// File of identities that may connect; without it every verified client may.
    #[arg(
        long = "accessListFile",
        value_name = "FILE",
        default_value = ACCESS_LIST
    )]
    pub access_list_file: PathBuf,
    /// Certificate chain of the MCP server.
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
    /// CA bundle that verifies the certificates of MCP peers.
    #[arg(
        long = "caCertFile",
        value_name = "FILE",
        default_value = "/etc/certs/root-cert.pem"
    )]
    pub ca_cert_file: PathBuf,
    /// MCP sink to dial.
    #[arg(
        long = "sinkAddress",
        value_name = "HOST:PORT",
        default_value = "",
        hide_default_value = true
    )]
    pub sink_address: String,
    /// TLS towards that sink: NONE or MUTUAL_TLS.
    #[arg(
        long = "sinkAuthMode",
        value_name = "MODE",
        default_value = "",
        hide_default_value = true
    )]
    pub sink_auth_mode: String,
    /// Metadata of the stream to that sink.
    #[arg(
        long = "sinkMeta",
        value_name = "KEY=VALUE,…",
        value_delimiter = ',',
        action = ArgAction::Append
    )]
    pub sink_meta: Vec<String>,
    /// Name in that sink's certificate [default: that of the address].
    #[arg(long = "sinkServerName", value_name = "NAME")]
    pub sink_server_name: Option<String>,
    /// Interval between pings of a gRPC connection.
    #[arg(long = "keepaliveInterval", value_name = "DURATION", default_value = "30s", value_parser = ping_time)]
    pub keepalive_interval: Duration,
    /// Timeout of a ping.
    #[arg(long = "keepaliveTimeout", value_name = "DURATION", default_value = "10s", value_parser = ping_time)]
    pub keepalive_timeout: Duration,
    /// Maximum age of a gRPC connection, ±10 %; infinity or 0s: none [default: infinity].
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

/// Flags of the webhook.
#[derive(Args, Clone, Debug)]
pub struct ValidationFlags {
    /// Serve the webhook [default: true; with --configPath, where its certificate is there].
    #[arg(long = "enable-validation", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub enable_validation: Option<bool>,
    /// Reconcile the webhook configuration.
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
    /// HTTPS port; 0: a free one [default: 9443; with --validation-webhook-config-file 443, the port of charts of 1.1 to 1.4].
    #[arg(long = "validation-port", value_name = "PORT")]
    pub port: Option<u16>,
    /// Template of the webhook configuration.
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
    /// Generate CA and certificate of the webhook in memory, and ignore its files.
    #[arg(long = "selfSigned", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub self_signed: bool,
    /// Further DNS names or IP addresses in the self-signed certificate.
    #[arg(long = "selfSignedNames", value_name = "NAME,…", value_delimiter = ',')]
    pub self_signed_names: Vec<String>,
    /// Lifetime of the self-signed certificate, renewed at two thirds; the CA lives 12 times as long.
    #[arg(long = "selfSignedTTL", value_name = "DURATION", default_value = "720h", value_parser = duration)]
    pub self_signed_ttl: Duration,
}
