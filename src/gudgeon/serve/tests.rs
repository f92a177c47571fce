//! The listener's guarantees to all services.

use std::io::Write as _;
use std::time::Duration;

use hyper::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// Answers `ok`, and records the paths.
#[derive(Debug, Default)]
struct Notes(std::sync::Mutex<Vec<String>>);

impl Service for Notes {
    fn answer(self: Arc<Self>, request: Request<Incoming>, _: &Arc<Connection>) -> Answering {
        self.0.lock().unwrap().push(request.uri().path().to_owned());
        ready(text(StatusCode::OK, "ok"))
    }
}

/// A thousand heads in one packet used to delay all other requests.
#[tokio::test]
async fn many_requests_in_one_packet_hold_up_no_other_client() {
    const MANY: usize = 50;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stage, stage) = Shutdown::channel();
    let notes = Arc::new(Notes::default());
    let bound = Listener {
        listener,
        tls: None,
        max_connections: 4,
    };
    tokio::spawn(run(bound, Arc::clone(&notes), stage));
    let [mut many, mut one] = [(), ()].map(|()| std::net::TcpStream::connect(address).unwrap());
    let head = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    many.write_all(head("/many").repeat(MANY).as_bytes())
        .unwrap();
    one.write_all(head("/one").as_bytes()).unwrap();
    while notes.0.lock().unwrap().len() <= MANY {
        tokio::task::yield_now().await;
    }
    let order = notes.0.lock().unwrap();
    let at = order.iter().position(|path| path == "/one").unwrap();
    assert!(at < 10, "{at} before it");
}

/// A head that never comes used to prolong the end by five seconds.
#[tokio::test(start_paused = true)]
async fn half_a_head_does_not_hold_up_the_end() {
    for bytes in ["", "GET / HTTP/1.1\r\nhost"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, stage) = Shutdown::channel();
        let bound = Listener {
            listener,
            tls: None,
            max_connections: 4,
        };
        let served = tokio::spawn(run(bound, Arc::new(Notes::default()), stage));
        let mut client = std::net::TcpStream::connect(address).unwrap();
        client.write_all(bytes.as_bytes()).unwrap();
        // It is accepted, and what it says is read.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let begun = tokio::time::Instant::now();
        end.send(ShutdownStage::Closing).unwrap();
        served.await.unwrap();
        let elapsed = begun.elapsed();
        assert!(elapsed <= Duration::from_secs(1), "{bytes}: {elapsed:?}");
    }
}

/// A connection that closes under a request loses it, and an API server repeats no POST: pods were refused in a rolling upgrade.
#[tokio::test]
async fn kept_connections_are_closed_by_an_answer_while_the_process_drains() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, stage) = Shutdown::channel();
    let bound = Listener {
        listener,
        tls: None,
        max_connections: 4,
    };
    let served = tokio::spawn(run(bound, Arc::new(Notes::default()), stage));
    let mut kept = TcpStream::connect(address).await.unwrap();
    let mut idle = TcpStream::connect(address).await.unwrap();
    for stream in [&mut kept, &mut idle] {
        let answer = ask(stream).await;
        assert!(!answer.contains("connection: close"), "{answer}");
    }
    end.send(ShutdownStage::Draining).unwrap();
    let mut late = TcpStream::connect(address).await.unwrap();
    for stream in [&mut kept, &mut late] {
        let answer = ask(stream).await;
        assert!(answer.contains("connection: close"), "{answer}");
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    }
    // One that asks nothing has until listeners close.
    end.send(ShutdownStage::Closing).unwrap();
    assert_eq!(idle.read(&mut [0]).await.unwrap(), 0);
    served.await.unwrap();
}

/// The head and the body of an answer.
async fn ask(stream: &mut TcpStream) -> String {
    let request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(answer).unwrap()
}
