//! A listener with a file in the file system, which goes before the listener closes.

use std::io;
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

/// A socket, and its file.
#[derive(Debug)]
pub(crate) struct NamedListener {
    // Fields are dropped in this order. A successor takes the file of a closed socket for its own, so a file that went after its
    // socket could be the successor's.
    file: SocketFile,
    listener: UnixListener,
}

#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may be gone already.
        let _gone = std::fs::remove_file(&self.0);
    }
}

impl NamedListener {
    /// Takes a listener that is bound to this path.
    pub(crate) fn new(path: &Path, listener: UnixListener) -> Self {
        Self {
            file: SocketFile(path.to_owned()),
            listener,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file.0
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}
