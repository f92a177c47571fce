//! Reading files that the user named: regular ones only, of a limited size, and never waiting for a writer.
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::{BootstrapError, Object};
use crate::json::{self, Value};
use crate::sys;

/// The largest file we read. A bootstrap has tens of kilobytes; a container of 64 MiB must survive a wrong path.
const FILE_BYTES: u64 = 8 * 1024 * 1024;

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
    let has_content = open(path).and_then(|mut file| file.read(&mut [0]));
    match has_content {
        Ok(0) => Err(read_error(object, path, io::Error::other("it is empty"))),
        Ok(_) => Ok(()),
        Err(source) => Err(read_error(object, path, source)),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells a full file from one that is too large; its size may not be known or may change.
    open(path)?.take(FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(io::Error::other("larger than 8 MiB"));
    }
    Ok(bytes)
}

/// A FIFO without a writer would stop PID 1 for good, and a terminal would become ours: open without either, then look.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(sys::OPEN_WITHOUT_WAITING)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

fn read_error(object: Object, path: &Path, source: io::Error) -> BootstrapError {
    BootstrapError::Read {
        object,
        path: path.to_owned(),
        source,
    }
}
