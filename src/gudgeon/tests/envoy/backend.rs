//! Applications, and how a client speaks to them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::place::{SOON, exchange, until};

/// Clients that the backend has seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    all: Arc<Mutex<Vec<(SocketAddr, String)>>>,
    /// Requests for `/held` are answered from now on.
    released: Arc<(Mutex<bool>, Condvar)>,
}

impl Seen {
    fn note(&self, peer: SocketAddr, head: String) {
        self.all.lock().unwrap().push((peer, head));
    }

    /// Returns the client address and the head of the last request.
    pub fn last(&self) -> (SocketAddr, String) {
        self.all.lock().unwrap().last().unwrap().clone()
    }

    /// The heads of requests for `/held`.
    pub fn held_requests(&self) -> Vec<String> {
        let all = self.all.lock().unwrap();
        let requests = all.iter().filter(|(_, head)| is_held(head));
        requests.map(|(_, head)| head.clone()).collect()
    }

    pub fn release(&self) {
        *self.released.0.lock().unwrap() = true;
        self.released.1.notify_all();
    }

    fn wait(&self) {
        let (released, changed) = &*self.released;
        let guard = released.lock().unwrap();
        drop(changed.wait_while(guard, |released| !*released).unwrap());
    }
}

fn is_held(head: &str) -> bool {
    head.starts_with("GET /held ")
}

/// A server that answers every request with its name, in any protocol: HTTP/1, HTTP/2 (gRPC's health service), and on a
/// plain connection a line by its name and that line.
pub struct Backend {
    pub port: u16,
    pub seen: Seen,
}

impl Backend {
    pub fn new(ip: impl Into<IpAddr>, body: &'static str) -> Self {
        Self::at(ip, 0, body)
    }

    pub fn at(ip: impl Into<IpAddr>, port: u16, body: &'static str) -> Self {
        let listener = TcpListener::bind((ip.into(), port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Seen::default();
        let shared = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = shared.clone();
                thread::spawn(move || serve(stream, body, &seen));
            }
        });
        Self { port, seen }
    }

    /// Starts a server that sends a greeting before the client has sent anything.
    pub fn greeting(ip: impl Into<IpAddr>, greeting: &'static str) -> u16 {
        let listener = TcpListener::bind((ip.into(), 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let _gone = stream.write_all(greeting.as_bytes());
                    let _end = stream.read(&mut [0; 64]);
                });
            }
        });
        port
    }

    /// On a socket in the file system.
    pub fn unix(path: &Path, body: &'static str) {
        let listener = UnixListener::bind(path).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let reader = stream.try_clone().unwrap();
                    answer(BufReader::new(reader), stream, body, |_| {});
                });
            }
        });
    }
}

fn serve(stream: TcpStream, body: &str, seen: &Seen) {
    let mut first = [0; 4];
    if !matches!(stream.peek(&mut first), Ok(1..)) {
        return;
    }
    let peer = stream.peer_addr().unwrap();
    let reader = BufReader::new(stream.try_clone().unwrap());
    match &first {
        b"GET " => answer(reader, stream, body, |head| {
            let is_waiting = is_held(&head);
            seen.note(peer, head);
            if is_waiting {
                seen.wait();
            }
        }),
        // A ClientHello has no line break; the server answers in plain text.
        [0x16, ..] => {
            let (mut reader, mut stream) = (reader, stream);
            let _read = reader.fill_buf();
            let _written = stream.write_all(format!("{body}\n").as_bytes());
        }
        b"PRI " => {
            seen.note(peer, "h2".to_owned());
            splice(stream, TcpStream::connect(health()).unwrap());
        }
        _ => echo(reader, stream, body, |line| seen.note(peer, line)),
    }
}

fn answer(mut reader: impl BufRead, mut to: impl Write, body: &str, seen: impl Fn(String)) {
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !matches!(reader.read_line(&mut head), Ok(1..)) {
                return;
            }
        }
        let upgrade = head.to_ascii_lowercase().contains("upgrade: websocket");
        seen(head);
        if upgrade {
            let written = to.write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            );
            if written.is_ok() {
                echo(reader, to, body, |_| {});
            }
            return;
        }
        let length = body.len();
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        if to.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn echo(mut reader: impl BufRead, mut to: impl Write, body: &str, seen: impl Fn(String)) {
    let mut line = String::new();
    while matches!(reader.read_line(&mut line), Ok(1..)) {
        seen(line.clone());
        if to.write_all(format!("{body} {line}").as_bytes()).is_err() {
            return;
        }
        line.clear();
    }
}

fn splice(one: TcpStream, other: TcpStream) {
    let pairs = [
        (one.try_clone().unwrap(), other.try_clone().unwrap()),
        (other, one),
    ];
    for (mut from, mut to) in pairs {
        thread::spawn(move || {
            let _ended = std::io::copy(&mut from, &mut to);
            let _closed = to.shutdown(std::net::Shutdown::Write);
        });
    }
}

/// Starts a server of gRPC's health service, in the caller's network namespace.
fn health() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    thread::spawn(move || {
        block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let health = HealthService::from_health_reporter(HealthReporter::new());
            let incoming = tonic::transport::server::TcpIncoming::from(listener);
            let server = tonic::transport::Server::builder().add_service(HealthServer::new(health));
            let _ended = server.serve_with_incoming(incoming).await;
        });
    });
    address
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

/// gRPC's health service, asked over HTTP/2 without TLS: whether it answered.
pub fn health_of(address: SocketAddr, authority: &str) -> Result<(), String> {
    block_on(async {
        let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"))
            .unwrap()
            .origin(format!("http://{authority}").parse().unwrap())
            .timeout(SOON);
        let channel = endpoint
            .connect()
            .await
            .map_err(|error| error.to_string())?;
        let asked = HealthClient::new(channel)
            .check(HealthCheckRequest::default())
            .await;
        asked.map(drop).map_err(|status| status.to_string())
    })
}

/// Sends a line, and returns the response; `None` if the connection ends without one.
pub fn say(mut stream: TcpStream, line: &str) -> Option<String> {
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(line.as_bytes()).ok()?;
    stream.write_all(b"\n").ok()?;
    read_line(stream)
}

/// One line.
pub fn read_line(stream: TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut line = String::new();
    match BufReader::new(stream).read_line(&mut line) {
        Ok(1..) => Some(line.trim_end().to_owned()),
        Ok(_) => None,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
        Err(error) => panic!("nothing came, not even an end: {error}"),
    }
}

/// A client that asks without end, each time over a connection of its own.
pub struct Load {
    ends: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    thread: thread::JoinHandle<(usize, Vec<String>)>,
}

impl Load {
    pub fn new(ip: IpAddr, host: &'static str, port: u16) -> Self {
        Self::of(move || {
            let answer = ask(ip, host, port);
            thread::sleep(Duration::from_millis(5));
            match answer {
                Ok((200, _)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
    }

    /// Starts a client that makes this request, which says how it failed, and returns once it was made for the first time.
    pub fn of(mut request: impl FnMut() -> Result<(), String> + Send + 'static) -> Self {
        let (ends, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (ended, count) = (Arc::clone(&ends), Arc::clone(&asked));
        let thread = thread::spawn(move || {
            let (mut good, mut bad) = (0, Vec::new());
            while !ended.load(Ordering::Relaxed) {
                match request() {
                    Ok(()) => good += 1,
                    Err(how) => bad.push(how),
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            (good, bad)
        });
        let this = Self {
            ends,
            asked,
            thread,
        };
        this.until_asked(1);
        this
    }

    /// Waits until it has made so many requests in all: how many it makes in a time is the machine's to say.
    fn until_asked(&self, times: usize) {
        until(&format!("{times} requests"), || {
            (self.asked.load(Ordering::Relaxed) >= times).then_some(())
        });
    }

    /// Ends it after so many requests at least, of which one began after the call, and returns how many they were; asserts that
    /// none failed.
    pub fn end_after(self, times: usize) -> usize {
        // One may be under way.
        let next = self.asked.load(Ordering::Relaxed) + 2;
        self.until_asked(times.max(next));
        self.ends.store(true, Ordering::Relaxed);
        let (good, bad) = self.thread.join().unwrap();
        assert_eq!(bad, [""; 0], "beside {good} that were answered");
        good
    }
}

fn ask(ip: IpAddr, host: &str, port: u16) -> Result<(u16, String), String> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(ip, port), SOON);
    let mut stream = stream.map_err(|error| format!("connect: {error}"))?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    exchange(&mut stream, "GET", "/", host).ok_or_else(|| "no answer".to_owned())
}
