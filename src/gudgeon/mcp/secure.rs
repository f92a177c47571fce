//! Files of TLS towards others, read anew for each connection: what changes holds from the next one on.

use std::path::{Path, PathBuf};

use crate::file;
use crate::tls::{self, Pair, Secure, expiry};

/// The paths, and the identity that a server must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CredentialFiles {
    /// `None`: any server is trusted.
    pub(crate) roots: Option<PathBuf>,
    /// Chain and key.
    pub(crate) pair: Option<(PathBuf, PathBuf)>,
    /// Names that a server may have; empty: the one that was dialled.
    pub(crate) names: Vec<String>,
    /// The name that is dialled, where it is not the host's.
    pub(crate) server: Option<String>,
}

impl CredentialFiles {
    /// # Errors
    /// The missing or invalid file.
    pub(super) async fn read(&self) -> Result<(Secure, Option<String>), String> {
        let roots = match &self.roots {
            Some(path) => {
                let pem = read(path).await?;
                let roots = at(path, tls::roots(&pem))?;
                expiry::loaded(path, &tls::certificates(&pem).unwrap_or_default());
                Some(roots)
            }
            None => None,
        };
        let pair = match &self.pair {
            Some((chain, key)) => {
                let pair = Pair::parse(&read(chain).await?, &read(key).await?);
                let pair = pair.map_err(|error| error.of_files(chain, key))?;
                expiry::loaded(chain, &pair.key.cert);
                Some(pair)
            }
            None => None,
        };
        let secure = Secure {
            roots,
            names: self.names.clone(),
            pair,
        };
        Ok((secure, self.server.clone()))
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    let read = file::read(path).await;
    read.map_err(|cause| format!("cannot read {}: {cause}", path.display()))
}

fn at<T>(path: &Path, read: Result<T, String>) -> Result<T, String> {
    read.map_err(|cause| format!("{}: {cause}", path.display()))
}
