//! Which files count as configuration, in which order.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use super::layers::Layers;
use super::{Role, Watch};

/// A certificate with its key and the root that signs the other side's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Certificates {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    pub(super) root: PathBuf,
}

impl Certificates {
    /// Of the proxy as a client, the control plane's included.
    pub(super) fn client(layers: &Layers<'_>) -> Self {
        Self::of(
            layers,
            [
                "ISTIO_META_TLS_CLIENT_CERT_CHAIN",
                "ISTIO_META_TLS_CLIENT_KEY",
                "ISTIO_META_TLS_CLIENT_ROOT_CERT",
            ],
        )
    }

    fn server(layers: &Layers<'_>) -> Self {
        Self::of(
            layers,
            [
                "ISTIO_META_TLS_SERVER_CERT_CHAIN",
                "ISTIO_META_TLS_SERVER_KEY",
                "ISTIO_META_TLS_SERVER_ROOT_CERT",
            ],
        )
    }

    fn of(layers: &Layers<'_>, [chain, key, root]: [&str; 3]) -> Self {
        let path = |name, default: &str| PathBuf::from(layers.variable(name).unwrap_or(default));
        Self {
            chain: path(chain, "/etc/certs/cert-chain.pem"),
            key: path(key, "/etc/certs/key.pem"),
            root: path(root, "/etc/certs/root-cert.pem"),
        }
    }

    fn paths(self) -> [PathBuf; 3] {
        [self.chain, self.key, self.root]
    }
}

/// `documents`: the custom, template and override files. `mutual_tls`: the certificates must be there at the start.
pub(super) fn watch(
    layers: &Layers<'_>,
    mutual_tls: bool,
    documents: [Option<PathBuf>; 3],
) -> Watch {
    let mut paths = Vec::new();
    let mut required = Vec::new();
    if layers.switch("watch-certificates") {
        let server = Certificates::server(layers).paths();
        add(
            &mut paths,
            server
                .into_iter()
                .chain(Certificates::client(layers).paths()),
        );
        if mutual_tls {
            required.clone_from(&paths);
        }
        if layers.args.role == Role::Ingress {
            add(&mut paths, INGRESS.iter().map(PathBuf::from));
        }
    }
    add(
        &mut paths,
        layers.args.flags.list("watch").map(PathBuf::from),
    );
    add(&mut paths, documents.into_iter().flatten());
    Watch { paths, required }
}

/// Each once, the first place counts.
fn add(paths: &mut Vec<PathBuf>, more: impl Iterator<Item = PathBuf>) {
    for path in more {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
}

const INGRESS: [&str; 2] = [
    "/etc/istio/ingress-certs/tls.crt",
    "/etc/istio/ingress-certs/tls.key",
];
