//! Kubeconfigs: text as kube's type of them, and their files.
//!
//! Their YAML is read by this workspace's reader: kube's own would bring another one, for kubeconfigs alone.

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use api::yaml::{self, Limits, Node, ResolvedScalar, Value};
use kube::config::Kubeconfig;
use serde_json::Value as Json;

use super::CannotConnect;
use crate::disk::Disk;
use crate::error_text::misread;

/// A kubeconfig with embedded certificates has some tens of kilobytes.
pub(super) const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    depth: 64,
    nodes: 100_000,
};

pub(super) const WHAT: &str = "cannot use the kubeconfig";

/// Opens the named file, or those of `KUBECONFIG`, or the one in the home directory. If several files have a field, the first
/// value counts.
pub(super) fn find(file: Option<&Path>) -> Result<Kubeconfig, CannotConnect> {
    if let Some(file) = file {
        return Ok(open(file)?);
    }
    let listed = env::var_os("KUBECONFIG").unwrap_or_default();
    let listed: Vec<PathBuf> = env::split_paths(&listed)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    if listed.is_empty() {
        let home = env::home_dir().ok_or_else(|| CannotConnect(format!("{WHAT}: no home")))?;
        return Ok(open(&home.join(".kube").join("config"))?);
    }
    merged(&listed)
}

/// Merges the files that exist. Like kubectl, it skips a missing file while there is another.
fn merged(files: &[PathBuf]) -> Result<Kubeconfig, CannotConnect> {
    let mut all = None;
    let mut missing = None;
    for file in files {
        let next = match open(file) {
            Ok(next) => next,
            Err(OpenError::Missing(why)) => {
                missing.get_or_insert(why);
                continue;
            }
            Err(OpenError::Unusable(why)) => return Err(why),
        };
        let before: Kubeconfig = all.unwrap_or_default();
        all = Some(before.merge(next).map_err(|error| {
            let what = format!("{WHAT} {}", file.display());
            CannotConnect::because(&what, &error)
        })?);
    }
    match (all, missing) {
        (None, Some(why)) => Err(why),
        (all, _) => Ok(all.unwrap_or_default()),
    }
}

/// A reason why a file is no kubeconfig.
enum OpenError {
    Missing(CannotConnect),
    Unusable(CannotConnect),
}

impl From<OpenError> for CannotConnect {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Missing(why) | OpenError::Unusable(why) => why,
        }
    }
}

fn open(file: &Path) -> Result<Kubeconfig, OpenError> {
    let what = format!("{WHAT} {}", file.display());
    let because = |error: std::io::Error| {
        let why = CannotConnect::because(&what, &error);
        if error.kind() == ErrorKind::NotFound {
            OpenError::Missing(why)
        } else {
            OpenError::Unusable(why)
        }
    };
    let (bytes, _) = Disk::default().read(file, LIMITS.bytes).map_err(because)?;
    let mut read =
        read(&bytes).map_err(|why| OpenError::Unusable(CannotConnect(format!("{what}: {why}"))))?;
    if let Some(folder) = file.parent() {
        beside(folder, &mut read);
    }
    Ok(read)
}

/// Merges the documents of a text: the first value of a field counts. Errors quote no value, which may be a secret.
pub(super) fn read(bytes: &[u8]) -> Result<Kubeconfig, String> {
    if bytes.len() > LIMITS.bytes {
        return Err(too_large());
    }
    let text = str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut all = Kubeconfig::default();
    for node in yaml::documents(text, LIMITS) {
        let node = node.map_err(|malformed| malformed.to_string())?;
        if node.is_null() {
            continue;
        }
        let next: Kubeconfig =
            serde_json::from_value(json(&node)).map_err(|error| misread(&error))?;
        all = all.merge(next).map_err(|error| error.to_string())?;
    }
    Ok(all)
}

fn too_large() -> String {
    format!("it is larger than {} bytes", LIMITS.bytes)
}

/// Converts YAML to JSON. A kubeconfig has no numbers: a plain scalar that looks like one is a name, a token or a password.
fn json(node: &Node) -> Json {
    match &node.value {
        Value::Scalar(scalar) => match scalar.resolve() {
            ResolvedScalar::Null => Json::Null,
            ResolvedScalar::Bool(value) => Json::Bool(value),
            ResolvedScalar::Int(_) | ResolvedScalar::Float(_) | ResolvedScalar::Text => {
                Json::String(scalar.text.clone())
            }
        },
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => {
            let entries = entries.iter();
            Json::Object(
                entries
                    .map(|(name, node)| (name.clone(), json(node)))
                    .collect(),
            )
        }
    }
}

/// Paths in a file begin where it lies; so do those of programs that are no plain names.
fn beside(folder: &Path, read: &mut Kubeconfig) {
    let place = |path: &mut Option<String>| {
        if let Some(relative) = path.as_deref().filter(|path| Path::new(path).is_relative()) {
            *path = folder.join(relative).to_str().map(str::to_owned);
        }
    };
    for cluster in read
        .clusters
        .iter_mut()
        .filter_map(|entry| entry.cluster.as_mut())
    {
        place(&mut cluster.certificate_authority);
    }
    for user in read
        .auth_infos
        .iter_mut()
        .filter_map(|entry| entry.auth_info.as_mut())
    {
        place(&mut user.client_certificate);
        place(&mut user.client_key);
        place(&mut user.token_file);
        if let Some(exec) = &mut user.exec
            && exec
                .command
                .as_ref()
                .is_some_and(|command| command.contains('/'))
        {
            place(&mut exec.command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_merged_and_the_first_counts() {
        let text = "\u{feff}current-context: a\nclusters: [{name: 1, cluster: {server: 'http://a', insecure-skip-tls-verify: true}}]\n\
                    users: [{name: u, user: {username: me, password: 0123, exec: {command: x, args: [1]}}}]\n---\n---\n\
                    current-context: b\ncontexts: [{name: b, context: {cluster: '1', user: u}}]\nclusters: [{name: '1'}]\n";
        let read = read(text.as_bytes()).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("a"));
        assert_eq!(read.contexts.len(), 1);
        assert_eq!((read.clusters.len(), &*read.clusters[0].name), (1, "1"));
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.insecure_skip_tls_verify, Some(true));
        let user = read.auth_infos[0].auth_info.as_ref().unwrap();
        let args = user.exec.as_ref().unwrap().args.as_ref().unwrap();
        assert_eq!(args, &["1"]);
        assert!(super::read(b"").unwrap().clusters.is_empty());
    }

    #[test]
    fn files_that_do_not_exist_are_skipped_while_there_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let [there, malformed, missing, other] =
            ["there", "malformed", "missing", "other"].map(|name| folder.path().join(name));
        std::fs::write(&there, "current-context: a").unwrap();
        std::fs::write(&malformed, "a: {").unwrap();
        let kubeconfig = merged(&[missing.clone(), there.clone(), other.clone()]).unwrap();
        assert_eq!(kubeconfig.current_context.as_deref(), Some("a"));
        let refused = |files: &[PathBuf]| merged(files).unwrap_err().to_string();
        assert!(refused(&[missing.clone(), other]).contains("missing"));
        assert!(refused(&[missing, there, malformed]).contains("malformed"));
    }

    #[test]
    fn errors_of_a_kubeconfig_show_no_secret() {
        for (text, part) in [
            (
                "users: [{name: u, user: hush}]",
                "a value is not struct AuthInfo",
            ),
            (
                "users: [{name: u, user: {token: [hush]}}]",
                "a value is not a string",
            ),
            ("users: {u: hush}", "a value is not a sequence"),
            ("users: [{user: {token: hush}}]", "missing field `name`"),
            ("kind: Config\n---\nkind: Hush\n", "mismatching kind"),
            ("a: 1\nb: {", "line "),
            ("a: 1\na: hush", "line 2: the key \"a\" twice"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{error}");
            assert!(!error.contains("hush"), "{error}");
        }
        assert_eq!(read(b"\xff").unwrap_err(), "it is no text");
    }

    #[test]
    fn paths_begin_where_the_file_lies() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let text = "clusters: [{name: c, cluster: {certificate-authority: ca.pem}}]\nusers:\n\
                    - {name: u, user: {client-certificate: a/b.pem, client-key: /k.pem, tokenFile: t, exec: {command: ./bin/x}}}\n\
                    - {name: v, user: {exec: {command: aws}}}\n";
        std::fs::write(&file, text).unwrap();
        let read = find(Some(&file)).unwrap();
        let here = |name: &str| Some(folder.path().join(name).to_str().unwrap().to_owned());
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.certificate_authority, here("ca.pem"));
        let user = |at: usize| read.auth_infos[at].auth_info.as_ref().unwrap();
        assert_eq!(user(0).client_certificate, here("a/b.pem"));
        assert_eq!(user(0).client_key.as_deref(), Some("/k.pem"));
        assert_eq!(user(0).token_file, here("t"));
        let command = |at: usize| user(at).exec.as_ref().unwrap().command.clone();
        assert_eq!(command(0), here("./bin/x"));
        assert_eq!(command(1).as_deref(), Some("aws"));
    }
}
