//! A relay between a client and discovery: it can stop after so many messages of the server, lead new connections elsewhere,
//! and records the server's GOAWAYs.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

struct State {
    /// The server of new connections.
    server: SocketAddr,
    /// Messages that still pass; `None`: all.
    left: Option<usize>,
    /// The server has sent one more message than the limit.
    stopped: bool,
    connections: Vec<TcpStream>,
    /// The codes of the server's farewells (GOAWAY).
    farewells: Vec<u32>,
}

pub struct Relay {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Relay {
    /// Creates a relay to a server, which need not be running yet.
    pub fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State {
            server,
            left: None,
            stopped: false,
            connections: Vec::new(),
            farewells: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || connection(&client, &state));
            }
        });
        Self { port, state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Stops the server's messages after so many more.
    pub fn stop_after(&self, messages: usize) {
        let mut state = self.state();
        state.left = Some(messages);
        state.stopped = false;
    }

    /// Returns true if the server has sent more than the limit.
    pub fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Leads new connections to this server; open ones stay.
    pub fn lead(&self, server: SocketAddr) {
        self.state().server = server;
    }

    /// Returns the error codes of the server's GOAWAY frames.
    pub fn farewells(&self) -> Vec<u32> {
        self.state().farewells.clone()
    }

    /// Ends all connections, and lifts the limit for new ones.
    pub fn cut(&self) {
        let mut state = self.state();
        for connection in state.connections.drain(..) {
            let _gone = connection.shutdown(Shutdown::Both);
        }
        state.left = None;
    }
}

fn connection(client: &TcpStream, state: &Mutex<State>) {
    let server = loop {
        let server = state.lock().unwrap().server;
        if let Ok(server) = TcpStream::connect(server) {
            break server;
        }
        thread::sleep(Duration::from_millis(10));
    };
    for end in [client, &server] {
        end.set_nodelay(true).unwrap();
        state
            .lock()
            .unwrap()
            .connections
            .push(end.try_clone().unwrap());
    }
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ended = std::io::copy(&mut from, &mut to);
        let _closed = to.shutdown(Shutdown::Both);
    });
    let _ended = frames(&server, client, state);
    let _closed = client.shutdown(Shutdown::Both);
}

/// HTTP/2, frame by frame. A short message is one frame of data.
fn frames(mut from: &TcpStream, mut to: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    loop {
        let mut frame = vec![0; 9];
        from.read_exact(&mut frame)?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        let is_message = frame[3] == 0 && length > 0;
        frame.resize(9 + length as usize, 0);
        from.read_exact(&mut frame[9..])?;
        // GOAWAY: the last stream, then the code.
        if frame[3] == 7 {
            let code = u32::from_be_bytes(frame[13..17].try_into().unwrap());
            state.lock().unwrap().farewells.push(code);
        }
        if is_message {
            let mut state = state.lock().unwrap();
            match &mut state.left {
                Some(0) => {
                    state.stopped = true;
                    drop(state);
                    // Until the test ends the connection.
                    std::io::copy(&mut from, &mut std::io::sink())?;
                    return Ok(());
                }
                Some(left) => *left -= 1,
                None => {}
            }
        }
        to.write_all(&frame)?;
    }
}
