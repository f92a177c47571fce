//! A bound on interim responses (1xx): hyper bounds each of their heads, and skips them for as long as they come.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{self, Client};
use tokio::sync::Notify;
use tower::BoxError;

/// Interim responses of one request. Chosen: servers send one or two.
const MAX_INTERIM: usize = 16;

/// A request without a response.
#[derive(Debug)]
pub(crate) enum SendError {
    Client(legacy::Error),
    TooManyInterim,
}

impl fmt::Display for SendError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client(error) => error.fmt(to),
            Self::TooManyInterim => {
                write!(
                    to,
                    "more than {MAX_INTERIM} interim responses (1xx) precede the response"
                )
            }
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Client(error) => error.source(),
            Self::TooManyInterim => None,
        }
    }
}

impl SendError {
    /// Returns true if there is no connection.
    pub(crate) fn is_connect(&self) -> bool {
        match self {
            Self::Client(error) => error.is_connect(),
            Self::TooManyInterim => false,
        }
    }
}

/// Sends a request. The connection closes with the first interim response beyond the limit.
pub(crate) async fn send<C, B>(
    client: &Client<C, B>,
    mut request: Request<B>,
) -> Result<Response<Incoming>, SendError>
where
    C: Connect + Clone + Send + Sync + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    let exceeded = Arc::new(Notify::new());
    let count = AtomicUsize::new(0);
    let to = Arc::clone(&exceeded);
    hyper::ext::on_informational(&mut request, move |_| {
        if count.fetch_add(1, Ordering::Relaxed) == MAX_INTERIM {
            to.notify_one();
        }
    });
    tokio::select! {
        response = client.request(request) => response.map_err(SendError::Client),
        // hyper closes a connection whose request is dropped before its response.
        () = exceeded.notified() => Err(SendError::TooManyInterim),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use http_body_util::Empty;
    use hyper::body::Bytes;
    use hyper_util::client::legacy::connect::HttpConnector;
    use hyper_util::rt::TokioExecutor;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    const INTERIM: &str = "HTTP/1.1 103 Early Hints\r\n\r\n";

    /// Starts a server for one connection.
    async fn server<F: Future<Output: Send + 'static> + Send>(
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> (SocketAddr, JoinHandle<F::Output>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn(async move {
            let (mut connection, _) = listener.accept().await.unwrap();
            connection.read_u8().await.unwrap();
            serve(connection).await
        });
        (address, served)
    }

    async fn get(address: SocketAddr) -> Result<Response<Incoming>, SendError> {
        let client: Client<HttpConnector, Empty<Bytes>> =
            Client::builder(TokioExecutor::new()).build_http();
        let request = Request::get(format!("http://{address}/"));
        send(&client, request.body(Empty::new()).unwrap()).await
    }

    /// A server that sends them for ever kept a core busy until the deadline of the request, and those of the next ones.
    #[tokio::test]
    async fn endless_interim_responses_end_the_request_and_its_connection() {
        let (address, served) = server(async |mut connection| {
            let many = INTERIM.repeat(1000);
            while connection.write_all(many.as_bytes()).await.is_ok() {}
        })
        .await;
        let soon = Duration::from_secs(60);
        let failed = timeout(soon, get(address)).await.unwrap().unwrap_err();
        assert!(matches!(failed, SendError::TooManyInterim), "{failed}");
        assert!(!failed.is_connect());
        assert!(failed.to_string().starts_with("more than 16 interim"));
        timeout(soon, served).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_few_interim_responses_precede_the_response() {
        let (address, _served) = server(async |mut connection| {
            let interim = INTERIM.repeat(MAX_INTERIM);
            let text = format!("{interim}HTTP/1.1 204 No Content\r\n\r\n");
            connection.write_all(text.as_bytes()).await.unwrap();
            connection
        })
        .await;
        assert_eq!(get(address).await.unwrap().status(), 204);
    }
}
