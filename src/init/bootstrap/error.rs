//! Why there is no bootstrap.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::Path;

/// A bootstrap that cannot be rendered, in words. At start it is exit 78; later the running epoch is kept.
#[derive(Debug)]
pub struct BootstrapError(String);

impl BootstrapError {
    /// `cannot read template /t.json: not a regular file`.
    #[cold]
    pub(super) fn new(verb: &str, object: &str, path: &Path, why: &str) -> Self {
        let path = path.to_string_lossy();
        Self(["cannot ", verb, " ", object, " ", &path, why].concat())
    }
}

impl fmt::Display for BootstrapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BootstrapError {}
