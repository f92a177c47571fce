//! The port where sources may dial, instead of being dialled.

use std::path::Path;
use std::sync::Arc;

use crate::discovery::certificates;
use crate::discovery::hub::Hub;
use crate::exit::Failure;
use crate::mcp::{DefaultAccess, DialledSources, McpServer, McpServerSettings};
use crate::serve::{Shutdown, ShutdownStage};

/// The most streams of one connection.
const STREAMS: u32 = 64;

/// With certificates as every secured port of discovery has them, and a list without which nobody is let in: who dials says
/// what every proxy of the mesh does.
///
/// # Errors
/// The address or the list cannot be used.
pub(super) fn open(
    address: &str,
    list: &Path,
    hub: &Hub,
    received: usize,
) -> Result<McpServer, Failure> {
    let options = hub.options.connections;
    McpServer::new(McpServerSettings {
        flag: "mcpSinkAddr",
        address: address.to_owned(),
        insecure: false,
        certificates: certificates::inside(&hub.options.certificates),
        access_list: list.to_owned(),
        without_list: DefaultAccess::Nobody,
        received,
        streams: STREAMS,
        interval: options.interval,
        timeout: options.timeout,
        age: options.age,
        files: None,
    })
}

/// Serves sources that dial, until streams are to end.
pub(super) async fn take(server: Option<McpServer>, sources: Arc<DialledSources>, hub: Arc<Hub>) {
    let Some(server) = server else { return };
    let (stage, watched) = Shutdown::channel();
    let leaving = async {
        hub.lifecycle.streams_end().await;
        stage.send_replace(ShutdownStage::Closing);
        // The server ends by itself at that stage, after its grace.
        std::future::pending::<()>().await;
    };
    let peers = Arc::clone(hub.metrics.mcp());
    tokio::select! {
        () = server.take(sources, peers, watched) => {}
        () = leaving => {}
    }
}
