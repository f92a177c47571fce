//! Reading the proxy's configuration where the user named a file.
#![forbid(unsafe_code)]

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::BootstrapError;
use crate::json::{self, Map, Value};
use crate::regular;

/// The largest document, in bytes. Chosen: a bootstrap has tens of kilobytes, and a document takes up to forty
/// times its size in memory: with a wrong path the container must not run out of it.
pub(super) const DOCUMENT_BYTES: usize = 4 * 1024 * 1024;

/// The role of a file for us.
pub(super) const TEMPLATE: &str = "template";
pub(super) const OVERRIDE: &str = "bootstrap override";
pub(super) const CUSTOM: &str = "custom configuration";

/// The client's certificate, its key and the root: the key of metadata, and the file where that says nothing.
const CLIENT_FILES: [(&str, &str); 3] = [
    ("TLS_CLIENT_CERT_CHAIN", "/etc/certs/cert-chain.pem"),
    ("TLS_CLIENT_KEY", "/etc/certs/key.pem"),
    ("TLS_CLIENT_ROOT_CERT", "/etc/certs/root-cert.pem"),
];

/// The first of those files that is not there. The control plane names them to the proxy by the same metadata.
pub(super) fn missing_certificate(metadata: &Map, seen: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut named = CLIENT_FILES.iter().map(|(key, usual)| {
        let named = metadata.get(key).and_then(Value::as_str);
        Path::new(named.filter(|path| !path.is_empty()).unwrap_or(usual))
    });
    let missing = named.find(|path| !seen(path) && !path.exists());
    missing.map(Path::to_path_buf)
}

/// The JSON object in `path`.
pub(super) fn read_object(object: &str, path: &Path) -> Result<Value, BootstrapError> {
    let bytes = read(path).map_err(|error| read_error(object, path, &error))?;
    parse(object, path, &bytes)
}

/// The JSON object in `bytes`, which are from `path`.
pub(super) fn parse(object: &str, path: &Path, bytes: &[u8]) -> Result<Value, BootstrapError> {
    let wrong = |verb, why| Err(BootstrapError::new(verb, object, path, why));
    match json::parse(bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => wrong("use", ": not a JSON object"),
        Err(error) => wrong("parse", &[": ", &error.to_string()].concat()),
    }
}

/// Whether `path` could be the proxy's configuration, whatever its form (YAML, JSON or proto text).
pub(super) fn check(object: &str, path: &Path) -> Result<(), BootstrapError> {
    let has_content = regular::open(path).and_then(|mut file| file.read(&mut [0]));
    match has_content {
        Ok(0) => Err(read_error(
            object,
            path,
            &sys::error("it is empty".to_owned()),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(read_error(object, path, &error)),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    regular::read(path, DOCUMENT_BYTES as u64).map_err(|error| {
        if error.kind() == io::ErrorKind::FileTooLarge {
            sys::error("larger than 4 MiB".to_owned())
        } else {
            error
        }
    })
}

fn read_error(object: &str, path: &Path, error: &io::Error) -> BootstrapError {
    BootstrapError::new("read", object, path, &[": ", &error.to_string()].concat())
}
