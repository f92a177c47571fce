//! Stands between a client and discovery: it can stop after so many messages of the server, lead new connections elsewhere, and
//! notes the server's GOAWAYs.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

struct State {
    /// Where new connections lead.
    server: SocketAddr,
    /// Messages that still pass; `None`: all.
    left: Option<usize>,
    /// One more was there.
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
    /// To there, whether somebody is there already or not.
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

    /// After so many more messages of the server nothing comes from it.
    pub fn stop_after(&self, messages: usize) {
        let mut state = self.state();
        state.left = Some(messages);
        state.stopped = false;
    }

    /// Whether the server had more to say than that.
    pub fn is_stopped(&self) -> bool {
        self.state().stopped
    }

    /// New connections lead there; those that are there stay where they are.
    pub fn lead(&self, server: SocketAddr) {
        self.state().server = server;
    }

    /// The codes of the frames by which the server said that it ends connections (GOAWAY).
    pub fn farewells(&self) -> Vec<u32> {
        self.state().farewells.clone()
    }

    /// Ends all connections; new ones carry everything.
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
        let _told = to.shutdown(Shutdown::Both);
    });
    let _ended = frames(&server, client, state);
    let _told = client.shutdown(Shutdown::Both);
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
                    // Until somebody ends it.
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
