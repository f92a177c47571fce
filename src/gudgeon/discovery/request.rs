//! `request METHOD PATH [BODY]`: one request to a running discovery, its answer's body to stdout.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime;

use crate::cli::RequestFlags;
use crate::exit::{Exit, Failure};

/// The timeout of the whole request.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer: every resource of a large proxy as JSON.
const MAX_ANSWER_BYTES: usize = 1 << 30;

/// Sends a request to a running discovery. Returns the body of the answer, whether that is found (2xx) or not (404), with a
/// newline at its end.
///
/// # Errors
/// A flag is not valid, or the server does not answer, or it refuses.
pub(crate) fn request(flags: &RequestFlags) -> Result<Vec<u8>, Failure> {
    let usage = |message: String| Failure {
        exit: Exit::Usage,
        message,
    };
    let method =
        Method::from_bytes(flags.method.to_ascii_uppercase().as_bytes()).map_err(|_| {
            usage(format!(
                "cannot use {:?}: want a method such as GET",
                flags.method
            ))
        })?;
    let uri: Uri = flags
        .path
        .parse()
        .ok()
        .filter(|uri: &Uri| uri.path().starts_with('/') && uri.host().is_none())
        .ok_or_else(|| {
            usage(format!(
                "cannot use {:?}: want a path such as /debug/syncz",
                flags.path
            ))
        })?;
    let address = &flags.http_addr;
    let is_address =
        |(host, port): (&str, &str)| !host.contains('/') && port.parse::<u16>().is_ok();
    if !address.rsplit_once(':').is_some_and(is_address) {
        return Err(Failure::config(format!(
            "cannot use --http-addr {address:?}: want HOST:PORT"
        )));
    }
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|cause| Failure::system(format!("cannot start the runtime: {cause}")))?;
    let failed = |cause: String| Failure {
        exit: Exit::Failed,
        message: format!("cannot {method} http://{address}{uri}: {cause}"),
    };
    let asked = runtime.block_on(async {
        tokio::time::timeout(TIMEOUT, send(flags, &method, &uri))
            .await
            .unwrap_or_else(|_| Err("no response for 60 s".to_owned()))
    });
    // A name that is still being resolved must not hold up the end.
    runtime.shutdown_background();
    let (status, mut body) = asked.map_err(failed)?;
    if status.as_u16() > 399 && status != StatusCode::NOT_FOUND {
        let message = String::from_utf8_lossy(&body).trim().to_owned();
        return Err(failed(format!("{status}: {message}")));
    }
    if body.last().is_some_and(|last| *last != b'\n') {
        body.push(b'\n');
    }
    Ok(body)
}

async fn send(
    flags: &RequestFlags,
    method: &Method,
    uri: &Uri,
) -> Result<(StatusCode, Vec<u8>), String> {
    let full = match flags.http_addr.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => flags.http_addr.clone(),
    };
    // It tries each address of the name: `localhost` may be ::1 first, where the server listens on 127.0.0.1 alone.
    let stream = TcpStream::connect(&full).await.map_err(|cause| {
        format!("{cause}; is --http-addr that of a discovery, or of a port-forward to one?")
    })?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|cause| cause.to_string())?;
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header(HOST, full)
        .body(Full::new(Bytes::from(
            flags.body.clone().unwrap_or_default(),
        )))
        .map_err(|cause| cause.to_string())?;
    let answer = sender
        .send_request(request)
        .await
        .map_err(|cause| cause.to_string())?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES)
        .collect()
        .await
        .map_err(|cause| cause.to_string())?;
    Ok((status, body.to_bytes().to_vec()))
}
