//! The other end: a connection that this program opens, with one stream on it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, TE};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tonic::{Code, Status};

use super::calls::Reply;
use super::connections::Stream;
use super::frames::{Bounds, Inbound};
use super::response_sender::{Messages, ResponseSender};
use crate::tls::{self, Secure};

/// The timeout of a connection, up to the request. Chosen: the same as for an API server.
const CONNECT: Duration = Duration::from_secs(10);
/// The shortest time for one address of a name. Chosen: TCP sends a lost packet again after 1 s (RFC 6298).
const MIN_SHARE: Duration = Duration::from_millis(1500);
/// The interval of pings, and the timeout of an answer: a silent peer is dialled again. Source: the defaults of `--keepaliveInterval`
/// and `--keepaliveTimeout`.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);
/// The initial flow-control window of the stream, in bytes. Chosen: a response of 4 MiB takes 16 round trips.
const STREAM_WINDOW: u32 = 256 << 10;
/// The connection has one stream, so it never has more than that stream's window in flight. But half of the connection's window
/// is what the HTTP/2 library grants small frames that are not consumed yet, at 256 bytes less their length each; beyond it ends
/// the connection.
const CONNECTION_WINDOW: u32 = 2 << 20;
/// Bytes of the stream that wait in the connection to be written. Chosen: four times as much as a server keeps, for a list of versions.
const WRITTEN_AHEAD: usize = 64 << 10;
/// Bytes of a response's head at most. Chosen: hyper's default.
const MAX_HEAD_BYTES: u32 = 16 << 10;

/// An address to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DialAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for DialAddress {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(to, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(to, "{host}:{port}"),
            Self::Unix(path) => write!(to, "unix://{}", path.display()),
        }
    }
}

impl DialAddress {
    /// `HOST:PORT`, or `[ADDRESS]:PORT`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let host = match inner {
            Some(inner) => inner,
            // The last group of an IPv6 address without brackets would be taken for the port.
            None if host.contains(':') => return None,
            None => host,
        };
        let port = port.parse().ok().filter(|port| *port > 0)?;
        (!host.is_empty()).then(|| Self::Tcp {
            host: host.to_owned(),
            port,
        })
    }
}

/// The target of a call.
#[derive(Debug)]
pub(crate) struct DialTarget<'a> {
    pub(crate) place: &'a DialAddress,
    /// `/SERVICE/METHOD`.
    pub(crate) path: String,
    pub(crate) metadata: Vec<(HeaderName, HeaderValue)>,
    /// TLS, and the expected server name if it is not the host's.
    pub(crate) tls: Option<(Secure, Option<String>)>,
}

/// A stream that was opened; the connection ends with it.
#[derive(Debug)]
pub(crate) struct DialledStream {
    pub(crate) inbound: Inbound<ResponseBody>,
    pub(crate) sender: Arc<ResponseSender>,
    pub(crate) connection: ConnectionTask,
}

/// Ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens a stream. The response may come much later.
///
/// # Errors
/// The reason why the connection failed.
pub(crate) async fn dial(target: DialTarget<'_>, bounds: Bounds) -> Result<DialledStream, String> {
    match timeout(CONNECT, open(target, bounds)).await {
        Ok(opened) => opened,
        Err(_) => Err("no response".to_owned()),
    }
}

async fn open(target: DialTarget<'_>, bounds: Bounds) -> Result<DialledStream, String> {
    let scheme = if target.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let authority = match target.place {
        // HTTP/2 requires an authority, and a Unix socket has none; gRPC's own clients send this one.
        DialAddress::Unix(_) => "localhost".to_owned(),
        place @ DialAddress::Tcp { .. } => place.to_string(),
    };
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(authority)
        .path_and_query(target.path)
        .build()
        .map_err(|cause| cause.to_string())?;
    let stream = connect(target.place, target.tls).await?;
    let (mut requests, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEAD_BYTES)
        .max_send_buf_size(WRITTEN_AHEAD)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|cause| cause.to_string())?;
    let connection = ConnectionTask(tokio::spawn(async move {
        // The stream reports the result.
        let _ended = connection.await;
    }));
    let sender = Arc::new(ResponseSender::default());
    let mut request = Request::new(Reply::Messages(Messages::of_request(&sender)));
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    for (name, value) in target.metadata {
        headers.append(name, value);
    }
    requests.ready().await.map_err(|cause| cause.to_string())?;
    let answer = requests.send_request(request);
    let answer = ResponseBody(ResponseState::Waiting(Box::pin(async move {
        // Dropping `requests` would end the connection.
        let _requests = requests;
        answer.await
    })));
    Ok(DialledStream {
        inbound: Inbound::new(answer, bounds),
        sender,
        connection,
    })
}

async fn connect(
    place: &DialAddress,
    tls: Option<(Secure, Option<String>)>,
) -> Result<Stream, String> {
    let message = |cause: io::Error| cause.to_string();
    let (stream, host): (Stream, &str) = match place {
        DialAddress::Tcp { host, port } => {
            // Each dial resolves the name anew, so a server that has moved is found.
            let addresses = lookup_host((host.as_str(), *port)).await;
            let addresses: Vec<_> = addresses.map_err(message)?.collect();
            let stream = connect_any(&addresses, TcpStream::connect).await;
            let stream = stream.map_err(message)?;
            // Requests are one write each.
            let _best = stream.set_nodelay(true);
            (Box::new(stream), host)
        }
        DialAddress::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(message)?;
            (Box::new(stream), "localhost")
        }
    };
    let Some((secure, name)) = tls else {
        return Ok(stream);
    };
    let name = name.unwrap_or_else(|| host.to_owned());
    let name = ServerName::try_from(name).map_err(|cause| cause.to_string())?;
    let connector = TlsConnector::from(tls::client(secure)?);
    let stream = connector.connect(name, stream).await.map_err(message)?;
    Ok(Box::new(stream))
}

/// Connects to the first address that answers. Each has an equal share of half of the time, so that one which drops packets does
/// not hide those after it, and TLS has the other half; but long enough for a packet that is lost, which is sent again after 1 s.
///
/// # Errors
/// The failure of the last address.
async fn connect_any<S, F: Future<Output = io::Result<S>>>(
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<S> {
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let share = (CONNECT / 2 / count.max(1)).max(MIN_SHARE);
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match timeout(share, connect(*address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(cause)) => failure = cause,
            Err(_) => {
                let message = format!("no response of {address}");
                failure = io::Error::new(io::ErrorKind::TimedOut, message);
            }
        }
    }
    Err(failure)
}

type ResponseHead = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

/// The body of an answer whose head may not be there yet.
pub(crate) struct ResponseBody(ResponseState);

enum ResponseState {
    Waiting(ResponseHead),
    Here(Incoming),
    Over,
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self.0 {
            ResponseState::Waiting(_) => "Waiting",
            ResponseState::Here(_) => "Here",
            ResponseState::Over => "Over",
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let gone =
            |cause: &hyper::Error| Status::unavailable(format!("cannot read the stream: {cause}"));
        loop {
            let ended = match &mut self.0 {
                ResponseState::Waiting(head) => match ready!(head.as_mut().poll(cx)) {
                    Ok(answer) => match refused(&answer) {
                        Some(status) => Some(status),
                        None => {
                            self.0 = ResponseState::Here(answer.into_body());
                            continue;
                        }
                    },
                    Err(cause) => Some(gone(&cause)),
                },
                ResponseState::Here(body) => match ready!(Pin::new(body).poll_frame(cx)) {
                    Some(Ok(frame)) => match frame.trailers_ref() {
                        None => return Poll::Ready(Some(Ok(frame))),
                        Some(trailers) => ended(trailers),
                    },
                    Some(Err(cause)) => Some(gone(&cause)),
                    None => None,
                },
                ResponseState::Over => return Poll::Ready(None),
            };
            self.0 = ResponseState::Over;
            return Poll::Ready(ended.map(Err));
        }
    }
}

fn ended(headers: &HeaderMap) -> Option<Status> {
    // OK is the ordinary end of a stream, and no error.
    Status::from_header_map(headers).filter(|status| status.code() != Code::Ok)
}

/// Returns the status if the server has refused the stream.
fn refused(answer: &Response<Incoming>) -> Option<Status> {
    if answer.status() != StatusCode::OK {
        // A proxy in between may respond in plain HTTP, which has no `grpc-status`.
        let message = format!("the server responded {}", answer.status());
        return Some(Status::unavailable(message));
    }
    ended(answer.headers())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first address drops packets, the second refuses.
    #[tokio::test(start_paused = true)]
    async fn an_address_without_response_hides_no_other() {
        let addresses = [1, 2, 3].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let connect = |address: SocketAddr| async move {
            match address.port() {
                1 => std::future::pending().await,
                2 => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                port => Ok(port),
            }
        };
        let begin = tokio::time::Instant::now();
        assert_eq!(connect_any(&addresses, connect).await.unwrap(), 3);
        assert!(begin.elapsed() <= CONNECT / 3 + Duration::from_millis(1));
        let cause = connect_any(&addresses[..1], connect).await.unwrap_err();
        assert_eq!(cause.to_string(), "no response of 192.0.2.1:1");
        let cause = connect_any(&addresses[..2], connect).await.unwrap_err();
        assert_eq!(cause.kind(), io::ErrorKind::ConnectionRefused);
        assert!(connect_any(&[], connect).await.is_err());
    }

    #[test]
    fn places_are_read() {
        for (text, host, port) in [
            ("a.b:1", "a.b", 1),
            ("127.0.0.1:9901", "127.0.0.1", 9901),
            ("[::1]:65535", "::1", 65535),
        ] {
            let place = DialAddress::parse(text).unwrap();
            assert_eq!(place.to_string(), text);
            let host = host.to_owned();
            assert_eq!(place, DialAddress::Tcp { host, port });
        }
        for text in ["", "a", ":1", "a:", "a:0", "a:65536", "::1:1", "a:b"] {
            assert_eq!(DialAddress::parse(text), None, "{text}");
        }
    }
}
