//! The flags of discovery: those of pilot-discovery, and the flags of its versions that are ignored here.

use std::path::PathBuf;
use std::time::Duration;

use api::model::Network;
use clap::Args;
use clap::builder::PossibleValuesParser;

use super::LogFlags;
use super::values::{DOMAIN, age, boolean, domain, duration, network, ping_time};

/// The path at which Istio's manifests mount the networks of the mesh.
pub(crate) const MESH_NETWORKS: &str = "/etc/istio/config/meshNetworks";

/// Flags that are ignored, and whether they take a value.
pub(super) const WITHOUT_MEANING: [(&str, bool); 21] = [
    ("plugins", true),
    ("resync", true),
    ("consulserverInterval", true),
    ("discoveryCache", false),
    ("profile", false),
    ("disable-install-crds", false),
    ("mcpInitialWindowSize", true),
    ("mcpInitialConnWindowSize", true),
    ("certFile", true),
    ("keyFile", true),
    ("caCertFile", true),
    ("httpsAddr", true),
    ("use-mcp", false),
    ("kubernetesApiQPS", true),
    ("kubernetesApiBurst", true),
    ("tlsCertFile", true),
    ("tlsKeyFile", true),
    ("tls-cipher-suites", true),
    ("tls-min-version", true),
    ("clusterAliases", true),
    ("cniNamespace", true),
];

/// `gudgeon discovery`, and `discovery` of a link named `pilot-discovery`.
#[derive(Args, Clone, Debug)]
pub struct DiscoveryFlags {
    /// Sources of services: Kubernetes, Consul, Mock, MCP [default: Kubernetes; with --configDir only its files].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub registries: Option<Vec<String>>,
    /// Directory of YAML files with services and configuration.
    #[arg(long = "configDir", value_name = "DIRECTORY")]
    pub config_dir: Option<PathBuf>,
    /// Kubeconfig of the API server, outside of a cluster.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of the local cluster [default: CLUSTER_ID, else Kubernetes].
    #[arg(long = "clusterID", value_name = "ID")]
    pub cluster_id: Option<String>,
    /// Own namespace [default: POD_NAMESPACE, else istio-system].
    #[arg(short = 'n', long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Namespace of the secrets of remote clusters [default: the own namespace].
    #[arg(long = "clusterRegistriesNamespace", value_name = "NAMESPACE")]
    pub cluster_registries_namespace: Option<String>,
    /// Watch only this namespace of clusters; --configDir is read whole [default: all].
    #[arg(short = 'a', long = "appNamespace", value_name = "NAMESPACE")]
    pub app_namespace: Option<String>,
    /// DNS suffix of service host names.
    #[arg(
        long,
        value_name = "DOMAIN",
        default_value = DOMAIN,
        value_parser = domain
    )]
    pub domain: String,
    /// Trust domain of SPIFFE IDs; the mesh configuration overrides it.
    #[arg(
        long = "trust-domain",
        value_name = "DOMAIN",
        default_value = DOMAIN,
        value_parser = domain
    )]
    pub trust_domain: String,
    /// Mesh configuration [default: /etc/istio/config/mesh where it exists].
    #[arg(long = "meshConfig", value_name = "FILE")]
    pub mesh_config: Option<PathBuf>,
    /// Networks of the mesh [default: /etc/istio/config/meshNetworks where it exists].
    #[arg(long = "networksConfig", value_name = "FILE")]
    pub networks_config: Option<PathBuf>,
    /// MCP sources in addition to configSources of the mesh configuration: mcp://HOST:PORT, mcps://…, unix:///PATH.
    #[arg(
        long = "mcpServerAddrs",
        value_name = "ADDRESS,…",
        value_delimiter = ','
    )]
    pub mcp_server_addrs: Vec<String>,
    /// Maximum response of an MCP source, in bytes.
    #[arg(long = "mcpMaxMsgSize", value_name = "BYTES", default_value_t = 4 << 20)]
    pub mcp_max_msg_size: usize,
    /// Maximum wait for MCP sources at the start.
    #[arg(long = "mcpSyncTimeout", value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub mcp_sync_timeout: Duration,
    /// Listener for MCP sources that dial with client certificates; unix:///PATH is plain [default: off].
    #[arg(long = "mcpSinkAddr", value_name = "HOST:PORT")]
    pub mcp_sink_addr: Option<String>,
    /// File of identities that may connect; without it no client may.
    #[arg(
        long = "accessListFile",
        value_name = "FILE",
        default_value = "/etc/config/accesslist.yaml"
    )]
    pub access_list_file: PathBuf,
    /// Address of Consul: http://HOST:PORT.
    #[arg(long = "consulserverURL", value_name = "URL")]
    pub consul_server_url: Option<String>,
    /// Plain HTTP listener: readiness, metrics and, for this host only, pages.
    #[arg(long = "httpAddr", value_name = "HOST:PORT", default_value = ":8080")]
    pub http_addr: String,
    /// Plain gRPC listener; empty: off.
    #[arg(long = "grpcAddr", value_name = "HOST:PORT", default_value = ":15010")]
    pub grpc_addr: String,
    /// gRPC listeners with mutual TLS, separated by commas; empty: off.
    #[arg(
        long = "secureGrpcAddr",
        // Since 1.7.
        alias = "secureGRPCAddr",
        value_name = "HOST:PORT,…",
        default_value = ":15012"
    )]
    pub secure_grpc_addr: String,
    /// Second listener like --httpAddr; empty: off.
    #[arg(
        long = "monitoringAddr",
        value_name = "HOST:PORT",
        default_value = ":15014"
    )]
    pub monitoring_addr: String,
    /// Additional plain HTTP listener, with /debug open to every client except pages of another Origin.
    #[arg(long = "debugAddr", value_name = "HOST:PORT")]
    pub debug_addr: Option<String>,
    /// Interval between pings of a gRPC connection.
    #[arg(long = "keepaliveInterval", value_name = "DURATION", default_value = "30s", value_parser = ping_time)]
    pub keepalive_interval: Duration,
    /// Timeout of a ping.
    #[arg(long = "keepaliveTimeout", value_name = "DURATION", default_value = "10s", value_parser = ping_time)]
    pub keepalive_timeout: Duration,
    /// Maximum age of a gRPC connection, ±10 %; infinity or 0s: none [default: infinity].
    #[arg(long = "keepaliveMaxServerConnectionAge", value_name = "DURATION", value_parser = age)]
    pub keepalive_max_server_connection_age: Option<Duration>,
    /// Has no effect: all kinds of security.istio.io are enforced.
    #[arg(long = "ignoreSecurityPolicies", value_name = "BOOL", value_parser = boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub ignore_security_policies: bool,
    /// Networks to fetch JWKS from even if they are loopback, link-local or the API server's.
    #[arg(long = "jwksAllow", value_name = "CIDR,…", value_delimiter = ',', value_parser = network)]
    pub jwks_allow: Vec<Network>,
    /// Time for which listeners stay open after TERM.
    // The other name is that of 1.12 and later.
    #[arg(long = "drainDuration", alias = "shutdownDuration", value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub drain_duration: Duration,
    #[command(flatten)]
    pub log: LogFlags,
}

/// `request METHOD PATH [BODY]`.
#[derive(Args, Clone, Debug)]
pub struct RequestFlags {
    /// HTTP method, such as GET.
    #[arg(value_name = "METHOD")]
    pub method: String,
    /// Path, such as /debug/syncz.
    #[arg(value_name = "PATH")]
    pub path: String,
    /// Request body; a body that begins with a dash goes after --.
    #[arg(value_name = "BODY")]
    pub body: Option<String>,
    /// Address of discovery's HTTP listener.
    #[arg(
        long = "http-addr",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:8080"
    )]
    pub http_addr: String,
    #[command(flatten)]
    pub log: LogFlags,
}

/// `proxy-status`.
#[derive(Args, Clone, Debug)]
pub struct ProxyStatusFlags {
    /// Address of discovery's HTTP listener.
    #[arg(
        long = "http-addr",
        value_name = "HOST:PORT",
        default_value = "127.0.0.1:8080"
    )]
    pub http_addr: String,
    /// Output format: table, or json as /debug/syncz serves it.
    #[arg(short, long, value_name = "FORMAT", default_value = "table", value_parser = PossibleValuesParser::new(["table", "json"]), hide_possible_values = true)]
    pub output: String,
    #[command(flatten)]
    pub log: LogFlags,
}
