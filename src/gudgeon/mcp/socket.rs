//! The socket of a port: an address that may stay closed for a while, or a file.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Mode, fchmod};
use tokio::net::{TcpSocket, UnixListener, UnixSocket};

use crate::exit::Failure;
use crate::grpc::{GrpcListener, NamedListener};
use crate::serve;

/// An address that stays reserved.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpSocket),
    Unix(NamedListener),
}

impl Socket {
    /// `tcp://HOST:PORT`, `HOST:PORT` or `unix:///PATH`.
    ///
    /// # Errors
    /// The address is malformed, or cannot be bound.
    pub(super) fn reserve(flag: &str, address: &str) -> Result<Self, Failure> {
        let Some(path) = address.strip_prefix("unix://") else {
            let address = address.strip_prefix("tcp://").unwrap_or(address);
            return serve::reserve(flag, address).map(Self::Tcp);
        };
        let path = Path::new(path);
        if !path.is_absolute() {
            return Err(Failure::config(format!(
                "cannot use --{flag} {address:?}: want unix:///PATH"
            )));
        }
        let listener = open(path).map_err(|cause| {
            Failure::system(format!("cannot listen on --{flag} {address}: {cause}"))
        })?;
        Ok(Self::Unix(NamedListener::new(path, listener)))
    }

    pub(super) fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(..))
    }

    #[cfg(test)]
    pub(super) fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok().map(|at| at.port()),
            Self::Unix(..) => None,
        }
    }

    /// Returns the address for the log.
    pub(super) fn address(&self, tls: bool) -> String {
        match self {
            Self::Tcp(socket) => {
                let at = socket.local_addr();
                let at = at.map_or_else(|_| "?".to_owned(), |at| at.to_string());
                let scheme = if tls { "mcps" } else { "mcp" };
                format!("{scheme}://{at}")
            }
            Self::Unix(listener) => format!("unix://{}", listener.path().display()),
        }
    }

    /// Opens it.
    pub(super) fn listen(self) -> io::Result<GrpcListener> {
        Ok(match self {
            Self::Tcp(socket) => GrpcListener::Tcp(serve::listen(socket)?),
            Self::Unix(listener) => GrpcListener::Unix(listener),
        })
    }
}

/// Creates the socket's file, accessible to its owner alone from the beginning.
fn open(path: &Path) -> io::Result<UnixListener> {
    let is_socket =
        // Only a dead socket may be removed; `bind` fails at any other file.
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path) {
            // The socket was left behind by a process that has ended.
            Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            Ok(_) | Err(_) => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let socket = UnixSocket::new_stream()?;
    // `bind` gives the file the socket's mode, so no other user can connect even for a moment.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    socket.bind(path)?;
    // As many wait to be accepted as at any other port.
    socket.listen(serve::BACKLOG)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Clients beyond a backlog of 128 used to get EAGAIN.
    #[tokio::test]
    async fn a_crowd_waits_at_a_file_as_it_does_at_a_port() {
        use rustix::net::{
            AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
        };
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("mcp.sock");
        let _socket = Socket::reserve("x", &format!("unix://{}", path.display())).unwrap();
        let at = SocketAddrUnix::new(path.as_path()).unwrap();
        let crowd: Vec<_> = (0..500)
            .map(|_| {
                let flags = SocketFlags::NONBLOCK;
                let one = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
                let one = one.unwrap();
                connect(&one, &at).unwrap();
                one
            })
            .collect();
        assert_eq!(crowd.len(), 500);
    }

    #[tokio::test]
    async fn a_file_is_its_owners_and_a_stale_one_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("mcp.sock");
        let address = format!("unix://{}", path.display());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = Socket::reserve("x", &address).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(socket.address(false), address);
        let taken = Socket::reserve("x", &address).map(drop).unwrap_err();
        assert!(taken.message.contains("in use"), "{}", taken.message);
        drop(socket);
        assert!(!path.exists());
        std::fs::write(&path, "").unwrap();
        assert!(Socket::reserve("x", &address).is_err(), "somebody's file");
        assert!(path.exists());
        let wrong = Socket::reserve("x", "unix://a").map(drop).unwrap_err();
        assert_eq!(
            wrong.message,
            "cannot use --x \"unix://a\": want unix:///PATH"
        );
    }
}
