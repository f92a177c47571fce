//! One set of keys from its source: a name is resolved, its addresses are looked at, and the one that was looked at is asked.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::model::Network;
use api::security::{JwksSource, KeySet, NoKeySet};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::response_budget::{BudgetedConnection, ResponseBudget};
use super::ssrf_guard;

/// Bytes of an answer. Chosen: a hundred keys come to a tenth of it.
const MAX_BYTES: usize = 1 << 20;
/// Bytes of the document of an issuer that says where its keys are. Chosen: documents have a few kilobytes.
const MAX_DOCUMENT_BYTES: usize = 64 << 10;
/// Bytes of its head, with the interim responses before it.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Addresses of one name that are tried.
const MAX_TRIES: usize = 4;
/// Names that are looked up at once: each takes a thread until the system gives up.
const LOOKUPS: usize = 8;
/// Roots are read again after this time, since a mounted file may change.
const ROOTS_AGE: Duration = Duration::from_secs(60);
/// Further roots, where charts of Istio mount those of an issuer of one's own (pilot's `jwksExtraRootCABundlePath`).
const EXTRA_ROOTS: &str = "/cacerts/extra.pem";

/// The reason why a source has no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::discovery) enum FetchError {
    /// The text is not a URL.
    Url,
    /// The host name does not resolve.
    Resolve,
    Address(IpAddr, &'static str),
    Connect(String),
    Tls(String),
    Timeout(Duration),
    Status(StatusCode),
    /// Longer than so many bytes.
    TooLong(usize),
    Answer(String),
    /// A document of an issuer without a source of keys.
    Document,
    Keys(NoKeySet),
}

impl FetchError {
    /// Returns true if the failure holds for a policy with this timeout, too: with a longer one the fetch might succeed.
    pub(in crate::discovery) fn counts_within(&self, timeout: Duration) -> bool {
        match self {
            Self::Timeout(limit) => timeout <= *limit,
            Self::Url
            | Self::Resolve
            | Self::Address(..)
            | Self::Connect(_)
            | Self::Tls(_)
            | Self::Status(_)
            | Self::TooLong(_)
            | Self::Answer(_)
            | Self::Document
            | Self::Keys(_) => true,
        }
    }

    /// The label of the metric.
    pub(in crate::discovery) const fn reason(&self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Resolve => "resolve",
            Self::Address(..) => "address",
            Self::Connect(_) | Self::Tls(_) => "connect",
            Self::Timeout(_) => "timeout",
            Self::Status(_) | Self::TooLong(_) | Self::Answer(_) => "answer",
            Self::Document | Self::Keys(_) => "keys",
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url => to.write_str("not a URL"),
            Self::Resolve => to.write_str("the host has no address"),
            Self::Address(address, what) => {
                write!(to, "its address {address} is {what}: see --jwksAllow")
            }
            Self::Connect(cause) => write!(to, "cannot connect: {cause}"),
            Self::Tls(cause) => write!(to, "no TLS: {cause}"),
            Self::Timeout(limit) => write!(to, "no response within {limit:?}"),
            Self::Status(status) if status.is_redirection() => {
                write!(to, "the response is {status}; redirects are not followed")
            }
            Self::Status(status) => write!(to, "the response is {status}"),
            Self::TooLong(max) => write!(to, "the response exceeds {max} bytes"),
            Self::Answer(cause) => write!(to, "cannot read the response: {cause}"),
            Self::Document => to.write_str("the issuer's document names no jwks_uri"),
            Self::Keys(why) => write!(to, "cannot use the response: {why}"),
        }
    }
}

/// Roots as they were read, and when.
type Roots = Option<(Instant, Arc<ClientConfig>)>;

/// Addresses that are not asked.
#[derive(Clone, Debug, Default)]
pub(in crate::discovery) struct Forbidden {
    pub(in crate::discovery) addresses: BTreeSet<IpAddr>,
    /// Host names, in lower case.
    pub(in crate::discovery) names: BTreeSet<String>,
}

#[derive(Debug)]
pub(in crate::discovery) struct Fetcher {
    allowed: Vec<Network>,
    roots: Mutex<Roots>,
    lookups: Arc<Semaphore>,
}

/// A connection to an issuer: TCP, or TLS over it.
trait IssuerConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> IssuerConnection for T {}

/// Ends what drives a connection.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Fetcher {
    pub(in crate::discovery) fn new(allowed: Vec<Network>) -> Self {
        Self {
            allowed,
            roots: Mutex::default(),
            lookups: Arc::new(Semaphore::new(LOOKUPS)),
        }
    }

    pub(in crate::discovery) async fn fetch_jwks(
        &self,
        source: &JwksSource,
        forbidden: &Forbidden,
        limit: Duration,
    ) -> Result<KeySet, FetchError> {
        let fetched = async {
            let text = match source {
                JwksSource::Set(url) => self.get(url, forbidden, (limit, MAX_BYTES)).await?,
                JwksSource::Discovery(url) => {
                    let document = self
                        .get(url, forbidden, (limit, MAX_DOCUMENT_BYTES))
                        .await?;
                    let url = jwks_uri(&document).ok_or(FetchError::Document)?;
                    self.get(&url, forbidden, (limit, MAX_BYTES)).await?
                }
            };
            // Some milliseconds, where the loop may stop for 20.
            let read = spawn_blocking(move || KeySet::published(&text)).await;
            read.map_err(|error| FetchError::Answer(error.to_string()))?
                .map_err(FetchError::Keys)
        };
        match timeout(limit, fetched).await {
            Ok(fetched) => fetched,
            Err(_) => Err(FetchError::Timeout(limit)),
        }
    }

    async fn get(
        &self,
        url: &str,
        forbidden: &Forbidden,
        (limit, max): (Duration, usize),
    ) -> Result<String, FetchError> {
        let uri: Uri = url.parse().map_err(|_| FetchError::Url)?;
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(FetchError::Url),
        };
        let host = uri.host().ok_or(FetchError::Url)?;
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let stream = self.connect(host, port, forbidden, limit).await?;
        let stream: Box<dyn IssuerConnection> = if is_secure {
            let name = ServerName::try_from(host.to_owned()).map_err(|_| FetchError::Url)?;
            let tls = TlsConnector::from(self.tls().await?);
            let stream = tls.connect(name, stream).await;
            Box::new(stream.map_err(|error| FetchError::Tls(error.to_string()))?)
        } else {
            Box::new(stream)
        };
        // The user and the password that a URL may hold are not sent.
        let mut authority = uri.authority().ok_or(FetchError::Url)?.as_str();
        authority = authority.rsplit('@').next().unwrap_or(authority);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        send_request(stream, authority, path, max).await
    }

    /// Connects to an address that was checked itself: the name is not resolved again after the check.
    async fn connect(
        &self,
        host: &str,
        port: u16,
        forbidden: &Forbidden,
        limit: Duration,
    ) -> Result<TcpStream, FetchError> {
        let mut servers = forbidden.addresses.clone();
        for server in &forbidden.names {
            // One that is not found is asked by nobody.
            let addresses = self.lookup(server, port).await.unwrap_or_default();
            servers.extend(addresses.iter().map(|one| one.ip().to_canonical()));
        }
        let (mut refused, mut tries) = (None, Vec::new());
        // An absolute name keeps its last dot: without it the resolver would try the system's search domains first.
        for to in self.lookup(host, port).await?.into_iter().take(MAX_TRIES) {
            match ssrf_guard::forbidden_reason(to.ip(), &self.allowed, &servers) {
                Some(what) => refused = Some(FetchError::Address(to.ip(), what)),
                None => tries.push(to),
            }
        }
        // An allowed address that refuses the connection explains more than one that is not asked.
        connect_to(&tries, limit)
            .await
            .map_err(|failed| failed.or(refused).unwrap_or(FetchError::Resolve))
    }

    async fn lookup(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, FetchError> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, port).into()]);
        }
        let lookups = Arc::clone(&self.lookups);
        let turn = lookups.acquire_owned().await;
        let turn = turn.map_err(|_| FetchError::Resolve)?;
        let host = host.to_owned();
        // A thread looks it up to its end, also when nobody waits any more: its turn lasts as long.
        let addresses = tokio::spawn(async move {
            let addresses = tokio::net::lookup_host((host, port)).await;
            drop(turn);
            addresses.map(Iterator::collect)
        });
        match addresses.await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(_)) | Err(_) => Err(FetchError::Resolve),
        }
    }

    async fn tls(&self) -> Result<Arc<ClientConfig>, FetchError> {
        let roots = || self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = roots().clone();
        if let Some((read, config)) = cached
            && read.elapsed() < ROOTS_AGE
        {
            return Ok(config);
        }
        let wrong = |cause: String| FetchError::Tls(cause);
        let read = spawn_blocking(client_config).await;
        let config = read.map_err(|error| wrong(error.to_string()))?;
        let config = Arc::new(config.map_err(|error| wrong(error.to_string()))?);
        *roots() = Some((Instant::now(), Arc::clone(&config)));
        Ok(config)
    }
}

/// Connects to the first address that accepts. Each has its share of the time, so that one which does not answer leaves some for
/// the next. `None` as error: there is no address. Who gives more time may reach an address that was given up here, so the error is
/// a timeout then: it is nobody else's.
async fn connect_to(
    tries: &[SocketAddr],
    limit: Duration,
) -> Result<TcpStream, Option<FetchError>> {
    let share = limit / u32::try_from(tries.len().max(1)).unwrap_or(u32::MAX);
    let mut failed = None;
    let mut is_late = false;
    for (at, to) in tries.iter().enumerate() {
        let connect = TcpStream::connect(to);
        let connected = match at + 1 == tries.len() {
            // The caller's timeout ends the last one, with its own words.
            true => connect.await,
            false => timeout(share, connect).await.unwrap_or_else(|elapsed| {
                is_late = true;
                Err(elapsed.into())
            }),
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = Some(FetchError::Connect(error.to_string())),
        }
    }
    Err(match is_late {
        true => Some(FetchError::Timeout(limit)),
        false => failed,
    })
}

/// Trusts the system's roots (`SSL_CERT_FILE` and `SSL_CERT_DIR` count), and those that are mounted for issuers.
fn client_config() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Ok(pem) = std::fs::read(EXTRA_ROOTS) {
        let all = CertificateDer::pem_slice_iter(&pem);
        roots.add_parsable_certificates(all.filter_map(Result::ok));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

async fn send_request(
    stream: impl IssuerConnection + 'static,
    authority: &str,
    path: &str,
    max: usize,
) -> Result<String, FetchError> {
    let budget = ResponseBudget::new(MAX_HEAD_BYTES);
    let failed = |error: &dyn std::error::Error, max| {
        if budget.is_spent() {
            FetchError::TooLong(max)
        } else {
            FetchError::Answer(error.to_string())
        }
    };
    let stream = BudgetedConnection {
        inner: stream,
        budget: budget.clone(),
    };
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(&error, MAX_HEAD_BYTES))?;
    let _driver = Driver(tokio::spawn(async move {
        // How it ended, the answer says.
        let _ended = connection.await;
    }));
    let host = HeaderValue::from_str(authority).map_err(|_| FetchError::Url)?;
    let request = Request::get(path)
        .header(HOST, host)
        .header(USER_AGENT, "gudgeon")
        .header(ACCEPT, "application/json, application/jwk-set+json")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|_| FetchError::Url)?;
    let answer = sender.send_request(request).await;
    let answer = answer.map_err(|error| failed(&error, MAX_HEAD_BYTES))?;
    if answer.status() != StatusCode::OK {
        return Err(FetchError::Status(answer.status()));
    }
    // As much again for the sizes of chunks.
    budget.add(2 * max);
    let body = Limited::new(answer.into_body(), max).collect().await;
    let body = body.map_err(|error| {
        if error.is::<LengthLimitError>() {
            FetchError::TooLong(max)
        } else {
            failed(error.as_ref(), max)
        }
    })?;
    String::from_utf8(body.to_bytes().into()).map_err(|error| FetchError::Answer(error.to_string()))
}

/// The member of an issuer's document that is read; the others are skipped.
#[derive(Deserialize)]
struct IssuerDocument {
    jwks_uri: Option<String>,
}

fn jwks_uri(document: &str) -> Option<String> {
    // A list would be taken for its members in order.
    let is_object = document.trim_start().starts_with('{');
    let document: IssuerDocument = serde_json::from_str(document).ok().filter(|_| is_object)?;
    document.jwks_uri
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// A firewall that drops packets in front of the first address used to take all the time of the fetch.
    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next_one() {
        let silent = TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = silent.listen(1).unwrap();
        let dead = silent.local_addr().unwrap();
        let short = Duration::from_millis(200);
        // The kernel drops what comes when the queue of a listener is full.
        let mut queue = Vec::new();
        while let Ok(stream) = timeout(short, TcpStream::connect(dead)).await {
            queue.push(stream.unwrap());
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();
        let limit = Duration::from_secs(20);
        let tries = [dead, dead, dead, live];
        let connected = timeout(limit / 2, connect_to(&tries, limit / 10));
        let connected = connected.await.expect("it waits for the first address");
        assert_eq!(connected.unwrap().peer_addr().unwrap(), live);
    }

    #[tokio::test]
    async fn the_last_failure_counts() {
        let limit = Duration::from_secs(20);
        // Bound and not listened on, so that no other test gets the port.
        let held = TcpSocket::new_v4().unwrap();
        held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let free = held.local_addr().unwrap();
        let failed = connect_to(&[free], limit).await.unwrap_err();
        assert_eq!(failed.unwrap().reason(), "connect");
        assert_eq!(connect_to(&[], limit).await.unwrap_err(), None);
    }

    /// hyper skips interim heads in a loop, for as long as they come.
    #[tokio::test]
    async fn endless_interim_heads_and_endless_chunk_sizes_end_the_response() {
        for (first, then, max, error) in [
            (
                "",
                "HTTP/1.1 103 Early Hints\r\n\r\n",
                MAX_BYTES,
                MAX_HEAD_BYTES,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                "1\r\n \r\n",
                1000,
                1000,
            ),
        ] {
            let (near, far) = duplex(16 << 10);
            let (mut from, mut to) = tokio::io::split(far);
            let wrote = async {
                from.read_u8().await.unwrap();
                to.write_all(first.as_bytes()).await.unwrap();
                let many = then.repeat(1000);
                let mut count = 0;
                while to.write_all(many.as_bytes()).await.is_ok() {
                    count += many.len();
                }
                count
            };
            let asked = send_request(near, "issuer", "/", max);
            let both = async { tokio::join!(asked, wrote) };
            let (answer, count) = timeout(Duration::from_secs(60), both).await.unwrap();
            assert_eq!(answer, Err(FetchError::TooLong(error)), "{then}");
            assert!(count < 2 * MAX_HEAD_BYTES, "{count}");
        }
    }

    #[test]
    fn a_document_is_read_for_one_member() {
        for (document, uri) in [
            (
                r#"{"issuer": "a", "jwks_uri": "https://a/keys", "b": [{}, {"jwks_uri": 1}]}"#,
                Some("https://a/keys"),
            ),
            (r#"{"issuer": "a"}"#, None),
            (r#"{"jwks_uri": null}"#, None),
            (r#"{"jwks_uri": 1}"#, None),
            (r#"["jwks_uri"]"#, None),
            ("<html>", None),
        ] {
            assert_eq!(jwks_uri(document).as_deref(), uri, "{document}");
        }
    }
}
