//! Configuration over MCP: the port where sinks dial, and a sink that is dialled.

use std::sync::Arc;

use mcp::collections::Collections;
use tokio::task::JoinSet;

use super::engine::GalleyEngine;
use super::readiness::Readiness;
use crate::cli::McpFlags;
use crate::exit::Failure;
use crate::file_states::FileStates;
use crate::grpc::Certificates;
use crate::mcp::{
    CredentialFiles, DefaultAccess, McpServer, McpServerSettings, Peers, SourceDialer,
};
use crate::serve::Shutdown;

/// The readiness part of MCP.
const PART: &str = "mcp";

/// Replaces a missing address. It is never dialled.
const NOWHERE: &str = "localhost:1";

/// The MCP server and dialler, bound, not serving yet.
pub(super) struct BoundStreams {
    server: McpServer,
    dialer: Option<SourceDialer>,
    /// The reason why the port is not ready, where the webhook makes its own certificate, which is of use without the port.
    optional: Option<String>,
}

impl BoundStreams {
    /// # Errors
    /// A flag, or a file that it names, cannot be used.
    pub(super) fn new(
        flags: &McpFlags,
        self_signed: bool,
        files: &Arc<FileStates>,
    ) -> Result<Self, Failure> {
        let received = flags.server_max_received_message_size;
        let received = above_zero("server-maxReceivedMessageSize", received)?;
        let received = usize::try_from(received).unwrap_or(usize::MAX);
        let streams = flags.server_max_concurrent_streams;
        let streams = above_zero("server-maxConcurrentStreams", streams)?;
        let certificates = Certificates {
            chain: flags.tls_cert_file.clone(),
            key: flags.tls_key_file.clone(),
            roots: flags.ca_cert_file.clone(),
        };
        let credentials = CredentialFiles {
            roots: Some(certificates.roots.clone()),
            pair: Some((certificates.chain.clone(), certificates.key.clone())),
            names: Vec::new(),
            server: flags.sink_server_name.clone(),
        };
        let (mode, meta) = (&flags.sink_auth_mode, &flags.sink_meta);
        // The flags of a sink are validated even if it is not dialled: a typing error shows now.
        let dialer = match flags.sink_address.as_str() {
            "" => SourceDialer::new(NOWHERE, mode, credentials, meta, received).map(|_| None)?,
            address => Some(SourceDialer::new(
                address,
                mode,
                credentials,
                meta,
                received,
            )?),
        };
        let chain = certificates.chain.display();
        let waits = format!("it takes client certificates, and waits for {chain}");
        let server = McpServer::new(McpServerSettings {
            flag: "server-address",
            address: flags.server_address.clone(),
            insecure: flags.insecure,
            certificates,
            access_list: flags.access_list_file.clone(),
            without_list: DefaultAccess::Everyone,
            received,
            streams,
            interval: flags.keepalive_interval,
            timeout: flags.keepalive_timeout,
            age: flags.keepalive_max_server_connection_age,
            files: Some(Arc::clone(files)),
        })?;
        Ok(Self {
            server,
            dialer,
            optional: self_signed.then_some(waits),
        })
    }

    /// Serves the snapshots that the engine publishes.
    pub(super) fn start(
        self,
        engine: &GalleyEngine,
        peers: &Arc<Peers>,
        readiness: &Arc<Readiness>,
        shutdown: &Shutdown,
        serving: &mut JoinSet<()>,
    ) {
        let collections = Arc::new(Collections::all());
        let at = self.server.address();
        match self.optional {
            Some(waits) => readiness.does_without(PART, format!("{at} is not open: {waits}")),
            None => readiness.lacks(PART, format!("{at} is not open")),
        }
        let mut open = self.server.is_open();
        let readiness = Arc::clone(readiness);
        serving.spawn(async move {
            if open.wait_for(|open| *open).await.is_ok() {
                readiness.has(PART);
            }
        });
        if let Some(dialer) = self.dialer {
            let peers = Arc::clone(peers);
            serving.spawn(dialer.run(
                Arc::clone(&collections),
                peers,
                engine.snapshots(),
                shutdown.clone(),
            ));
        }
        let peers = Arc::clone(peers);
        let serves = self
            .server
            .run(collections, peers, engine.snapshots(), shutdown.clone());
        serving.spawn(serves);
    }
}

/// Refuses a limit of 0, with which no sink is ever answered, though the port is open.
///
/// # Errors
/// The flag that has such a limit.
fn above_zero(flag: &str, value: u32) -> Result<u32, Failure> {
    match value {
        0 => Err(Failure::config(format!(
            "cannot use --{flag} 0: want a number above 0"
        ))),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_limit_of_none_is_none_that_can_be_used() {
        assert_eq!(above_zero("a", 1).unwrap(), 1);
        let failure = above_zero("a", 0).unwrap_err();
        assert_eq!(failure.exit, Exit::Config);
        assert_eq!(failure.message, "cannot use --a 0: want a number above 0");
    }
}
