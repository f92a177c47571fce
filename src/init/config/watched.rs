//! The files that count as configuration, and their order.

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::layers::Layers;
use super::{ConfigError, WatchedFiles};
use crate::values::Role;

/// A certificate with its key and the root that signs the other side's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Certificates<'l> {
    pub(super) chain: &'l str,
    pub(super) key: &'l str,
    pub(super) root: &'l str,
}

impl<'l> Certificates<'l> {
    /// The certificate of the proxy as a client, the control plane's included.
    pub(super) fn client(layers: &'l Layers<'_>) -> Self {
        let path = |name, default| layers.variable(name).unwrap_or(default);
        Self {
            chain: path("ISTIO_META_TLS_CLIENT_CERT_CHAIN", CHAIN),
            key: path("ISTIO_META_TLS_CLIENT_KEY", KEY),
            root: path("ISTIO_META_TLS_CLIENT_ROOT_CERT", ROOT),
        }
    }

    fn server(layers: &'l Layers<'_>) -> Self {
        let path = |name, default| layers.variable(name).unwrap_or(default);
        Self {
            chain: path("ISTIO_META_TLS_SERVER_CERT_CHAIN", CHAIN),
            key: path("ISTIO_META_TLS_SERVER_KEY", KEY),
            root: path("ISTIO_META_TLS_SERVER_ROOT_CERT", ROOT),
        }
    }
}

const CHAIN: &str = "/etc/certs/cert-chain.pem";
const KEY: &str = "/etc/certs/key.pem";
const ROOT: &str = "/etc/certs/root-cert.pem";

/// `documents`: the custom, template and override files. `mutual_tls`: the certificates must be there at the start.
pub(super) fn watch(
    layers: &Layers<'_>,
    mutual_tls: bool,
    documents: [Option<&Path>; 3],
    warnings: &mut Vec<String>,
) -> WatchedFiles {
    let mut paths = Vec::new();
    let mut required = Vec::new();
    if layers.switch("watch-certificates") {
        for certificates in [Certificates::server(layers), Certificates::client(layers)] {
            for path in [certificates.chain, certificates.key, certificates.root] {
                add(&mut paths, path.as_ref());
            }
        }
        if mutual_tls {
            required.clone_from(&paths);
        }
        if layers.args.role == Role::Ingress {
            for path in INGRESS {
                add(&mut paths, path.as_ref());
            }
        }
    }
    let unwritten = matches!(documents, [Some(_), _, None]);
    for watched in layers.args.flags.list("watch").map(Path::new) {
        for target in layers.args.flags.list("log-target") {
            if !matches!(target, "stdout" | "stderr" | "") {
                refuse_own(layers, watched, "--log-target", target.as_ref());
            }
        }
        // With a custom file and no override for it the agent writes no configuration.
        if !unwritten {
            let own = layers.text("config-path");
            refuse_own(layers, watched, "--config-path", own.as_ref());
        }
        if fs::metadata(watched).is_err() {
            let path = watched.to_string_lossy();
            warnings.push(["--watch ", &path, " is not there yet"].concat());
        }
        add(&mut paths, watched);
    }
    for path in documents.into_iter().flatten() {
        add(&mut paths, path);
    }
    WatchedFiles { paths, required }
}

/// Notes it where what the agent writes, as `flag` says, is watched.
fn refuse_own(layers: &Layers<'_>, watched: &Path, flag: &str, own: &Path) {
    if covers(watched, own) {
        let watched = ["--watch ", &watched.to_string_lossy()].concat();
        let cause = "the agent writes there itself, and each line or file would be a change";
        layers.refuse(ConfigError::contradiction(&watched, flag, cause));
    }
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
fn add(paths: &mut Vec<PathBuf>, path: &Path) {
    if !paths.iter().any(|known| known == path) {
        paths.push(path.to_path_buf());
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
