//! Reloads the certificates of a port that requires client certificates: three files, read once they exist, and again when they
//! change. The port is closed until they exist.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::log_repeats::should_log_repeat;
use rustls::RootCertStore;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{error, info, warn};

use super::connections::Acceptor;
use crate::file;
use crate::file_states::{FileState, FileStates};
use crate::tls::{self, Pair, expiry};
use crate::watch::{ReloadFiles, ReloadIntervals, Watcher, run_reload_loop};

const INTERVALS: ReloadIntervals = ReloadIntervals {
    poll: Duration::from_secs(60),
    degraded: Duration::from_secs(10),
};
/// The interval while there are none, or half of a new pair.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The name of the three files together.
const NAME: &str = "certificates";

/// The paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificates {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    /// Clients' certificates chain to one of these.
    pub(crate) roots: PathBuf,
}

/// Reads them from now on, as long as the receiver lives. `states`: told how that went.
pub(crate) fn follow(
    certificates: Certificates,
    states: Option<Arc<FileStates>>,
) -> watch::Receiver<Option<Acceptor>> {
    let (current, watched) = watch::channel(None);
    let watcher = Watcher::new(certificates.paths().map(PathBuf::clone).to_vec());
    let files = RotatedCertificates {
        current,
        state: FileState {
            path: certificates.chain.clone(),
            ..FileState::default()
        },
        states,
        certificates,
        loaded: None,
        refused: None,
        failed: 0,
    };
    tokio::spawn(run_reload_loop(watcher, files));
    watched
}

/// The files, and what was read of them last.
struct RotatedCertificates {
    certificates: Certificates,
    current: watch::Sender<Option<Acceptor>>,
    /// The files of the current acceptor.
    loaded: Option<[Vec<u8>; 3]>,
    /// Digests of the last files that could not be used: the same ones count once.
    refused: Option<[String; 3]>,
    /// The number of reads since that could not be used.
    failed: u64,
    state: FileState,
    states: Option<Arc<FileStates>>,
}

impl ReloadFiles for RotatedCertificates {
    async fn reload(&mut self) -> Option<Duration> {
        match self.certificates.read().await {
            Ok(files) if self.loaded.as_ref() == Some(&files) => {
                // The files in use are back, so the next failure is a new one and is logged.
                self.failed = 0;
                self.report_state(None);
                None
            }
            Ok(files) => match self.certificates.acceptor(&files) {
                Ok((acceptor, not_after)) => {
                    self.state.not_after = Some(not_after);
                    self.replace(acceptor, files);
                    None
                }
                Err(cause) => Some(self.fail_to_use(&files, &cause)),
            },
            Err(cause) => Some(self.fail_to_read(&cause)),
        }
    }

    /// Each read is compared with the files in use.
    fn forget(&mut self) {}

    fn intervals(&self) -> ReloadIntervals {
        INTERVALS
    }

    async fn unused(&mut self) {
        self.current.closed().await;
    }
}

impl RotatedCertificates {
    fn report_state(&mut self, error: Option<String>) {
        self.state.error = error;
        if let Some(states) = &self.states {
            states.put(NAME, self.state.clone());
        }
    }

    fn replace(&mut self, acceptor: Acceptor, files: [Vec<u8>; 3]) {
        let before = self.current.send_replace(Some(acceptor));
        self.certificates.loaded(&files);
        self.loaded = Some(files);
        self.failed = 0;
        self.refused = None;
        self.state.good += 1;
        self.report_state(None);
        let chain = self.certificates.chain.display();
        let what = match before {
            None => "are there",
            Some(_) => "have changed",
        };
        info!("certificates of {chain} {what}");
    }

    fn fail_to_use(&mut self, files: &[Vec<u8>; 3], cause: &str) -> Duration {
        self.failed += 1;
        let digest = files.each_ref().map(|file| file::sha256(file));
        if self.refused.as_ref() != Some(&digest) {
            self.state.broken += 1;
            self.refused = Some(digest);
        }
        self.report_state(Some(cause.to_owned()));
        if should_log_repeat(self.failed) {
            let chain = self.certificates.chain.display();
            error!(
                "cannot use certificates of {chain}: {cause}{repeated}",
                repeated = api::times(self.failed)
            );
        }
        RETRY_INTERVAL
    }

    fn fail_to_read(&mut self, cause: &str) -> Duration {
        self.failed += 1;
        // A mesh without certificates has none that are broken.
        if self.loaded.is_some() || self.refused.is_some() {
            self.report_state(Some(cause.to_owned()));
        }
        // Retries come each second, so only the first failure is logged.
        if self.failed == 1 && self.current.borrow().is_none() {
            warn!("TLS ports are closed until there are certificates: {cause}");
        } else if self.failed == 1 {
            error!("{cause}; serving the last good certificates");
        }
        RETRY_INTERVAL
    }
}

impl Certificates {
    fn paths(&self) -> [&PathBuf; 3] {
        [&self.chain, &self.key, &self.roots]
    }

    /// # Errors
    /// The file that cannot be read, and the cause.
    async fn read(&self) -> Result<[Vec<u8>; 3], String> {
        let mut files: [Vec<u8>; 3] = Default::default();
        // A rotation between two reads yields a mismatch, which `acceptor` refuses; the retry reads all three
        // anew.
        for (path, file) in self.paths().into_iter().zip(&mut files) {
            *file = file::read(path)
                .await
                .map_err(|cause| format!("cannot read {}: {cause}", path.display()))?;
        }
        Ok(files)
    }

    /// The certificates in use.
    fn loaded(&self, [chain, _, roots]: &[Vec<u8>; 3]) {
        for (path, pem) in [(&self.chain, chain), (&self.roots, roots)] {
            expiry::loaded(path, &tls::certificates(pem).unwrap_or_default());
        }
    }

    /// Builds the acceptor of the next handshakes, and returns the end of its certificate.
    fn acceptor(
        &self,
        [chain, key, roots]: &[Vec<u8>; 3],
    ) -> Result<(Acceptor, SystemTime), String> {
        let pair = Pair::parse(chain, key);
        let pair = pair.map_err(|error| error.of_files(&self.chain, &self.key))?;
        let config = tls::server_of_clients(&pair, self.store(roots)?)?;
        Ok((TlsAcceptor::from(config), pair.not_after))
    }

    fn store(&self, roots: &[u8]) -> Result<RootCertStore, String> {
        tls::roots(roots).map_err(|cause| format!("{}: {cause}", self.roots.display()))
    }
}
