//! The admin port's answers about readiness: up to three, put together. Pure.

#![forbid(unsafe_code)]

use super::call::{Endpoint, Knowledge, lines, server_info};
use crate::http::{Malformed, Response};
use crate::readiness::Facts;
use crate::search;
use crate::supervisor::{Epoch, Reply};

/// Bytes of a line of `/listeners` that are looked at: the address stands at its end.
pub(super) const LINE_BYTES: usize = 64;

/// The longest `/listeners`, in bytes. Chosen: 40,000 lines of 100.
const LISTENERS_BYTES: usize = 4 * 1024 * 1024;

/// `--application-ports`: what must have listeners.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports {
    pub(crate) wanted: Vec<u16>,
    /// A router and an ingress need all of them, a sidecar any.
    pub(crate) all: bool,
}

/// The facts gathered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gathered {
    pub(super) facts: Facts,
    /// Updates of the listeners so far; `None` where that cannot be told.
    pub(super) updates: Option<u64>,
}

/// Takes an answer in; the next request, or `None` when all is known.
///
/// # Errors
/// The answer is not Envoy's.
pub(super) fn take(
    gathered: &mut Gathered,
    endpoint: Endpoint,
    epoch: Epoch,
    answer: &Response,
    knowledge: &Knowledge,
) -> Result<Option<Endpoint>, Unclear> {
    if answer.status() != Some(200) {
        return Err(Unclear);
    }
    if endpoint == Endpoint::ReadyStats {
        let more = stats(gathered, epoch, answer.body(), knowledge);
        return Ok(more.then_some(Endpoint::ServerInfo));
    }
    let facts = &mut gathered.facts;
    let live = server_info(epoch, answer.body(), knowledge) == Reply::Live;
    facts.same_epoch = live || !knowledge.hot_restart;
    facts.workers = live;
    Ok(None)
}

/// The answer does not say what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unclear;

/// Whether `/server_info` is needed, too: a stats matcher hides something, or the generation does not count.
fn stats(gathered: &mut Gathered, epoch: Epoch, body: &[u8], knowledge: &Knowledge) -> bool {
    let facts = &mut gathered.facts;
    let (mut workers, mut generation, mut updates) = (None, None, 0);
    for (name, value) in lines(body) {
        match name {
            "listener_manager.workers_started" => workers = Some(value),
            "server.hot_restart_generation" => generation = Some(value),
            "cluster_manager.cds.update_success" => {
                facts.cds.get_or_insert_default().accepted = value > 0;
            }
            "cluster_manager.cds.update_rejected" => {
                facts.cds.get_or_insert_default().rejected = value > 0;
            }
            "listener_manager.lds.update_success" => {
                facts.lds.get_or_insert_default().accepted = value > 0;
                updates = value;
            }
            "listener_manager.lds.update_rejected" => {
                facts.lds.get_or_insert_default().rejected = value > 0;
            }
            _ => {}
        }
    }
    facts.workers = workers == Some(1);
    facts.same_epoch = match generation {
        Some(generation) => generation == u64::from(epoch.0).saturating_add(1),
        None => !knowledge.hot_restart,
    };
    let generation_missing =
        knowledge.hot_restart && (generation.is_none() || knowledge.skip_generation);
    let more = workers.is_none() || generation_missing;
    gathered.updates = (!more).then_some(updates);
    more
}

/// Reads `/listeners` as it comes: `name::address:port` in each line.
#[derive(Debug)]
pub(super) struct ListenerScan {
    /// The wanted ports that have not been seen.
    missing: Vec<u16>,
    any: bool,
    all: bool,
    /// The end of the line so far.
    line: Vec<u8>,
    /// Bytes so far.
    seen: usize,
}

impl ListenerScan {
    pub(super) fn new(ports: &Ports) -> Self {
        Self {
            missing: ports.wanted.clone(),
            any: false,
            all: ports.all,
            line: Vec::new(),
            seen: 0,
        }
    }

    /// # Errors
    /// There are more listeners than anybody has.
    pub(super) const fn check(&self) -> Result<(), Malformed> {
        if self.seen > LISTENERS_BYTES {
            return Err(Malformed);
        }
        Ok(())
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.seen = self.seen.saturating_add(bytes.len());
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let over = (self.line.len() + piece.len()).saturating_sub(LINE_BYTES);
            self.line.drain(..over.min(self.line.len()));
            let kept = piece.len().saturating_sub(LINE_BYTES);
            self.line
                .extend_from_slice(piece.get(kept..).unwrap_or_default());
            if piece.ends_with(b"\n") {
                self.finish_line();
            }
        }
    }

    /// Bytes held back.
    #[cfg(any(test, fuzzing))]
    pub(super) const fn held(&self) -> usize {
        self.line.len()
    }

    fn finish_line(&mut self) {
        let line = std::str::from_utf8(&self.line).unwrap_or_default();
        let port = search::split_last(line.trim_end(), b':');
        if let Some(port) = port.and_then(|(_, port)| port.parse::<u16>().ok()) {
            let before = self.missing.len();
            self.missing.retain(|wanted| *wanted != port);
            self.any |= self.missing.len() < before;
        }
        self.line.clear();
    }

    /// The first port that is missed.
    #[must_use]
    pub(super) fn missing(mut self) -> Option<u16> {
        self.finish_line();
        if self.any && !self.all {
            return None;
        }
        self.missing.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::call::KNOWLEDGE;
    use crate::readiness::Updates;

    fn taken(body: &str, knowledge: &Knowledge) -> (Facts, Result<Option<Endpoint>, Unclear>) {
        let mut gathered = Gathered::default();
        let mut answer = Response::new(4096);
        let text = format!("HTTP/1.1 200 OK\r\n\r\n{body}");
        answer.feed(text.as_bytes()).unwrap();
        let next = take(
            &mut gathered,
            Endpoint::ReadyStats,
            Epoch(1),
            &answer,
            knowledge,
        );
        (gathered.facts, next)
    }

    #[test]
    fn the_stats_of_a_proxy_with_a_control_plane() {
        let (facts, next) = taken(
            "cluster_manager.cds.update_rejected: 0\ncluster_manager.cds.update_success: 1\n\
             listener_manager.lds.update_rejected: 2\nlistener_manager.lds.update_success: 0\n\
             listener_manager.workers_started: 1\nserver.hot_restart_generation: 2\n",
            &KNOWLEDGE,
        );
        assert_eq!(next, Ok(None));
        let updates = |accepted, rejected| Some(Updates { accepted, rejected });
        let expected = Facts {
            same_epoch: true,
            workers: true,
            cds: updates(true, false),
            lds: updates(false, true),
            missing_port: None,
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn hidden_statistics_are_asked_of_server_info() {
        let server_info = Ok(Some(Endpoint::ServerInfo));
        let both = "listener_manager.workers_started: 1\nserver.hot_restart_generation: 2\n";
        let workers = "listener_manager.workers_started: 1\n";
        assert_eq!(taken(both, &KNOWLEDGE).1, Ok(None));
        assert_eq!(taken("", &KNOWLEDGE).1, server_info);
        assert_eq!(taken(workers, &KNOWLEDGE).1, server_info);
        let alone = Knowledge {
            hot_restart: false,
            ..KNOWLEDGE
        };
        assert_eq!(taken(workers, &alone).1, Ok(None));
        let uncounted = Knowledge {
            skip_generation: true,
            ..KNOWLEDGE
        };
        assert_eq!(taken(both, &uncounted).1, server_info);
    }

    #[test]
    fn a_parents_answer_is_of_another_epoch() {
        let body = "listener_manager.workers_started: 1\nserver.hot_restart_generation: 1\n";
        assert!(!taken(body, &KNOWLEDGE).0.same_epoch);
    }

    const LISTENERS: &[u8] = b"a-listener-of-a-rather-long-name-which-does-not-matter-for-its-port-at-all::0.0.0.0:15006\n0.0.0.0_8080::0.0.0.0:8080\n[::]_9090::[::]:9090\npipe::/tmp/x\nlast::127.0.0.1:7070";

    fn missing(wanted: &[u16], all: bool, cut: usize) -> Option<u16> {
        let mut scan = ListenerScan::new(&Ports {
            wanted: wanted.to_vec(),
            all,
        });
        let (first, second) = LISTENERS.split_at(cut);
        scan.feed(first);
        scan.feed(second);
        assert!(scan.line.len() <= LINE_BYTES);
        scan.missing()
    }

    #[test]
    fn listeners_without_an_end_are_not_waited_for() {
        let mut scan = ListenerScan::new(&Ports::default());
        for _ in 0..LISTENERS_BYTES / 16 {
            scan.feed(b"a::127.0.0.1:1\n\n");
            assert_eq!(scan.check(), Ok(()));
        }
        scan.feed(b"\n");
        assert_eq!(scan.check(), Err(Malformed));
    }

    #[test]
    fn listeners_cut_at_every_byte() {
        for cut in 0..LISTENERS.len() {
            assert_eq!(missing(&[8080, 9090, 15006, 7070], true, cut), None);
            assert_eq!(missing(&[8080, 1], true, cut), Some(1));
            assert_eq!(missing(&[1, 8080], false, cut), None, "any will do");
            assert_eq!(missing(&[1, 2], false, cut), Some(1));
            assert_eq!(missing(&[80], false, cut), Some(80), "not a part of 8080");
        }
    }
}
