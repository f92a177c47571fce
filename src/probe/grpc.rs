//! `grpc.health.v1.Health/Check` in plain text (HTTP/2 with prior knowledge), as kubelet asks it.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::Code;
use tonic::body::Body;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tower_service::Service;

use crate::answer::Answer;
use crate::connection::{connect, part};
use crate::deadline::Deadline;
use crate::failure::Failure;

/// A health service's answer, in bytes. Chosen: it is one small number.
const MAX_ANSWER_BYTES: usize = 1024;
/// The header list of an answer, in bytes. Chosen: as much as for HTTPS.
const MAX_HEADER_LIST_BYTES: u32 = 16 * 1024;

/// 200 if it serves; anything else is a failure.
pub(crate) async fn probe(
    address: SocketAddr,
    service: String,
    deadline: Deadline,
) -> Result<Answer, Failure> {
    let stream = connect(address, deadline).await?;
    let step = match &*service {
        "" => format!("check the health of {address}"),
        service => format!("check the health of {service} at {address}"),
    };
    let origin = Uri::builder()
        .scheme("http")
        .authority(address.to_string())
        .path_and_query("/")
        .build()
        .map_err(|error| Failure::of(&step, &error))?;
    let handshake = http2::Builder::new(TokioExecutor::new())
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .handshake(TokioIo::new(stream));
    let (sender, connection) = deadline.run(&step, handshake).await?;
    let task = tokio::spawn(connection);
    let mut client = HealthClient::with_origin(Named(sender), origin)
        .max_decoding_message_size(MAX_ANSWER_BYTES);
    let mut request = tonic::Request::new(HealthCheckRequest { service });
    // The server may stop working for us then.
    request.set_timeout(deadline.left());
    let check = async { Ok::<_, std::convert::Infallible>(client.check(request).await) };
    let checked = deadline.run(&step, check).await?;
    drop(client);
    part(task, deadline).await;
    let status = match checked {
        Ok(response) => response.into_inner().status,
        Err(error) => return Err(Failure::new(&step, &cause(&error))),
    };
    match ServingStatus::try_from(status) {
        Ok(ServingStatus::Serving) => Ok(Answer::text(StatusCode::OK, "SERVING")),
        Ok(other) => Err(Failure::line(
            &["service is ", other.as_str_name()].concat(),
        )),
        Err(_) => Err(Failure::line(&format!(
            "service is in the unknown state {status}"
        ))),
    }
}

/// Returns the words of a server, or of the library in its place.
fn cause(status: &tonic::Status) -> String {
    if status.code() == Code::Unimplemented {
        return "it has no grpc.health.v1.Health".to_owned();
    }
    // Of the library's own statuses the source knows more.
    match std::error::Error::source(status) {
        Some(source) => crate::failure::cause(source),
        None if status.message().is_empty() => status.code().description().to_owned(),
        None => status.message().to_owned(),
    }
}

/// A connection that tells the server who asks.
#[derive(Debug)]
struct Named(SendRequest<Body>);

impl Service<Request<Body>> for Named {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let name = HeaderValue::from_static(concat!("pintle-probe/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().insert(USER_AGENT, name);
        Box::pin(self.0.send_request(request))
    }
}
