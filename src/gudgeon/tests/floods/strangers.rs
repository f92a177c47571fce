//! Clients that come anew as soon as they are sent away, and send their bodies as slowly as they can.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ClientConfig;

use super::{alone, beside, ends, memory_is_back, within_its_limit};
use crate::support::{Client, Injector, client_config, h2, pod, review};

/// How many at a time, on how many threads.
const STRANGERS: usize = 200;
const THREADS: usize = 4;
/// How long they go on.
const ATTACK: Duration = Duration::from_secs(4);
/// Between two bytes of one of them, and how many it sends before it comes anew.
const PAUSE: Duration = Duration::from_millis(20);
const DROPS: usize = 40;

/// How a body is sent without ever being there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// As long as was announced, but for the last part.
    Announced,
    /// Chunk after chunk, without a last one.
    Chunks,
    /// It asks to be told to go on, and is slow then.
    Expect,
    /// A few streams of one connection.
    Streams,
    /// After a whole review.
    Known,
}

const MANNERS: [Manner; 5] = [
    Manner::Announced,
    Manner::Chunks,
    Manner::Expect,
    Manner::Streams,
    Manner::Known,
];

const HEAD: &str = "POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";

impl Manner {
    fn protocols(self) -> &'static [&'static str] {
        match self {
            Self::Streams => &["h2"],
            Self::Announced | Self::Chunks | Self::Expect | Self::Known => &[],
        }
    }

    /// All but the drops.
    fn begin(self, client: &mut Client) -> std::io::Result<()> {
        let part = " ".repeat(40 << 10);
        match self {
            Self::Known => {
                let body = review(&pod("web")).to_string();
                let head = format!("{HEAD}Content-Length: {}\r\n\r\n{body}", body.len());
                client.send(head.as_bytes())?;
                client.answer();
                client.send(format!("{HEAD}Content-Length: 60000\r\n\r\n{part}").as_bytes())
            }
            Self::Announced => {
                client.send(format!("{HEAD}Content-Length: 60000\r\n\r\n{part}").as_bytes())
            }
            Self::Chunks => {
                client.send(format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n").as_bytes())
            }
            Self::Expect => client.send(
                format!("{HEAD}Expect: 100-continue\r\nContent-Length: 60000\r\n\r\n").as_bytes(),
            ),
            Self::Streams => {
                let mut bytes = h2::hello(65_535);
                for stream in 0..4 {
                    bytes.extend(h2::frame(1, 4, 2 * stream + 1, &h2::block("/inject")));
                }
                client.send(&bytes)
            }
        }
    }

    fn drop_of(self, client: &mut Client) -> std::io::Result<()> {
        match self {
            Self::Announced | Self::Expect | Self::Known => client.send(b" "),
            Self::Chunks => client.send(b"1\r\n \r\n"),
            Self::Streams => {
                let frames = (0..4).flat_map(|stream| h2::frame(0, 0, 2 * stream + 1, b" "));
                client.send(&frames.collect::<Vec<_>>())
            }
        }
    }
}

/// One thread's share of the strangers, each replaced as soon as it is sent away.
fn attack(
    address: SocketAddr,
    config: [ClientConfig; 2],
    stop: Arc<AtomicBool>,
) -> JoinHandle<usize> {
    std::thread::spawn(move || {
        let mut all: Vec<(Manner, usize, Option<Client>)> = MANNERS
            .into_iter()
            .cycle()
            .take(STRANGERS / THREADS)
            .map(|manner| (manner, 0, None))
            .collect();
        let mut came = 0;
        while !stop.load(Ordering::Relaxed) {
            for (manner, drops, client) in &mut all {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let sent = client.as_mut().map(|client| manner.drop_of(client));
                if sent.is_some_and(|sent| sent.is_ok()) && *drops > 0 {
                    *drops -= 1;
                    continue;
                }
                *drops = DROPS;
                let [plain, streams] = &config;
                let config = match manner.protocols() {
                    [] => plain,
                    _ => streams,
                };
                came += 1;
                *client = Client::try_connect(address, config.clone())
                    .ok()
                    .filter(|client| {
                        let wait = Some(Duration::from_secs(1));
                        client.stream.sock.set_read_timeout(wait).is_ok()
                            && client.stream.sock.set_write_timeout(wait).is_ok()
                    })
                    .and_then(|mut client| manner.begin(&mut client).is_ok().then_some(client));
            }
            std::thread::sleep(PAUSE);
        }
        came
    })
}

/// All of them, for a while.
fn attacked(injector: &Injector) {
    let stop = Arc::new(AtomicBool::new(false));
    let config = [&[][..], &["h2"]].map(|alpn| client_config(&injector.trust(), alpn));
    let strangers: Vec<_> = (0..THREADS)
        .map(|_| attack(injector.address(), config.clone(), Arc::clone(&stop)))
        .collect();
    std::thread::sleep(ATTACK);
    // One that comes while they are there is served, too.
    assert_eq!(injector.client().image(), "proxy:1");
    stop.store(true, Ordering::Relaxed);
    let came: usize = strangers.into_iter().map(|one| one.join().unwrap()).sum();
    assert!(came >= STRANGERS, "{came} strangers");
}

#[test]
fn slow_bodies_of_strangers_hold_up_no_kept_connection() {
    let _alone = alone();
    let injector = Injector::new();
    let beside = beside(&injector);
    attacked(&injector);
    let before = injector.anonymous();
    attacked(&injector);
    for (one, bound) in beside {
        one.was_answered_within(bound);
    }
    within_its_limit(&injector);
    memory_is_back(&injector, before);
    ends(injector);
}
