//! Which files count as configuration, in which order.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::layers::Layers;
use super::{ConfigError, Role, Watch};

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
    let own = own_files(layers, documents.first().is_some_and(Option::is_some));
    for watched in layers.args.flags.list("watch").map(Path::new) {
        if let Some((flag, _)) = own.iter().find(|(_, own)| covers(watched, own)) {
            let watched = ["--watch ", &watched.to_string_lossy()].concat();
            let cause = "the agent writes there itself, and each line or file would be a change";
            layers.refuse(ConfigError::contradiction(&watched, flag, cause));
        }
        add(&mut paths, std::iter::once(watched.to_path_buf()));
    }
    add(&mut paths, documents.into_iter().flatten());
    Watch { paths, required }
}

/// What the agent writes, and the flag for it. `custom`: it writes no configuration.
fn own_files<'l>(layers: &'l Layers<'_>, custom: bool) -> Vec<(&'static str, &'l Path)> {
    let logs = layers.args.flags.list("log-target");
    let mut own: Vec<_> = logs
        .filter(|target| !matches!(*target, "stdout" | "stderr" | ""))
        .map(|target| ("--log-target", Path::new(target)))
        .collect();
    if !custom {
        own.push(("--config-path", Path::new(layers.given("config-path").text)));
    }
    own
}

/// Whether `own`, or what will be there, is `watched` or lies below it; links and bind mounts are seen through.
fn covers(watched: &Path, own: &Path) -> bool {
    /// Far more directories than a path has.
    const LEVELS: usize = 64;
    if own.starts_with(watched) {
        return true;
    }
    let inode = |path: &Path| {
        fs::metadata(path)
            .map(|found| (found.dev(), found.ino()))
            .ok()
    };
    let Some(watched) = inode(watched) else {
        return false;
    };
    if inode(own) == Some(watched) {
        return true;
    }
    // The nearest directory that is there, and from it up as the kernel goes.
    let mut above = own.to_path_buf();
    while !above.as_os_str().is_empty() && !above.is_dir() {
        above.pop();
    }
    if above.as_os_str().is_empty() {
        above.push(".");
    }
    for _ in 0..LEVELS {
        if inode(&above) == Some(watched) {
            return true;
        }
        above.push("..");
    }
    false
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn own_files_are_found_below_what_is_watched_through_links_and_before_they_are_there() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::create_dir(at("other")).unwrap();
        fs::write(at("a/log"), "").unwrap();
        symlink(at("a/b"), at("link")).unwrap();
        symlink(at("a/log"), at("other/log")).unwrap();
        for (watched, own) in [
            ("a", "a"),
            ("a", "a/b/"),
            ("a/", "a/b/not/yet"),
            ("a", "link"),
            ("a", "link/c"),
            ("a", "link/c/not/yet"),
            ("a/b", "link/c"),
            ("link", "a/b/c"),
            ("a/b", "link"),
            ("a/log", "other/log"),
            ("other/log", "a/log"),
            ("", "a/b"),
            ("absent", "absent/run"),
        ] {
            assert!(covers(&at(watched), &at(own)), "{watched} over {own}");
        }
        for (watched, own) in [
            ("a/b", "a"),
            ("a/b", "a/log"),
            ("other", "a/b"),
            ("a/b", "a/bc"),
            ("absent", "a"),
            ("a/log", "a"),
        ] {
            assert!(!covers(&at(watched), &at(own)), "{watched} over {own}");
        }
    }
}
