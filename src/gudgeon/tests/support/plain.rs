//! The protocol of the fakes of API servers: HTTP/1.1 without TLS, as much of it as a client of Kubernetes uses.

use std::io::{BufRead, Result, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

/// Serves on a port of its own until the test ends, each connection in a thread.
pub fn serve<S: Clone + Send + 'static>(
    on: impl FnOnce(u16) -> S,
    each: fn(&S, TcpStream) -> Result<()>,
) -> S {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = on(listener.local_addr().unwrap().port());
    let this = server.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = server.clone();
            // An error only means that the client has gone.
            std::thread::spawn(move || drop(each(&server, stream)));
        }
    });
    this
}

/// A kubeconfig that leads to a port.
pub fn kubeconfig(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: a\n  cluster: {{server: 'http://127.0.0.1:{port}'}}\n\
         contexts:\n- name: a\n  context: {{cluster: a, user: a}}\nusers:\n- name: a\n  user: {{token: t}}\n"
    )
}

/// The first line of the next request, and its body; `None` when the client has gone.
pub fn asked(from: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let (mut line, mut header) = (String::new(), String::new());
    let mut length = 0;
    from.read_line(&mut line).ok()?;
    while header != "\r\n" {
        header.clear();
        // The client may disconnect within a head.
        if from.read_line(&mut header).ok()? == 0 {
            return None;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some((line, body))
}

pub fn answer(to: &mut TcpStream, status: u16, body: &str) -> Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    to.write_all((head + body).as_bytes())
}

/// The head of a watch's response.
pub const WATCH_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

/// One event of a watch.
pub fn event(to: &mut TcpStream, event: &Value) -> Result<()> {
    let line = format!("{event}\n");
    write!(to, "{:x}\r\n{line}\r\n", line.len())
}
