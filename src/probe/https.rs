//! One request by HTTP/1.1, or by HTTP/2 where the server insists. Redirects are the starter's business.

#![forbid(unsafe_code)]

use std::net::SocketAddr;

use http_body_util::BodyExt as _;
use hyper::Response;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::answer::{Answer, MAX_BODY_BYTES};
use crate::connection::{connect, part};
use crate::deadline::Deadline;
use crate::failure::Failure;
use crate::request::Request;
use crate::tls::{Encrypted, Lenient, Version, negotiate};

/// The head of an answer, in bytes. Chosen: twice what the status port takes of a request's head.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The same for HTTP/2, which counts in this type.
const MAX_HEADER_LIST_BYTES: u32 = 16 * 1024;
/// The bytes that a server may send before we ask for more: the smallest window that HTTP/2 knows, more than the body we read.
const WINDOW: u32 = 64 * 1024 - 1;

/// The server's answer, cut.
pub(crate) async fn probe(
    address: SocketAddr,
    request: Request,
    deadline: Deadline,
) -> Result<Answer, Failure> {
    let stream = connect(address, deadline).await?;
    // An IPv6 address has brackets here, and is no name anyway.
    let host = request.authority.host();
    let Encrypted { stream, version } = negotiate(stream, (address, host), deadline).await?;
    let exchange = Exchange {
        stream,
        step: format!("get an answer of {address}"),
        deadline,
    };
    match version {
        Version::Http1 => exchange.by_http1(request).await,
        Version::Http2 => exchange.by_http2(request).await,
    }
}

/// One request and its answer.
struct Exchange {
    stream: Lenient,
    step: String,
    deadline: Deadline,
}

impl Exchange {
    async fn by_http1(self, request: Request) -> Result<Answer, Failure> {
        let (step, deadline) = (&*self.step, self.deadline);
        let handshake = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .title_case_headers(true)
            .handshake(TokioIo::new(self.stream));
        let (mut sender, connection) = deadline.run(step, handshake).await?;
        let task = tokio::spawn(connection);
        let sending = sender.send_request(request.for_http1());
        let response = deadline.run(step, sending).await?;
        let answer = read(response, step, deadline).await?;
        drop(sender);
        part(task, deadline).await;
        Ok(answer)
    }

    async fn by_http2(self, request: Request) -> Result<Answer, Failure> {
        let (step, deadline) = (&*self.step, self.deadline);
        let request = request.for_http2()?;
        let handshake = http2::Builder::new(TokioExecutor::new())
            .max_header_list_size(MAX_HEADER_LIST_BYTES)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(self.stream));
        let (mut sender, connection) = deadline.run(step, handshake).await?;
        let task = tokio::spawn(connection);
        let response = deadline.run(step, sender.send_request(request)).await?;
        let answer = read(response, step, deadline).await?;
        drop(sender);
        part(task, deadline).await;
        Ok(answer)
    }
}

/// As much of the body as is passed on.
async fn read(
    response: Response<Incoming>,
    step: &str,
    deadline: Deadline,
) -> Result<Answer, Failure> {
    let (head, mut body) = response.into_parts();
    if head.status.is_informational() {
        // 101: nobody asked for it. The starter would wait for what comes after it.
        let cause = ["it is ", head.status.as_str()].concat();
        return Err(Failure::new(step, &cause));
    }
    let mut kept = Vec::new();
    while kept.len() < MAX_BODY_BYTES && !body.is_end_stream() {
        let frame = async { body.frame().await.transpose() };
        let Some(frame) = deadline.run(step, frame).await? else {
            break;
        };
        if let Ok(data) = frame.into_data() {
            let space = MAX_BODY_BYTES.saturating_sub(kept.len());
            kept.extend(data.into_iter().take(space));
        }
    }
    Ok(Answer::new(head.status, &head.headers, kept))
}
