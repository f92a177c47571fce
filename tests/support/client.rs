//! A client of the status port, which reads an answer to its end and keeps every byte of it, and an application of the
//! test's own, which says to each request what the test wants.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{Agent, DEADLINE};

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// A connection is closed after its answer; what is missing then is an error.
    pub(crate) fn read(stream: &mut TcpStream) -> Result<Self, String> {
        let mut bytes = Vec::new();
        stream
            .read_to_end(&mut bytes)
            .map_err(|error| format!("read: {error} after {} bytes", bytes.len()))?;
        Self::parse(&bytes)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let at = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .ok_or_else(|| format!("no head: {:?}", String::from_utf8_lossy(bytes)))?;
        let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = &bytes[at + 4..];
        let lower = head.to_ascii_lowercase();
        let body = if lower.contains("transfer-encoding: chunked") {
            unchunked(body)?
        } else {
            body.to_vec()
        };
        Ok(Self { status, head, body })
    }
}

/// The bytes of a chunked body, which must have its end.
fn unchunked(mut rest: &[u8]) -> Result<Vec<u8>, String> {
    let mut body = Vec::with_capacity(rest.len());
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n");
        let end = end.ok_or_else(|| format!("a chunk's size is missing after {}", body.len()))?;
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).map_err(|_| format!("size {size:?}"))?;
        rest = &rest[end + 2..];
        if size == 0 {
            return if rest == b"\r\n" {
                Ok(body)
            } else {
                Err("no end".to_owned())
            };
        }
        if rest.len() < size + 2 {
            return Err(format!("a chunk is cut after {}", body.len()));
        }
        body.extend_from_slice(&rest[..size]);
        assert_eq!(&rest[size..size + 2], b"\r\n");
        rest = &rest[size + 2..];
    }
}

/// A connection to `port` on which `request` has been sent.
pub(crate) fn send(port: u16, request: &str) -> Result<TcpStream, String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))
        .map_err(|error| format!("connect: {error}"))?;
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    stream
        .write_all(request.as_bytes())
        .map_err(|error| format!("write: {error}"))?;
    Ok(stream)
}

/// One request, its answer.
pub(crate) fn ask(port: u16, request: &str) -> Result<Reply, String> {
    Reply::read(&mut send(port, request)?)
}

/// `METHOD PATH`, with `headers` that end in line ends each.
pub(crate) fn request(line: &str, headers: &str) -> String {
    // Orders are taken from here only, and kubelet asks by the pod's address.
    let host = if line.starts_with("POST") {
        "localhost:15020"
    } else {
        "10.1.2.3:15020"
    };
    format!("{line} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n")
}

/// What must be answered.
pub(crate) fn asked(port: u16, line: &str) -> Reply {
    ask(port, &request(line, "")).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// An application. What it is asked is kept.
pub(crate) struct Application {
    pub port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Application {
    /// `answer` is given the head of each request.
    pub(crate) fn start(
        answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::at("127.0.0.1:0", answer)
    }

    /// Says the same to everybody.
    pub(crate) fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| stream.write_all(&answer))
    }

    pub(crate) fn at(
        address: &str,
        answer: impl Fn(&str, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (recorded, answer) = (Arc::clone(&heads), Arc::new(answer));
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (recorded, answer) = (Arc::clone(&recorded), Arc::clone(&answer));
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let head = read_head(&mut stream);
                    recorded.lock().unwrap().push(head.clone());
                    // A client that has gone is its own business.
                    drop(answer(&head, &mut stream));
                    drop(stream.shutdown(Shutdown::Write));
                    wait_for_close(&mut stream);
                });
            }
        });
        Self { port, heads }
    }

    /// The heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn read_head(stream: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Until the other side has gone.
pub(crate) fn wait_for_close(stream: &mut TcpStream) {
    let mut scratch = [0; 1024];
    while stream.read(&mut scratch).unwrap_or(0) > 0 {}
}

/// An answer with its length.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

impl Agent {
    /// What the status port answers to a GET.
    pub(crate) fn status(&self, path: &str) -> Reply {
        asked(self.status.number, &format!("GET {path}"))
    }

    /// What the status port says about readiness, without its line end.
    pub(crate) fn readiness(&self) -> (u16, String) {
        let reply = self.status("/healthz/ready");
        (reply.status, reply.text().trim_end().to_owned())
    }

    /// Waits until the status port says `status` and `text` about readiness.
    pub(crate) fn wait_readiness(&self, status: u16, text: &str) {
        let end = Instant::now() + DEADLINE;
        loop {
            let response = ask(self.status.number, &request("GET /healthz/ready", ""));
            if let Ok(reply) = &response
                && reply.status == status
                && reply.text().trim_end() == text
            {
                return;
            }
            assert!(
                Instant::now() < end,
                "waited in vain for {status} {text:?}, the last was {response:?}"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}
