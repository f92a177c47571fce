//! The TLS ports: closed until there are certificates in the directory where the mesh mounts them.

use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tracing::error;

use super::grpc::Services;
use super::hub::Hub;
use crate::grpc::{self, Certificates, GrpcListener, Port};
use crate::serve::{self, Shutdown};

/// The certificates in a directory, by the names that the mesh mounts them under.
pub(super) fn inside(directory: &Path) -> Certificates {
    Certificates {
        chain: directory.join("cert-chain.pem"),
        key: directory.join("key.pem"),
        roots: directory.join("root-cert.pem"),
    }
}

/// Starts what serves these ports as soon as there are certificates.
pub(super) fn listen(
    sockets: Vec<TcpSocket>,
    hub: &Arc<Hub>,
    shutdown: &Shutdown,
    serving: &mut JoinSet<()>,
) {
    if sockets.is_empty() {
        return;
    }
    let states = Some(Arc::clone(&hub.files));
    let watched = grpc::follow(inside(&hub.options.certificates), states);
    for socket in sockets {
        let (hub, mut shutdown, mut watched) = (Arc::clone(hub), shutdown.clone(), watched.clone());
        serving.spawn(async move {
            tokio::select! {
                found = watched.wait_for(Option::is_some) => if found.is_err() { return },
                () = shutdown.closing() => return,
            }
            // Before that nobody gets in: who is refused goes to another replica, and who waits for a handshake does not.
            let listener = match serve::listen(socket) {
                Ok(listener) => GrpcListener::Tcp(listener),
                Err(cause) => {
                    error!("cannot listen on a TLS port: {cause}");
                    return;
                }
            };
            let port = Port {
                listener,
                tls: Some(watched),
            };
            let options = hub.options.connections;
            grpc::run(port, options, Arc::new(Services::new(hub)), shutdown).await;
        });
    }
}
