//! The built program as a child: its log, its ports, its end, and plain requests to it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Generous: the machine may be busy with something else altogether.
pub const SOON: Duration = Duration::from_secs(60);

/// Waits until the check returns a value.
pub fn until<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    within(SOON, what, check)
}

pub fn within<T>(limit: Duration, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until `objection` finds nothing to object to in three rounds on end. Envoy exchanges a listener while both of its versions
/// accept connections: a single answer may come from either. The last objection is what the test fails with.
#[allow(dead_code, reason = "not every test program asks a proxy")]
pub fn settled(mut objection: impl FnMut() -> Option<String>) {
    let end = Instant::now() + SOON;
    let mut rounds = 0;
    while rounds < 3 {
        match objection() {
            None => rounds += 1,
            Some(text) if Instant::now() >= end => panic!("waited in vain: {text}"),
            Some(_) => rounds = 0,
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn gudgeon() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gudgeon"))
}

/// Returns a port for flags that do not accept 0, below the range of outgoing connections, one of which could take it before its
/// user binds it. No other test has it while this process runs: the abstract socket is the lock, of the init's tests too.
pub fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static LOCKS: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let number = 26_000 + u16::try_from((std::process::id() * 131 + step) % 6_000).unwrap();
        let name = SocketAddr::from_abstract_name(format!("pintle_test_port_{number}")).unwrap();
        if let Ok(lock) = UnixDatagram::bind_addr(&name)
            && TcpListener::bind(("0.0.0.0", number)).is_ok()
        {
            LOCKS.lock().unwrap().push(lock);
            return number;
        }
    }
}

/// A running one, gone at the end; a test that fails shows its log.
pub struct Program {
    pub child: Child,
    /// A file and no pipe: a line is in it once the program has written it, and no thread has to read it first.
    stdout: File,
}

impl Program {
    pub fn start(command: &mut Command) -> Self {
        let stdout = tempfile::Builder::new().append(true).tempfile().unwrap();
        let stdout = stdout.into_file();
        let command = command.stdout(stdout.try_clone().unwrap());
        let command = command.stderr(Stdio::inherit());
        // The C library of the program that ships gives back each large block when it is freed. glibc's stops to after the first
        // one, and keeps up to five times what is in use; a threshold that is set stays.
        command.env("MALLOC_MMAP_THRESHOLD_", "131072");
        let child = command.spawn().unwrap();
        Self { child, stdout }
    }

    /// The log's lines so far; one that is being written is none yet.
    pub fn log(&self) -> Vec<String> {
        let length = self.stdout.metadata().unwrap().len();
        let mut text = vec![0; usize::try_from(length).unwrap()];
        self.stdout.read_exact_at(&mut text, 0).unwrap();
        let text = String::from_utf8_lossy(&text);
        let lines = text.rsplit_once('\n').map(|(lines, _)| lines.lines());
        lines.into_iter().flatten().map(ToOwned::to_owned).collect()
    }

    pub fn logged(&self, text: &str) -> usize {
        let log = self.log();
        log.iter().filter(|line| line.contains(text)).count()
    }

    /// Returns the address after these words in the log.
    pub fn address_after(&mut self, text: &str) -> String {
        until(text, || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "ended: {ended:?} {:?}", self.log());
            let log = self.log();
            let (_, address) = log.iter().find_map(|line| line.split_once(text))?;
            // In JSON the line goes on.
            address.split([' ', '"']).next().map(ToOwned::to_owned)
        })
    }

    pub fn port_after(&mut self, text: &str) -> u16 {
        let address = self.address_after(text);
        address.rsplit(':').next().unwrap().parse().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(sent.unwrap().success());
    }

    pub fn wait(&mut self) -> ExitStatus {
        until("its end", || self.child.try_wait().unwrap())
    }

    /// Its log, when it has ended by itself.
    pub fn whole_log(&mut self) -> Vec<String> {
        self.wait();
        self.log()
    }

    pub fn kill(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    /// Kibibytes in memory, but for the pages of the program's file: those can be dropped and read again, and are once its
    /// start is over.
    pub fn anonymous(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let amount = line.unwrap().split_whitespace().nth(1);
        amount.unwrap().parse().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
        #[allow(clippy::print_stderr, reason = "a test that fails shows why")]
        if std::thread::panicking() {
            eprintln!("--- its log\n{}", self.log().join("\n"));
        }
    }
}

/// A part of a test's own that is a running program.
macro_rules! is_a_program {
    ($name:ty) => {
        impl std::ops::Deref for $name {
            type Target = Program;

            fn deref(&self) -> &Program {
                &self.program
            }
        }

        impl std::ops::DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Program {
                &mut self.program
            }
        }
    };
}
pub(crate) use is_a_program;

/// The value of a metric's line.
pub fn metric_in(text: &str, name: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

/// Sends one request over a connection of its own; `None` if there is no response.
pub fn request(port: u16, method: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    exchange(&mut stream, method, path, "localhost")
}

/// Checks the format of metrics by `Accept`, and the families of each role.
pub fn metrics_of(port: u16) {
    for (accept, kind) in [
        ("", "text/plain; version=0.0.4"),
        ("Accept: text/plain\r\n", "text/plain; version=0.0.4"),
        ("Accept: */*\r\n", "text/plain; version=0.0.4"),
        (
            "Accept: application/openmetrics-text\r\n",
            "application/openmetrics-text; version=1.0.0",
        ),
        (
            "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1\r\n",
            "application/openmetrics-text; version=1.0.0",
        ),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{accept}Connection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let header = format!("content-type: {kind}; charset=utf-8");
        assert!(
            head.to_ascii_lowercase().contains(&header),
            "{accept}: {head}"
        );
        let open = kind.starts_with("application/openmetrics-text");
        assert_eq!(body.ends_with("\n# EOF\n"), open, "{accept}: {body}");
        assert_eq!(body.contains("# EOF"), open, "{accept}: {body}");
        for line in [
            "# HELP gudgeon_build_info Version and revision, always 1.\n",
            "\ngudgeon_build_info{version=\"",
        ] {
            assert!(body.contains(line), "{accept}: {body}");
        }
    }
}

/// A connection to a port of this host from where Envoy passes on what came to a pod from outside.
pub fn passed_through(port: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    use std::net::{Ipv4Addr, SocketAddrV4};

    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let from = Ipv4Addr::new(127, 0, 0, 6);
    bind(&socket, &SocketAddrV4::new(from, 0)).unwrap();
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
    TcpStream::from(socket)
}

/// Returns the status and body of a response; `None` if there is none.
pub fn exchange(
    stream: &mut TcpStream,
    method: &str,
    path: &str,
    host: &str,
) -> Option<(u16, String)> {
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}
