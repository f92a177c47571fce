//! Applications that tell who they are and what they were asked, and that fail or wait where a request wants that.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::gateways::own_certificate;

/// A server of HTTP/1, of lines, and of TLS: of its own, or by its name in plain text.
///
/// `x-fail: N` makes the first N attempts of one request fail, `x-slow: N` makes an answer wait so many milliseconds, and
/// `x-slow-first: N` that of the first attempt. `x-hold: N` waits until the client has gone.
pub struct Application {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    tls: Option<Arc<ServerConfig>>,
    heads: Mutex<Vec<String>>,
    attempts: Mutex<HashMap<String, u32>>,
    waiting: Mutex<HashSet<String>>,
}

impl Application {
    pub fn start(name: &str, has_tls: bool) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            tls: has_tls.then(tls),
            heads: Mutex::default(),
            attempts: Mutex::default(),
            waiting: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&own);
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { port, shared }
    }

    /// Returns true if a request came whose head has these words.
    pub fn saw(&self, text: &str) -> bool {
        let heads = self.shared.heads.lock().unwrap();
        heads.iter().any(|head| head.contains(text))
    }

    /// Returns true while the request with this `x-hold` waits here.
    pub fn holds(&self, number: u32) -> bool {
        let waiting = self.shared.waiting.lock().unwrap();
        waiting.contains(&number.to_string())
    }
}

fn tls() -> Arc<ServerConfig> {
    let (chain, key) = own_certificate("secure.example");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        );
    Arc::new(config.unwrap())
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        let mut first = [0];
        if !matches!(stream.peek(&mut first), Ok(1)) {
            return;
        }
        match (first, &self.tls) {
            ([0x16], Some(tls)) => {
                let mut session = ServerConnection::new(Arc::clone(tls)).unwrap();
                if session.complete_io(&mut stream).is_err() {
                    return;
                }
                let name = session.server_name().unwrap_or("-").to_owned();
                let mut stream = StreamOwned::new(session, stream);
                self.answer(&mut stream, &format!("tls: {name}\n"));
            }
            ([0x16], None) => {
                // A connection that ends with something unread is reset, and what was said may be lost with it.
                let _hello = stream.read(&mut [0; 4096]);
                let _written = writeln!(stream, "{}", self.name);
                let _end = stream.read(&mut [0; 64]);
            }
            (_, None) => self.answer(&mut stream, ""),
            // TLS is wanted.
            (_, Some(_)) => {}
        }
    }

    fn answer(&self, stream: &mut (impl Read + Write), before: &str) {
        loop {
            let Some(head) = head(stream) else { return };
            if !head.contains(" HTTP/1.") {
                let line = head.trim_end();
                if writeln!(stream, "{} {line}", self.name).is_err() {
                    return;
                }
                continue;
            }
            let head = format!("{before}{}", lower(&head));
            self.heads.lock().unwrap().push(head.clone());
            let status = self.status(&head);
            if let (200, Some(number)) = (status, value(&head, "x-hold")) {
                self.waiting.lock().unwrap().insert(number.to_owned());
                let _end = stream.read(&mut [0]);
                self.waiting.lock().unwrap().remove(number);
                return;
            }
            let body = format!("{}\n{head}", self.name);
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {status} Said\r\nContent-Length: {length}\r\nx-from: {}\r\nx-internal: 1\r\n\r\n{body}",
                self.name
            );
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn status(&self, head: &str) -> u16 {
        let number = |name: &str| value(head, name).and_then(|text| text.parse::<u32>().ok());
        let attempt = match value(head, "x-row") {
            None => 1,
            Some(row) => {
                let mut attempts = self.attempts.lock().unwrap();
                let count = attempts.entry(row.to_owned()).or_default();
                *count += 1;
                *count
            }
        };
        let wait = match (number("x-slow"), number("x-slow-first")) {
            (Some(wait), _) => wait,
            (_, Some(wait)) if attempt == 1 => wait,
            _ => 0,
        };
        thread::sleep(Duration::from_millis(wait.into()));
        let fails = self.name == "bad" || number("x-fail").is_some_and(|times| attempt <= times);
        if fails { 503 } else { 200 }
    }
}

/// A head of HTTP, or one line.
fn head(stream: &mut impl Read) -> Option<String> {
    let mut text = Vec::new();
    let mut byte = [0];
    loop {
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return None;
        }
        text.push(byte[0]);
        let is_http = text.windows(8).any(|part| part == b" HTTP/1.");
        if text.ends_with(b"\r\n\r\n") || (byte == *b"\n" && !is_http) {
            return String::from_utf8(text).ok();
        }
    }
}

/// With names of headers in lower case, and plain ends of lines.
fn lower(head: &str) -> String {
    let lines = head.lines().map(|line| match line.split_once(": ") {
        Some((name, value)) => format!("{}: {value}\n", name.to_ascii_lowercase()),
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find_map(|(found, value)| (found == name).then_some(value))
}
