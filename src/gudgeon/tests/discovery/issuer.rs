//! Issuers of tokens, as far as somebody fetches their keys.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Answers to whoever asks: it is given the path, and writes what it likes.
type Answering = Box<dyn Fn(&str, &mut dyn Write) -> std::io::Result<()> + Send + Sync>;

pub struct Issuer {
    pub address: SocketAddr,
    answering: Arc<Mutex<Arc<Answering>>>,
    asked: Arc<AtomicUsize>,
}

/// An answer with this body.
pub fn ok(body: &str, to: &mut dyn Write) -> std::io::Result<()> {
    let length = body.len();
    write!(
        to,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

impl Issuer {
    pub fn new(
        answering: impl Fn(&str, &mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::over(|stream| Some(Box::new(stream)), answering)
    }

    /// With this body for all that is asked for.
    pub fn of(body: impl Into<String>) -> Self {
        let body = body.into();
        Self::new(move |_, to| ok(&body, to))
    }

    /// One that makes something else of a connection first.
    pub fn over<S: Read + Write + 'static>(
        stream: impl Fn(std::net::TcpStream) -> Option<Box<S>> + Send + Sync + 'static,
        answering: impl Fn(&str, &mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let answering: Answering = Box::new(answering);
        let answering = Arc::new(Mutex::new(Arc::new(answering)));
        let asked = Arc::new(AtomicUsize::new(0));
        let (answers, count, stream) =
            (Arc::clone(&answering), Arc::clone(&asked), Arc::new(stream));
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (answers, count) = (Arc::clone(&answers), Arc::clone(&count));
                let stream = Arc::clone(&stream);
                thread::spawn(move || {
                    let Some(stream) = stream(connection) else {
                        return;
                    };
                    let mut reader = BufReader::new(stream);
                    let mut head = String::new();
                    while !head.ends_with("\r\n\r\n") {
                        if !matches!(reader.read_line(&mut head), Ok(1..)) {
                            return;
                        }
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                    let path = head.split(' ').nth(1).unwrap_or_default();
                    let answer = Arc::clone(&answers.lock().unwrap());
                    let _gone = answer(path, reader.get_mut());
                });
            }
        });
        Self {
            address,
            answering,
            asked,
        }
    }

    /// Something else from now on.
    pub fn say(&self, body: impl Into<String>) {
        let body = body.into();
        let answering: Answering = Box::new(move |_, to| ok(&body, to));
        *self.answering.lock().unwrap() = Arc::new(answering);
    }

    /// No answer from now on.
    pub fn fall_silent(&self) {
        let answering: Answering = Box::new(|_, _| Err(std::io::ErrorKind::Other.into()));
        *self.answering.lock().unwrap() = Arc::new(answering);
    }

    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}
