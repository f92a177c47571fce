//! Certificates of the TLS ports, from the directory where the mesh mounts them: read when they are there, and again when
//! they change. Until then the ports are closed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::{error, info, warn};

use super::connections::{self, Acceptor, Port};
use super::hub::Hub;
use crate::serve::Stage;
use crate::tls::{self, Flaw, Pair};
use crate::watch::Watcher;
use crate::{file, log};

/// From the first event to the look: who writes a file often writes another.
const SETTLE: Duration = Duration::from_millis(100);
/// A look in any case.
const SELDOM: Duration = Duration::from_secs(60);
/// The same while there are none, or half of a new pair.
const SOON: Duration = Duration::from_secs(2);
const FILES: [&str; 3] = ["cert-chain.pem", "key.pem", "root-cert.pem"];

/// Starts what serves these ports as soon as there are certificates.
pub(super) fn listen(
    listeners: Vec<TcpListener>,
    hub: &Arc<Hub>,
    stage: &watch::Receiver<Stage>,
    serving: &mut JoinSet<()>,
) {
    if listeners.is_empty() {
        return;
    }
    let (current, watched) = watch::channel(None);
    tokio::spawn(keep(hub.options.certificates.clone(), current));
    for listener in listeners {
        let (hub, mut stage, mut watched) = (Arc::clone(hub), stage.clone(), watched.clone());
        serving.spawn(async move {
            tokio::select! {
                found = watched.wait_for(Option::is_some) => if found.is_err() { return },
                _ = stage.wait_for(|stage| *stage == Stage::Leaving) => return,
            }
            let port = Port {
                listener,
                tls: Some(watched),
            };
            connections::run(port, hub, stage).await;
        });
    }
}

/// Reads them for ever.
async fn keep(directory: std::path::PathBuf, current: watch::Sender<Option<Acceptor>>) {
    let paths = FILES.map(|name| directory.join(name));
    let mut watcher = Watcher::new(paths.to_vec());
    let mut seen: Option<[Vec<u8>; 3]> = None;
    let mut failed: u64 = 0;
    loop {
        let mut pause = SELDOM;
        match read(&directory) {
            Ok(files) if seen.as_ref() == Some(&files) => failed = 0,
            Ok(files) => match acceptor(&files) {
                Ok(acceptor) => {
                    let first = current.borrow().is_none();
                    current.send_replace(Some(acceptor));
                    seen = Some(files);
                    failed = 0;
                    let what = if first { "are there" } else { "have changed" };
                    info!("certificates in {} {what}", directory.display());
                }
                Err(cause) => {
                    failed += 1;
                    pause = SOON;
                    if log::worth_a_line(failed) {
                        error!(
                            "cannot use certificates in {}: {cause} ({failed} times)",
                            directory.display()
                        );
                    }
                }
            },
            Err(cause) => {
                pause = SOON;
                failed += 1;
                if failed == 1 && current.borrow().is_none() {
                    warn!("TLS ports are closed until there are certificates: {cause}");
                } else if failed == 1 {
                    error!("{cause}: the last ones are used on");
                }
            }
        }
        tokio::select! {
            () = watcher.changed() => tokio::time::sleep(SETTLE).await,
            () = tokio::time::sleep(pause) => watcher.follow(),
            () = current.closed() => return,
        }
    }
}

fn read(directory: &Path) -> Result<[Vec<u8>; 3], String> {
    let mut files: [Vec<u8>; 3] = Default::default();
    for (name, file) in FILES.iter().zip(&mut files) {
        let path = directory.join(name);
        *file = file::read(&path)
            .map_err(|cause| format!("cannot read {}: {cause}", path.display()))?;
    }
    Ok(files)
}

/// For the next handshakes.
fn acceptor([chain, key, root]: &[Vec<u8>; 3]) -> Result<Acceptor, String> {
    let pair = Pair::parse(chain, key).map_err(|flaw| match flaw {
        Flaw::Chain(cause) => format!("cert-chain.pem: {cause}"),
        Flaw::Key(cause) => format!("key.pem: {cause}"),
        Flaw::Mismatch => "cert-chain.pem and key.pem do not belong together".to_owned(),
    })?;
    let mut roots = RootCertStore::empty();
    for root in tls::certificates(root).map_err(|cause| format!("root-cert.pem: {cause}"))? {
        roots
            .add(root)
            .map_err(|cause| format!("root-cert.pem: {cause}"))?;
    }
    let config = tls::server_of_clients(&pair, roots)?;
    Ok(TlsAcceptor::from(config))
}
