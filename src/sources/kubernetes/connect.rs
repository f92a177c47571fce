//! The way to an API server: by the account of the pod that this runs in, or by a kubeconfig. TLS and credential plugins are kube's; the
//! connection is made here, because the loss of the other end must be noticed, and credentials are renewed here.

mod kubeconfig;
mod renewal;
mod server;
mod token_file;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt as _;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::core::params::GetParams;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use std::collections::BTreeMap;
use tower::{BoxError, ServiceBuilder, service_fn};

use super::answer::{Exchange, chain};
use super::failure::{Action, Cause, Failure};
use crate::interim_limit::send;
use crate::kind::Resource;
use kubeconfig::WHAT;

/// The timeouts of a connection, and of a request. Chosen: a busy API server answers a list within [`REQUEST`]; client-go dials for 30 s,
/// and a dead address should fail sooner.
const CONNECT: Duration = Duration::from_secs(10);
pub(crate) const REQUEST: Duration = Duration::from_secs(30);
/// TCP keepalive: a peer that is gone without a word is noticed after a minute. Chosen: client-go's 30 s, and half a minute of probes.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TRIES: u32 = 3;
/// Idle connections are closed soon: each holds its buffers. Chosen: a third of the 90 s of client-go.
const IDLE: Duration = Duration::from_secs(30);
/// Bytes of a response's head at most. Chosen: an API server's heads have less than 4 KiB.
const MAX_HEAD_BYTES: usize = 64 << 10;

const CONFIG_MAPS: Resource = Resource::core("configmaps");

/// The credentials for an API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// By the account of this pod.
    InCluster,
    /// By a file, or by `KUBECONFIG` and then `~/.kube/config`; by another context than its current one.
    Kubeconfig {
        file: Option<PathBuf>,
        context: Option<String>,
    },
}

impl Access {
    /// Returns true if this process runs in a pod (`KUBERNETES_SERVICE_HOST` is set).
    #[must_use]
    pub fn in_cluster() -> bool {
        std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty())
    }
}

/// The reason why no client could be built. An API server that does not answer fails later, on a request.
#[derive(Debug)]
pub struct CannotConnect(String);

impl CannotConnect {
    fn because(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        Self(format!("{what}: {}", chain(error)))
    }
}

impl fmt::Display for CannotConnect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for CannotConnect {}

/// The version of an API server, such as 1.20.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

/// An API server. Clones share its connections.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: kube::Client,
    address: String,
    /// The name of a remote cluster, by which failures name it.
    name: Option<Arc<str>>,
}

/// Omits the credentials.
impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Cluster")
            .field(&self.address)
            .finish()
    }
}

impl Cluster {
    /// Reads the files that a connection needs. It sends nothing; a tokio runtime must be running.
    ///
    /// # Errors
    /// A file that is missing or not valid.
    pub async fn open(access: &Access) -> Result<Self, CannotConnect> {
        let access = access.clone();
        let runtime = tokio::runtime::Handle::current();
        // Both a pod's account and a kubeconfig name files, and reading each of them may hang.
        let read = move || match access {
            Access::InCluster => Config::incluster()
                .map_err(|error| CannotConnect::because("cannot use the pod's account", &error)),
            Access::Kubeconfig { file, context } => {
                runtime.block_on(from_kubeconfig(file.as_ref(), context))
            }
        };
        let config = tokio::task::spawn_blocking(read).await;
        let config = config.map_err(|error| CannotConnect::because(WHAT, &error))??;
        // A kubeconfig may name a credential plugin: it runs to its end meanwhile.
        let result = tokio::task::spawn_blocking(move || Self::by(config)).await;
        result.map_err(|error| CannotConnect::because(WHAT, &error))?
    }

    /// Connects by a kubeconfig of untrusted origin: it may not name files or programs of this machine.
    ///
    /// # Errors
    /// A text that is not valid, or wants more than it may.
    pub(crate) async fn of_kubeconfig(text: &[u8]) -> Result<Self, CannotConnect> {
        let refused = |why: String| CannotConnect(format!("{WHAT}: {why}"));
        let read = kubeconfig::read(text).map_err(refused)?;
        if let Some(what) = beyond(&read) {
            return Err(refused(format!("{what} is not allowed here")));
        }
        // It names no file and no program (`beyond`), so nothing here can hang.
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .map_err(|error| CannotConnect::because(WHAT, &error))?;
        Self::by(config)
    }

    fn by(mut config: Config) -> Result<Self, CannotConnect> {
        let refused = |why: String| CannotConnect(format!("{WHAT}: {why}"));
        config.cluster_url = server::url(&config).map_err(refused)?;
        // It is logged and shown: a user and a password in it are not.
        let address = config.cluster_url.to_string();
        let address = api::url::without_credentials(&address).replace("…@", "");
        if config.proxy_url.is_some() {
            return Err(refused(format!(
                "{address} is behind a proxy (proxy-url), which is not supported"
            )));
        }
        // kube's layer would panic.
        if let Some(token) = &config.auth_info.token {
            token_file::bearer(token.expose_secret())
                .map_err(|why| CannotConnect(format!("cannot connect to {address}: {why}")))?;
        }
        let client = renewal::renewing(config, &address)?;
        Ok(Self {
            client,
            address,
            name: None,
        })
    }

    /// Names a remote cluster. The log has lines of several then, and an operator must see which one a line is about.
    #[must_use]
    pub(crate) fn named(self, name: &str) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }

    /// The name of a remote cluster; `None` of the local one.
    pub(crate) const fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// A request to this cluster that failed.
    pub(crate) fn failure(&self, action: &Action, cause: Cause) -> Failure {
        Failure {
            cluster: self.name.clone(),
            action: action.clone(),
            cause,
        }
    }

    /// Creates a client without TLS and without credentials.
    #[cfg(test)]
    pub(crate) fn plain(address: &str) -> Self {
        let mut config = Config::new(address.parse().unwrap());
        // Roots of its own, so that this machine's are not read.
        config.root_cert = Some(Vec::new());
        Self {
            client: client(&config).unwrap(),
            address: address.to_owned(),
            name: None,
        }
    }

    /// The address of the server.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(crate) const fn exchange<'a>(
        &'a self,
        action: &'a Action,
        within: Duration,
    ) -> Exchange<'a> {
        Exchange {
            client: &self.client,
            cluster: self.name.as_ref(),
            action,
            within,
        }
    }

    /// Returns the version of Kubernetes.
    ///
    /// # Errors
    /// The server does not answer, or not with a version.
    pub async fn version(&self) -> Result<Version, Failure> {
        #[derive(Deserialize)]
        struct Info {
            major: String,
            minor: String,
        }
        let action = Action {
            verb: "get",
            resource: "/version".to_owned(),
            name: None,
        };
        let request = http::Request::get("/version")
            .body(Vec::new())
            .map_err(kube::core::request::Error::BuildRequest);
        let info: Info = self.exchange(&action, REQUEST).json(request).await?;
        // Some servers report `20+`.
        let number = |text: &str| {
            let digits = text.find(|c: char| !c.is_ascii_digit());
            text.get(..digits.unwrap_or(text.len()))
                .and_then(|digits| digits.parse().ok())
        };
        match (number(&info.major), number(&info.minor)) {
            (Some(major), Some(minor)) => Ok(Version { major, minor }),
            (None, _) | (_, None) => {
                let version = format!("{:?}.{:?}", info.major, info.minor);
                Err(self.failure(&action, Cause::Malformed(version)))
            }
        }
    }

    /// The data of a ConfigMap.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn config_map(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, String>, Failure> {
        #[derive(Deserialize)]
        struct ConfigMap {
            #[serde(default)]
            data: Option<BTreeMap<String, String>>,
        }
        let action = Action {
            verb: "get",
            resource: CONFIG_MAPS.to_string(),
            name: Some(format!("{namespace}/{name}")),
        };
        let request =
            Request::new(CONFIG_MAPS.path(Some(namespace))).get(name, &GetParams::default());
        let map: ConfigMap = self.exchange(&action, REQUEST).json(request).await?;
        Ok(map.data.unwrap_or_default())
    }
}

/// The first setting of a kubeconfig that names a file or program of this machine.
fn beyond(read: &Kubeconfig) -> Option<&'static str> {
    let of_users = read.auth_infos.iter().find_map(|user| {
        let user = user.auth_info.as_ref()?;
        [
            (user.exec.is_some(), "exec"),
            (user.auth_provider.is_some(), "auth-provider"),
            (user.token_file.is_some(), "tokenFile"),
            (user.client_certificate.is_some(), "client-certificate"),
            (user.client_key.is_some(), "client-key"),
        ]
        .into_iter()
        .find_map(|(there, name)| there.then_some(name))
    });
    let of_clusters = read.clusters.iter().find_map(|cluster| {
        let file = cluster.cluster.as_ref()?.certificate_authority.as_ref();
        file.map(|_| "certificate-authority")
    });
    of_users.or(of_clusters)
}

async fn from_kubeconfig(
    file: Option<&PathBuf>,
    context: Option<String>,
) -> Result<Config, CannotConnect> {
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let read = kubeconfig::find(file.map(PathBuf::as_path))?;
    let what = match file {
        Some(file) => format!("{WHAT} {}", file.display()),
        None => WHAT.to_owned(),
    };
    Config::from_custom_kubeconfig(read, &options)
        .await
        .map_err(|error| CannotConnect::because(&what, &error))
}

/// Builds kube's own client, but for the connection and for its retries: the caller of a request decides on those.
fn client(config: &Config) -> Result<kube::Client, kube::Error> {
    let mut connector = HttpConnector::new();
    // The TLS connector dials by this one, which refuses https URLs by default.
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let http: hyper_util::client::legacy::Client<_, kube::client::Body> =
        hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(service_fn(move |request| {
            let http = http.clone();
            async move { send(&http, request).await.map_err(BoxError::from) }
        }));
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

#[cfg(test)]
mod tests;
