//! Certificates of a port with client certificates, and their rotation: three files, read once they exist, and again when
//! they change. Until then the port is closed.

use std::path::PathBuf;
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use rustls::RootCertStore;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{error, info, warn};

use super::connections::Acceptor;
use crate::file;
use crate::tls::{self, Pair, PairError, expiry};
use crate::watch::{ChangeSource as _, Watcher};

/// The interval of reloads without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// The same while there are none, or half of a new pair.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Certificates {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    /// Clients' certificates chain to one of these.
    pub(crate) roots: PathBuf,
}

/// Reads them from now on, as long as the receiver lives.
pub(crate) fn follow(certificates: Certificates) -> watch::Receiver<Option<Acceptor>> {
    let (current, watched) = watch::channel(None);
    tokio::spawn(run_reload_loop(certificates, current));
    watched
}

/// Reads them for ever.
async fn run_reload_loop(certificates: Certificates, current: watch::Sender<Option<Acceptor>>) {
    let mut watcher = Watcher::new(certificates.paths().map(PathBuf::clone).to_vec());
    let mut seen: Option<[Vec<u8>; 3]> = None;
    let mut failed: u64 = 0;
    let chain = certificates.chain.display();
    watcher.follow().await;
    loop {
        let mut pause = POLL_INTERVAL;
        match certificates.read().await {
            Ok(files) if seen.as_ref() == Some(&files) => failed = 0,
            Ok(files) => match certificates.acceptor(&files) {
                Ok(acceptor) => {
                    let first = current.borrow().is_none();
                    current.send_replace(Some(acceptor));
                    certificates.loaded(&files);
                    seen = Some(files);
                    failed = 0;
                    let what = if first { "are there" } else { "have changed" };
                    info!("certificates of {chain} {what}");
                }
                Err(cause) => {
                    failed += 1;
                    pause = RETRY_INTERVAL;
                    if should_log_repeat(failed) {
                        error!(
                            "cannot use certificates of {chain}: {cause}{repeated}",
                            repeated = api::times(failed)
                        );
                    }
                }
            },
            Err(cause) => {
                pause = RETRY_INTERVAL;
                failed += 1;
                if failed == 1 && current.borrow().is_none() {
                    warn!("TLS ports are closed until there are certificates: {cause}");
                } else if failed == 1 {
                    error!("{cause}; serving the last good certificates");
                }
            }
        }
        tokio::select! {
            () = watcher.due(pause) => {}
            () = current.closed() => return,
        }
    }
}

impl Certificates {
    fn paths(&self) -> [&PathBuf; 3] {
        [&self.chain, &self.key, &self.roots]
    }

    /// # Errors
    /// Which cannot be read, and why.
    async fn read(&self) -> Result<[Vec<u8>; 3], String> {
        let mut files: [Vec<u8>; 3] = Default::default();
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

    /// Builds the acceptor of the next handshakes.
    fn acceptor(&self, [chain, key, roots]: &[Vec<u8>; 3]) -> Result<Acceptor, String> {
        let pair = self.pair(chain, key)?;
        let config = tls::server_of_clients(&pair, self.store(roots)?)?;
        Ok(TlsAcceptor::from(config))
    }

    fn pair(&self, chain: &[u8], key: &[u8]) -> Result<Pair, String> {
        let (at, of) = (self.chain.display(), self.key.display());
        Pair::parse(chain, key).map_err(|flaw| match flaw {
            PairError::Chain(cause) => format!("{at}: {cause}"),
            PairError::Key(cause) => format!("{of}: {cause}"),
            PairError::Mismatch => format!("{at} and {of} do not match"),
        })
    }

    fn store(&self, roots: &[u8]) -> Result<RootCertStore, String> {
        tls::roots(roots).map_err(|cause| format!("{}: {cause}", self.roots.display()))
    }
}
