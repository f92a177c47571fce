//! Reloads certificates when their files change: a chain and its key, and a CA bundle. A certificate that is not valid leaves the last
//! good one in use.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::Instant;

use super::{Current, Pair, PairError, certificates, expiry, is_bundle};
use crate::config_file::{AtStart, FileCounters, FlaggedFile, RETRY_INTERVAL, ReloadedFile};
use crate::file;

/// The time for which a mismatch of certificate and key counts as an incomplete update, and is retried.
pub(crate) const HALF_WAY: Duration = Duration::from_secs(10);
/// The delay between two such tries.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// A chain and its key.
#[derive(Debug)]
pub(crate) struct PairFiles {
    chain: ReloadedFile,
    key: ReloadedFile,
    half_way_since: Option<Instant>,
    current: Arc<Current>,
    /// The last good one; `None`: there was none yet.
    pub(crate) pair: watch::Sender<Option<Pair>>,
}

impl PairFiles {
    pub(crate) fn new(chain: FlaggedFile, key: FlaggedFile, at_start: AtStart) -> Self {
        Self {
            chain: ReloadedFile::new(chain, at_start),
            key: ReloadedFile::new(key, at_start),
            half_way_since: None,
            current: Current::empty(),
            pair: watch::Sender::new(None),
        }
    }

    /// The certificate of new connections.
    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current)
    }

    pub(crate) fn files(&self) -> [&ReloadedFile; 2] {
        [&self.chain, &self.key]
    }

    /// Returns the reason why there is no pair, in one line.
    pub(crate) fn error(&self) -> Option<String> {
        self.files().into_iter().find_map(ReloadedFile::error_line)
    }

    /// Makes the next read a change of both.
    pub(crate) fn forget(&mut self) {
        self.chain.forget();
        self.key.forget();
    }

    /// Reads changed files; returns the time of the next look after an incomplete update.
    pub(crate) async fn reload(
        &mut self,
        counts: &dyn FileCounters,
        now: SystemTime,
    ) -> Option<Duration> {
        let (chain, key) = (&mut self.chain, &mut self.key);
        let is_first = !chain.was_read() && !key.was_read();
        let (bytes_of_chain, bytes_of_key) = (chain.changed().await, key.changed().await);
        let hangs = (chain.hangs() || key.hangs()).then_some(RETRY_INTERVAL);
        let fresh = bytes_of_chain.is_some() || bytes_of_key.is_some();
        if fresh && !is_first {
            self.half_way_since = None;
        }
        if !fresh && self.half_way_since.is_none() {
            return hangs;
        }
        let mut bytes = [Vec::new(), Vec::new()];
        let mut readable = true;
        // Both are read again, whichever has changed, so that they are of one moment.
        for (file, bytes) in [&mut *chain, &mut *key].into_iter().zip(&mut bytes) {
            match file::read(&file.named().path).await {
                Ok(read) => *bytes = read,
                Err(cause) => {
                    file.broken(counts, &cause.to_string());
                    readable = false;
                }
            }
        }
        if !readable {
            return hangs;
        }
        let [bytes_of_chain, bytes_of_key] = &bytes;
        match Pair::parse(bytes_of_chain, bytes_of_key) {
            Ok(pair) => {
                self.half_way_since = None;
                chain.good(counts, now);
                key.good(counts, now);
                expiry::loaded(&chain.named().path, &pair.key.cert);
                self.current.set(&pair);
                self.pair.send_replace(Some(pair));
            }
            Err(PairError::Chain(cause)) => chain.broken(counts, &cause),
            Err(PairError::Key(cause)) => key.broken(counts, &cause),
            Err(PairError::Mismatch) => {
                let since = *self.half_way_since.get_or_insert_with(Instant::now);
                if since.elapsed() < HALF_WAY {
                    return Some(TRY_AGAIN);
                }
                self.half_way_since = None;
                let chain = chain.named().path.display();
                key.broken(
                    counts,
                    &format!("it does not match the certificate in {chain}"),
                );
            }
        }
        None
    }
}

/// The result of reading a bundle.
#[derive(Debug)]
pub(crate) enum BundleRead {
    Same,
    /// PEM that webhook configurations can hold.
    New(Arc<str>),
    /// The last good bundle is kept.
    Broken,
}

/// The certificates of a CA, as a file.
#[derive(Debug)]
pub(crate) struct BundleFile(pub(crate) ReloadedFile);

impl BundleFile {
    pub(crate) fn new(flagged_file: FlaggedFile) -> Self {
        Self(ReloadedFile::new(flagged_file, AtStart::Optional))
    }

    pub(crate) async fn reload(
        &mut self,
        counts: &dyn FileCounters,
        now: SystemTime,
    ) -> BundleRead {
        let read = match self.0.changed().await {
            None => return BundleRead::Same,
            Some(read) => read
                .and_then(utf8)
                .and_then(|pem| is_bundle(pem.as_bytes()).map(|()| pem)),
        };
        match read {
            Ok(pem) => {
                self.0.good(counts, now);
                // A valid bundle has certificates.
                let all = certificates(pem.as_bytes()).unwrap_or_default();
                expiry::loaded(&self.0.named().path, &all);
                BundleRead::New(pem.into())
            }
            Err(cause) => {
                self.0.broken(counts, &cause);
                BundleRead::Broken
            }
        }
    }
}

/// Decodes the text of a file.
///
/// # Errors
/// The file is not UTF-8.
pub(crate) fn utf8(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}
