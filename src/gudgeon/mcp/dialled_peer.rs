//! The other end of a stream that this program dials, as a source or as a sink.

use hyper::header::{HeaderName, HeaderValue};

use super::METHOD;
use super::secure::CredentialFiles;
use crate::grpc::{Bounds, DialAddress, DialTarget, DialledStream, dial};

/// The address of a peer, and what its stream begins with.
pub(super) struct DialledPeer<'a> {
    pub(super) place: &'a DialAddress,
    /// `None`: plain.
    pub(super) tls: Option<&'a CredentialFiles>,
    /// The service that the peer has.
    pub(super) service: &'a str,
    pub(super) metadata: &'a [(HeaderName, HeaderValue)],
}

impl DialledPeer<'_> {
    /// Opens a stream, with the certificates as they are now.
    ///
    /// # Errors
    /// The file that cannot be used, or the cause for which there is no stream.
    pub(super) async fn dial(&self, bounds: Bounds) -> Result<DialledStream, String> {
        let tls = match self.tls {
            Some(files) => Some(files.read().await?),
            None => None,
        };
        let target = DialTarget {
            place: self.place,
            path: format!("/{}/{METHOD}", self.service),
            metadata: self.metadata.to_vec(),
            tls,
        };
        dial(target, bounds).await
    }
}
