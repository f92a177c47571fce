//! Dials one source, with backoff, for as long as the mesh configuration names it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::log_repeats::should_log_repeat;
use tonic::Code;
use tracing::warn;

use super::SOURCE;
use super::dialled_peer::DialledPeer;
use super::peers::Peers;
use super::secure::CredentialFiles;
use super::sink_stream::{RESOURCES, SinkStream};
use super::source_objects::{Apply, SourceObjects};
use crate::clock::chance;
use crate::grpc::{Address, Bounds, DialAddress, Peer};

/// The address of a source, and the collections to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedSource {
    pub(crate) place: DialAddress,
    /// The address as the configuration names it.
    pub(crate) named: String,
    pub(crate) tls: Option<CredentialFiles>,
    /// The ID that this program sends as a node.
    pub(crate) id: String,
    pub(crate) collections: Vec<String>,
    /// Bytes of a response.
    pub(crate) received: usize,
}

impl WantedSource {
    pub(crate) fn has(&self, collection: &str) -> bool {
        self.collections.iter().any(|one| one == collection)
    }
}

/// The state of the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    Dialling,
    /// Connected since that time.
    Connected(Duration),
    /// Broken since that time, for this reason.
    Broken(Duration, String),
}

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) objects: Arc<SourceObjects>,
    peers: Arc<Peers>,
    wanted: WantedSource,
    state: Mutex<LinkState>,
}

impl Link {
    /// A link that has not dialled yet.
    pub(crate) fn new(wanted: WantedSource, peers: &Arc<Peers>, apply: Apply) -> Arc<Self> {
        Arc::new(Self {
            name: wanted.place.to_string(),
            objects: SourceObjects::new(&wanted.id, &wanted.collections, apply),
            peers: Arc::clone(peers),
            wanted,
            state: Mutex::new(LinkState::Dialling),
        })
    }

    /// The address as the configuration names it.
    pub(crate) fn named(&self) -> &str {
        &self.wanted.named
    }

    pub(crate) fn state(&self) -> LinkState {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_state(&self, state: LinkState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Keeps the link connected, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let clock = self.peers.clock;
        let mut failed: u64 = 0;
        loop {
            let cause = self.once(&mut failed).await;
            let now = clock.now();
            failed += 1;
            if should_log_repeat(failed)
                && let Some(more) = self.objects.log_limiters.ends.suffix_if_allowed()
            {
                warn!(
                    "no stream to {}: {cause}{repeated}{more}",
                    self.name,
                    repeated = api::times(failed)
                );
            }
            self.set_state(LinkState::Broken(now, cause.clone()));
            self.objects.mark_lost(&cause);
            let again = self.objects.sink().await.reconnect_at(now, chance());
            tokio::time::sleep_until(clock.instant(again)).await;
            self.peers.counters.reconnected();
        }
    }

    /// Runs one stream; returns the reason of its end.
    async fn once(&self, failed: &mut u64) -> String {
        let peer = DialledPeer {
            place: &self.wanted.place,
            tls: self.wanted.tls.as_ref(),
            service: SOURCE,
            metadata: &[],
        };
        let bounds = Bounds {
            bytes: self.wanted.received,
            beyond: Code::ResourceExhausted,
            values: RESOURCES,
        };
        let dialled = match peer.dial(bounds).await {
            Ok(dialled) => dialled,
            Err(cause) => return cause,
        };
        self.set_state(LinkState::Connected(self.peers.clock.now()));
        let stream = SinkStream {
            objects: Arc::clone(&self.objects),
            peers: Arc::clone(&self.peers),
            inbound: dialled.inbound,
            sender: dialled.sender,
            peer: Arc::new(Peer::new(Address::Dialled(self.name.clone()), None)),
            access: None,
            shutdown: None,
            _slot: None,
        };
        let (status, has_received) = stream.run().await;
        // A stream that received a response was no failure, so the count of failures begins anew.
        if has_received {
            *failed = 0;
        }
        // Dropping it aborts the connection, so it has lived as long as the stream.
        drop(dialled.connection);
        if status.code() == Code::Ok {
            return "the stream was closed".to_owned();
        }
        format!("{:?}: {}", status.code(), status.message())
    }
}
