//! Dials a sink, with backoff (`--sinkAddress`): the source is the client there, and sends a trigger first.

use std::sync::Arc;

use api::backoff::Backoff;
use api::log_repeats::should_log_repeat;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hyper::header::{HeaderName, HeaderValue};
use mcp::collections::Collections;
use mcp::limits::BACKOFF;
use mcp::source::{Dialer, Source};
use tokio::sync::watch;
use tonic::{Code, Status};
use tracing::{info, warn};

use super::dialled_peer::DialledPeer;
use super::peers::{Direction, Peers};
use super::redacted_snapshots::SinkSnapshots;
use super::secure::CredentialFiles;
use super::server::VALUES;
use super::source_stream::{SourceContext, SourceStream};
use super::wire::ResponsePieces;
use super::{SINK, Snapshots};
use crate::cli::VERSION;
use crate::clock::chance;
use crate::exit::Failure;
use crate::grpc::{Address, Bounds, DialAddress, Peer};
use crate::log_rate_limiter::LogRateLimiter;
use crate::serve::Shutdown;

/// Log lines in a minute, about streams that begin and about those that end.
const LOG_LINES: u32 = 10;

/// The values of binary metadata: base64, with padding or without.
const BINARY: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The settings by the flags.
#[derive(Clone, Debug)]
pub(crate) struct SourceDialer {
    place: DialAddress,
    tls: Option<CredentialFiles>,
    metadata: Vec<(HeaderName, HeaderValue)>,
    received: usize,
}

impl SourceDialer {
    /// Creates a dialler. `mode` is `--sinkAuthMode`, `files` are the certificates if the mode needs them, `meta` is
    /// `--sinkMeta`; `received` limits the bytes of an answer.
    ///
    /// # Errors
    /// The flag that cannot be used.
    pub(crate) fn new(
        address: &str,
        mode: &str,
        files: CredentialFiles,
        meta: &[String],
        received: usize,
    ) -> Result<Self, Failure> {
        let wrong = |flag: &str, value: &str, want: &str| {
            Failure::config(format!("cannot use --{flag} {value:?}: want {want}"))
        };
        let place = match address.strip_prefix("unix://") {
            Some(path) if path.starts_with('/') => Some(DialAddress::Unix(path.into())),
            Some(_) => None,
            None => DialAddress::parse(address),
        };
        let want = "HOST:PORT or unix:///PATH";
        let place = place.ok_or_else(|| wrong("sinkAddress", address, want))?;
        let tls = match mode {
            "" | "NONE" => None,
            "MUTUAL_TLS" => Some(files),
            other => return Err(wrong("sinkAuthMode", other, "NONE or MUTUAL_TLS")),
        };
        let version = (
            HeaderName::from_static("version"),
            HeaderValue::from_static(VERSION),
        );
        let mut metadata = vec![version];
        for pair in meta.iter().filter(|pair| !pair.is_empty()) {
            let read = pair.split_once('=').and_then(|(name, value)| {
                let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
                Some((name, HeaderValue::from_str(value.trim()).ok()?))
            });
            let read = read.ok_or_else(|| wrong("sinkMeta", pair, "NAME=VALUE,…"))?;
            // Every call would fail in the client: gRPC decodes such a value on its way.
            if read.0.as_str().ends_with("-bin") && BINARY.decode(&read.1).is_err() {
                let want = "base64 where a name ends in -bin";
                return Err(wrong("sinkMeta", pair, want));
            }
            if is_reserved(&read.0) {
                let want = "names that neither gRPC nor HTTP has for itself";
                return Err(wrong("sinkMeta", pair, want));
            }
            metadata.push(read);
        }
        Ok(Self {
            place,
            tls,
            metadata,
            received,
        })
    }

    /// Dials the sink until the stage is `Closing`.
    pub(crate) async fn run(
        self,
        collections: Arc<Collections>,
        peers: Arc<Peers>,
        snapshots: watch::Receiver<Snapshots>,
        shutdown: Shutdown,
    ) {
        let is_known = self.tls.is_some() || matches!(self.place, DialAddress::Unix(_));
        let snapshots = SinkSnapshots::new(snapshots, is_known);
        let common = Arc::new(SourceContext {
            peers,
            pieces: ResponsePieces::default(),
            snapshots: snapshots.sent.clone(),
            shutdown: shutdown.clone(),
        });
        let dialling = self.dial_again(&common, &collections, shutdown);
        snapshots.while_serving(dialling).await;
    }

    /// Runs one stream after the other.
    async fn dial_again(
        &self,
        common: &Arc<SourceContext>,
        collections: &Arc<Collections>,
        mut shutdown: Shutdown,
    ) {
        let mut backoff = Backoff::new(BACKOFF);
        // A sink may close each stream after its first answer.
        let (begins, ends) = (
            LogRateLimiter::new(LOG_LINES),
            LogRateLimiter::new(LOG_LINES),
        );
        let mut failed: u64 = 0;
        loop {
            let once = self.once(common, collections, &begins);
            let (status, answered) = tokio::select! {
                ended = once => ended,
                () = shutdown.closing() => {
                    // The stream sends its end by itself.
                    tokio::task::yield_now().await;
                    return;
                }
            };
            if answered {
                failed = 0;
                backoff.reset();
            }
            failed += 1;
            if should_log_repeat(failed)
                && let Some(more) = ends.suffix_if_allowed()
            {
                let (place, code, message) = (&self.place, status.code(), status.message());
                warn!(
                    "no stream to the sink {place}: {code:?}: {message}{repeated}{more}",
                    repeated = api::times(failed)
                );
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next(chance())) => {}
                () = shutdown.closing() => return,
            }
            common.peers.counters.reconnected();
        }
    }

    /// Runs one stream to its end.
    async fn once(
        &self,
        common: &Arc<SourceContext>,
        collections: &Arc<Collections>,
        begins: &LogRateLimiter,
    ) -> (Status, bool) {
        let failed = |cause: String| (Status::unavailable(cause), false);
        let peer = DialledPeer {
            place: &self.place,
            tls: self.tls.as_ref(),
            service: SINK,
            metadata: &self.metadata,
        };
        let bounds = Bounds {
            bytes: self.received,
            beyond: Code::ResourceExhausted,
            values: VALUES,
        };
        let dialled = match peer.dial(bounds).await {
            Ok(dialled) => dialled,
            Err(cause) => return failed(cause),
        };
        let peer = Arc::new(Peer::new(Address::Dialled(self.place.to_string()), None));
        let source = Source::new(Arc::clone(collections), Dialer::Source);
        let joined = common
            .peers
            .join(&peer, Direction::Dialled, source, usize::MAX);
        let Some(joined) = joined else {
            return failed("there are too many streams".to_owned());
        };
        if let Some(more) = begins.suffix_if_allowed() {
            info!("dialled the sink {}{more}", self.place);
        }
        let stream = SourceStream {
            common: Arc::clone(common),
            joined,
            peer,
            inbound: dialled.inbound,
            sender: dialled.sender,
            access: None,
        };
        let ended = stream.run().await;
        drop(dialled.connection);
        ended
    }
}

/// Returns true for a header that is part of the call itself: a pair would change or break it.
fn is_reserved(name: &HeaderName) -> bool {
    const OF_THE_CALL: [&str; 10] = [
        "connection",
        "content-length",
        "content-type",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    ];
    let name = name.as_str();
    name.starts_with("grpc-") || OF_THE_CALL.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_held_to_their_form() {
        let new = |address, mode, meta: &str| {
            let meta: Vec<_> = meta.split(',').map(ToOwned::to_owned).collect();
            SourceDialer::new(address, mode, CredentialFiles::default(), &meta, 1)
        };
        let good = new("a:1", "MUTUAL_TLS", "A=b, c=d=e, k-bin=eA==, l-bin=eA").unwrap();
        let metadata = good.metadata.iter().skip(1);
        let metadata: Vec<_> = metadata
            .map(|(name, value)| format!("{name}={}", value.to_str().unwrap()))
            .collect();
        assert_eq!(metadata, ["a=b", "c=d=e", "k-bin=eA==", "l-bin=eA"]);
        assert!(good.tls.is_some() && new("a:1", "NONE", "").unwrap().tls.is_none());
        for (address, mode, meta, message) in [
            (
                "a",
                "",
                "",
                "cannot use --sinkAddress \"a\": want HOST:PORT or unix:///PATH",
            ),
            (
                "a:1",
                "TLS",
                "",
                "cannot use --sinkAuthMode \"TLS\": want NONE or MUTUAL_TLS",
            ),
            (
                "a:1",
                "",
                "a=b,c",
                "cannot use --sinkMeta \"c\": want NAME=VALUE,…",
            ),
            (
                "a:1",
                "",
                "Grpc-x=b",
                "cannot use --sinkMeta \"Grpc-x=b\": want names that neither gRPC nor HTTP has for itself",
            ),
            (
                "a:1",
                "",
                "te=b",
                "cannot use --sinkMeta \"te=b\": want names that neither gRPC nor HTTP has for itself",
            ),
            (
                "a:1",
                "",
                "k-bin=x",
                "cannot use --sinkMeta \"k-bin=x\": want base64 where a name ends in -bin",
            ),
            (
                "a:1",
                "",
                "a b=c",
                "cannot use --sinkMeta \"a b=c\": want NAME=VALUE,…",
            ),
        ] {
            assert_eq!(
                new(address, mode, meta).unwrap_err(),
                Failure::config(message)
            );
        }
    }
}
