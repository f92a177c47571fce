//! Clients that come anew as soon as they are sent away, and send their bodies as slowly as they can.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ClientConfig;

use super::{PROMPT, alone, beside, ends, memory_is_back, served_promptly, within_its_limit};
use crate::support::program::within;
use crate::support::{Client, Injector, JSON, client_config, h2, pod, review, until};

/// Attackers at a time, and their threads.
const STRANGERS: usize = 200;
const THREADS: usize = 4;
/// More than a listener has places.
const CROWD: usize = 600;
/// The duration of the attack.
const ATTACK: Duration = Duration::from_secs(4);
/// Between two bytes of one of them, and how many it sends before it comes anew.
const PAUSE: Duration = Duration::from_millis(20);
const DROPS: usize = 40;

/// The ways to send a body that never ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndlessBody {
    /// As long as was announced, but for the last part.
    Announced,
    /// Chunk after chunk, without a last one.
    Chunks,
    /// Sends `Expect: 100-continue`, and is slow afterwards.
    Expect,
    /// A few streams of one connection.
    Streams,
    /// After a whole review.
    Known,
    /// After a question for health, and then just fast enough to count as one that moves.
    Healthy,
    /// The same after a whole review, from an address of its own.
    Busy,
}

const MANNERS: [EndlessBody; 7] = [
    EndlessBody::Announced,
    EndlessBody::Chunks,
    EndlessBody::Expect,
    EndlessBody::Streams,
    EndlessBody::Known,
    EndlessBody::Healthy,
    EndlessBody::Busy,
];
/// The source address of [`EndlessBody::Busy`].
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Drops from one part that counts to the next: 240 ms.
const STEPS: usize = 12;

/// A webhook under attack.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) trust: String,
    pub(super) path: &'static str,
    /// One that is answered as an API server's is.
    pub(super) review: String,
}

impl Target {
    fn of(injector: &Injector) -> Self {
        Self {
            address: injector.address(),
            trust: injector.trust(),
            path: "/inject",
            review: review(&pod("web")).to_string(),
        }
    }

    fn head(&self) -> String {
        let path = self.path;
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
    }

    fn configs(&self) -> [ClientConfig; 2] {
        [&[][..], &["h2"]].map(|alpn| client_config(&self.trust, alpn))
    }
}

impl EndlessBody {
    fn protocols(self) -> &'static [&'static str] {
        match self {
            Self::Streams => &["h2"],
            Self::Announced
            | Self::Chunks
            | Self::Expect
            | Self::Known
            | Self::Healthy
            | Self::Busy => &[],
        }
    }

    fn connect(self, target: &Target, [plain, streams]: &[ClientConfig; 2]) -> Option<Client> {
        let config = match self.protocols() {
            [] => plain.clone(),
            _ => streams.clone(),
        };
        let client = match self {
            Self::Busy => Client::try_connect_from(ELSEWHERE, target.address, config),
            Self::Announced
            | Self::Chunks
            | Self::Expect
            | Self::Streams
            | Self::Known
            | Self::Healthy => Client::try_connect(target.address, config),
        };
        let mut client = client.ok()?;
        let wait = Some(Duration::from_secs(1));
        client.stream.sock.set_read_timeout(wait).ok()?;
        client.stream.sock.set_write_timeout(wait).ok()?;
        self.begin(target, &mut client).ok()?;
        Some(client)
    }

    /// All but the drops.
    fn begin(self, target: &Target, client: &mut Client) -> std::io::Result<()> {
        let (head, part) = (target.head(), " ".repeat(40 << 10));
        let begun = format!("{head}Content-Length: 60000\r\n\r\n");
        match self {
            Self::Known | Self::Busy => {
                let body = &target.review;
                let whole = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
                client.send(whole.as_bytes())?;
                client.answer();
                let part = if self == Self::Known { &*part } else { "" };
                client.send(format!("{begun}{part}").as_bytes())
            }
            Self::Healthy => {
                client.send(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")?;
                client.answer();
                client.send(begun.as_bytes())
            }
            Self::Announced => client.send(format!("{begun}{part}").as_bytes()),
            Self::Chunks => {
                client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes())
            }
            Self::Expect => client.send(
                format!("{head}Expect: 100-continue\r\nContent-Length: 60000\r\n\r\n").as_bytes(),
            ),
            Self::Streams => {
                let mut bytes = h2::hello(65_535);
                for stream in 0..4 {
                    bytes.extend(h2::frame(1, 4, 2 * stream + 1, &h2::block(target.path)));
                }
                client.send(&bytes)
            }
        }
    }

    fn drop_of(self, client: &mut Client, left: usize) -> std::io::Result<()> {
        match self {
            Self::Announced | Self::Expect | Self::Known => client.send(b" "),
            Self::Healthy | Self::Busy if left.is_multiple_of(STEPS) => {
                client.send(&[b' '; 4 << 10])
            }
            Self::Healthy | Self::Busy => Ok(()),
            Self::Chunks => client.send(b"1\r\n \r\n"),
            Self::Streams => {
                let frames = (0..4).flat_map(|stream| h2::frame(0, 0, 2 * stream + 1, b" "));
                client.send(&frames.collect::<Vec<_>>())
            }
        }
    }
}

/// Attackers that reconnect as soon as they are evicted, until the attack ends.
pub(super) struct Attack {
    stop: Arc<AtomicBool>,
    came: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    fn start(target: &Target, manners: &'static [EndlessBody], count: usize) -> Self {
        let (stop, came) = (Arc::default(), Arc::default());
        let threads = (0..THREADS).map(|_| {
            let all = manners.iter().copied().cycle().take(count / THREADS);
            attack(
                target.clone(),
                all.collect(),
                Arc::clone(&stop),
                Arc::clone(&came),
            )
        });
        Self {
            threads: threads.collect(),
            stop,
            came,
        }
    }

    pub(super) fn came(&self) -> usize {
        self.came.load(Ordering::Relaxed)
    }

    fn ends(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// One thread's share of the strangers.
fn attack(
    target: Target,
    manners: Vec<EndlessBody>,
    stop: Arc<AtomicBool>,
    came: Arc<AtomicUsize>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let configs = target.configs();
        let all = manners.into_iter().map(|manner| (manner, 0, None));
        let mut all: Vec<(EndlessBody, usize, Option<Client>)> = all.collect();
        while !stop.load(Ordering::Relaxed) {
            for (manner, drops, client) in &mut all {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let sent = client.as_mut().map(|client| manner.drop_of(client, *drops));
                if sent.is_some_and(|sent| sent.is_ok()) && *drops > 0 {
                    *drops -= 1;
                    continue;
                }
                *drops = DROPS;
                *client = manner.connect(&target, &configs);
                came.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(PAUSE);
        }
    })
}

/// Runs all attacks for a while; `serves` checks that another client is served meanwhile.
pub(super) fn attacked(target: &Target, serves: impl FnOnce()) {
    let attack = Attack::start(target, &MANNERS, STRANGERS);
    std::thread::sleep(ATTACK);
    serves();
    let came = attack.came();
    attack.ends();
    assert!(came >= STRANGERS, "{came} strangers");
}

#[test]
fn slow_bodies_of_strangers_hold_up_no_kept_connection() {
    let _alone = alone();
    let injector = Injector::new();
    let beside = beside(&injector);
    let target = Target::of(&injector);
    // On a busy machine the first request of a new client may come while strangers have all permits: it is told to try again.
    let body = review(&pod("web")).to_string();
    let serves = || {
        within(PROMPT, "a new client is served", || {
            let mut client = injector.client();
            let answer = client.request("POST", "/inject", JSON, body.as_bytes())?;
            (answer.status == 200).then_some(())
        });
    };
    attacked(&target, serves);
    let before = injector.anonymous();
    attacked(&target, serves);
    for (one, bound) in beside {
        one.was_answered_within(bound);
    }
    within_its_limit(&injector);
    memory_is_back(&injector, before);
    ends(injector);
}

/// More than there are places, each with a review behind it and a body that comes just fast enough: all places and all permits were
/// theirs, and an API server from elsewhere had 429, or no connection.
#[test]
fn busy_known_clients_leave_room_for_others() {
    let _alone = alone();
    let injector = Injector::new();
    let beside = beside(&injector);
    let attack = Attack::start(&Target::of(&injector), &[EndlessBody::Busy], CROWD);
    until("all have come", || attack.came() >= CROWD);
    for _ in 0..3 {
        std::thread::sleep(ATTACK / 4);
        served_promptly(&injector, &mut injector.client());
    }
    attack.ends();
    for (one, bound) in beside {
        one.was_answered_within(bound);
    }
    within_its_limit(&injector);
    ends(injector);
}
