//! The fake's HTTP: requests, responses and faults.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Fault;

pub(super) struct FakeRequest {
    pub(super) verb: &'static str,
    /// The plural name; empty for a path without a kind.
    pub(super) kind: String,
    /// The name, with its namespace if it has one.
    pub(super) name: String,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) body: Vec<u8>,
    /// The header of this name.
    pub(super) authorization: Option<String>,
    /// A patch by server-side apply.
    pub(super) is_apply: bool,
}

impl FakeRequest {
    /// Returns the path of the group and version, such as `/apis/discovery.k8s.io/v1`.
    pub(super) fn version_path(&self) -> String {
        let parts = if self.path.starts_with("/apis/") {
            4
        } else {
            3
        };
        let parts: Vec<&str> = self.path.split('/').take(parts).collect();
        parts.join("/")
    }
}

/// A Status for this code, with its usual reason.
pub(super) fn status(code: u16) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    refused(code, reason)
}

pub(super) fn refused(code: u16, reason: &str) -> Value {
    let message = format!("the fake says {code}");
    json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code})
}

/// An unknown path has no kind, hence no Status.
pub(super) fn no_such_path() -> (u16, Value) {
    (404, json!("404 page not found\n"))
}

/// The object that a field selector names.
pub(super) fn wanted(query: &str) -> Option<String> {
    Some(
        value(query, "fieldSelector")?
            .strip_prefix("metadata.name%3D")?
            .to_owned(),
    )
}

pub(super) fn value(query: &str, key: &str) -> Option<String> {
    query
        .split('&')
        .find_map(|pair| Some(pair.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
}

/// Returns the kind and the name that a path requests; empty for a discovery request.
fn place(path: &str) -> (String, String) {
    let mut parts = path.trim_matches('/').split('/');
    let root = parts.next().unwrap_or_default();
    let versions = if root == "apis" { 2 } else { 1 };
    let mut parts: Vec<&str> = parts.skip(versions).collect();
    let mut namespace = "";
    if let ["namespaces", inside, _, ..] = parts[..] {
        namespace = inside;
        parts.drain(..2);
    }
    let Some((kind, name)) = parts.split_first() else {
        return (String::new(), path.to_owned());
    };
    let name = match name {
        [] => String::new(),
        name => key(namespace, &name.join("/")),
    };
    ((*kind).to_owned(), name)
}

pub(super) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        return name.to_owned();
    }
    format!("{namespace}/{name}")
}

pub(super) async fn read(connection: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<FakeRequest> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        if let Ok(httparse::Status::Complete(head)) = request.parse(buffer) {
            let length = request
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case("content-length"))
                .map_or(0, |header| {
                    str::from_utf8(header.value).unwrap().parse().unwrap()
                });
            let is_apply = request.headers.iter().any(|header| {
                header.name.eq_ignore_ascii_case("content-type")
                    && header.value.starts_with(b"application/apply-patch")
            });
            let authorization = request
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case("authorization"))
                .map(|header| str::from_utf8(header.value).unwrap().to_owned());
            if buffer.len() >= head + length {
                let (path, query) = request.path?.split_once('?').unwrap_or((request.path?, ""));
                let (kind, name) = place(path);
                let verb = match (request.method?, &*kind, &*name) {
                    ("PATCH", ..) => "patch",
                    ("POST", ..) => "create",
                    ("DELETE", ..) => "delete",
                    (_, "", _) => "get",
                    (_, _, "") if query.contains("watch=true") => "watch",
                    (_, _, "") => "list",
                    _ => "get",
                };
                let path = path.to_owned();
                let query = query.to_owned();
                let body = buffer[head..head + length].to_vec();
                buffer.drain(..head + length);
                return Some(FakeRequest {
                    verb,
                    kind,
                    name,
                    path,
                    query,
                    body,
                    authorization,
                    is_apply,
                });
            }
        }
        if connection.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Sends a response: a string as text, other values as JSON.
pub(super) async fn answer(
    connection: &mut TcpStream,
    code: u16,
    more: &str,
    body: &Value,
) -> Option<()> {
    if let Value::String(text) = body {
        return respond(connection, code, "text/plain", more, text).await;
    }
    respond(
        connection,
        code,
        "application/json",
        more,
        &body.to_string(),
    )
    .await
}

pub(super) async fn respond(
    connection: &mut TcpStream,
    code: u16,
    kind: &str,
    more: &str,
    body: &str,
) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {code} X\r\nContent-Type: {kind}\r\n{more}Content-Length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes()).await.ok()?;
    connection.write_all(body.as_bytes()).await.ok()
}

pub(super) async fn chunk(connection: &mut TcpStream, event: &Value) -> Option<()> {
    let line = format!("{event}\n");
    let chunk = format!("{:x}\r\n{line}\r\n", line.len());
    connection.write_all(chunk.as_bytes()).await.ok()
}

/// Simulates a fault; `None` if the connection is not reusable.
pub(super) async fn misbehave(connection: &mut TcpStream, fault: Fault) -> Option<()> {
    match fault {
        Fault::Status(code, after) => {
            let more = if after > 0 {
                format!("Retry-After: {after}\r\n")
            } else {
                String::new()
            };
            answer(connection, code, &more, &status(code)).await
        }
        Fault::Forbids(message) => {
            let mut status = status(403);
            status["message"] = json!(message);
            answer(connection, 403, "", &status).await
        }
        Fault::Says(text) => respond(connection, 200, "application/json", "", text).await,
        // The caller has carried the request out.
        Fault::Lost | Fault::Meanwhile(_) => None,
        Fault::Silence => {
            std::future::pending::<()>().await;
            None
        }
        Fault::Cut => {
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"meta";
            connection.write_all(head).await.ok()?;
            None
        }
        Fault::Endless => {
            connection
                .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await
                .ok()?;
            let mut chunk = b"10000\r\n".to_vec();
            chunk.extend([b'x'; 0x10000]);
            chunk.extend(b"\r\n");
            while connection.write_all(&chunk).await.is_ok() {}
            None
        }
    }
}
