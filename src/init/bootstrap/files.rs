//! Reading the proxy's configuration where the user named a file.
#![forbid(unsafe_code)]

use std::io::{self, Read as _};
use std::path::Path;

use super::{BootstrapError, Object};
use crate::json::{self, Value};
use crate::regular;

/// The largest document, in bytes. Chosen: a bootstrap has tens of kilobytes, and a document takes up to forty
/// times its size in memory: with a wrong path the container must not run out of it.
pub(super) const DOCUMENT_BYTES: usize = 4 * 1024 * 1024;

/// The JSON object in `path`.
pub(super) fn read_object(object: Object, path: &Path) -> Result<Value, BootstrapError> {
    let bytes = read(path).map_err(|source| read_error(object, path, source))?;
    let path = path.to_owned();
    match json::parse(&bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(BootstrapError::NotAnObject { object, path }),
        Err(source) => Err(BootstrapError::Parse {
            object,
            path,
            source,
        }),
    }
}

/// Whether `path` could be the proxy's configuration, whatever its form (YAML, JSON or proto text).
pub(super) fn check(object: Object, path: &Path) -> Result<(), BootstrapError> {
    let has_content = regular::open(path).and_then(|mut file| file.read(&mut [0]));
    match has_content {
        Ok(0) => Err(read_error(object, path, io::Error::other("it is empty"))),
        Ok(_) => Ok(()),
        Err(source) => Err(read_error(object, path, source)),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    regular::read(path, DOCUMENT_BYTES as u64).map_err(|error| {
        if error.kind() == io::ErrorKind::FileTooLarge {
            io::Error::other("larger than 4 MiB")
        } else {
            error
        }
    })
}

fn read_error(object: Object, path: &Path, source: io::Error) -> BootstrapError {
    BootstrapError::Read {
        object,
        path: path.to_owned(),
        source,
    }
}
