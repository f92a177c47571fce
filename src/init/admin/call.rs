//! Calls to Envoy's admin port, and the meaning of its answers. Pure.
//!
//! # What the endpoints do
//!
//! Each called on Envoy 1.40.0. An endpoint that changes something wants POST; GET gets 405.
//!
//! - `/drain_listeners`: the listeners close at once. `?graceful`: they go on accepting, with `Connection: close` or GOAWAY,
//!   and close after `--drain-time-s`; the process stays. `&skip_exit`: they never close. `&inboundonly`: does nothing
//!   unless a listener says `traffic_direction: INBOUND`. Older Envoys answer 400 to what they do not know.
//! - `/ready`: 200 during a drain, too; so the agent's own port says "not ready". `/healthcheck/fail` makes it 503 and
//!   connections close; `/healthcheck/ok` undoes that. `/quitquitquit`: exit 0 at once.
//! - `/server_info`: `state` and `command_line_options.restart_epoch` (absent: 0), 124 kB in all.
//!
//! During a hand-over the port changes its owner: "connection refused" is normal, and 200 may be the other epoch's. So LIVE
//! is judged by the generation (epoch + 1), never by 200. A child that failed late has closed its parent's port for good.

#![forbid(unsafe_code)]

use crate::config::DrainCall;
use crate::http::{Response, request_head};
use crate::search;
use crate::supervisor::{Call, Epoch, Reply};

/// `workers_started` is set the moment the workers run; `server.state` would say 0, LIVE, for the first five seconds
/// whatever the state is, because it is set at the first stats flush (seen with Envoy 1.40).
const LIVE_STATS: &str =
    "/stats?filter=^(server\\.hot_restart_generation|listener_manager\\.workers_started)$";
const SERVER_INFO: &str = "/server_info";
/// The statistics that readiness needs: one regular expression, so that Envoy walks its stats once.
const READY_STATS: &str = "/stats?filter=^(server\\.hot_restart_generation|listener_manager\\.workers_started|\
                           cluster_manager\\.cds\\.update_(success|rejected)|\
                           listener_manager\\.lds\\.update_(success|rejected))$";
const LISTENERS: &str = "/listeners";
const CONNECTION_STATS: &str = "/stats?filter=^listener\\..*downstream_cx_active$";
/// Bytes of `/server_info` and small statistics. Chosen: its fields stand in the first 2 kB (Envoy 1.40), but one follows
/// `--config-yaml`, whose document may be long.
const LIVE_BYTES: usize = 64 * 1024;
/// Bytes of the connections' statistics. Chosen: room for some 15,000 listeners.
const CONNECTION_BYTES: usize = 1024 * 1024;

/// The knowledge by which answers are judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knowledge {
    /// Without hot restart there are no generations: whoever answers is the process that was asked.
    pub(crate) hot_restart: bool,
    /// The generation does not count (`--skip-hot-restart-parent-stats`).
    pub(crate) skip_generation: bool,
    pub(crate) drain: DrainCall,
    /// The port of Envoy's Prometheus listener in a generated bootstrap: its connections are scrapes, not requests.
    pub(crate) prometheus_port: u16,
}

/// The endpoint of one request; a call is a short chain of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    LiveStats,
    ServerInfo,
    FailHealthcheck,
    /// Graceful, and the process stays.
    Drain,
    /// For an Envoy that does not know `skip_exit`.
    DrainOlder,
    /// For one that does not know `graceful` either (before 1.15).
    DrainPlain,
    Connections,
    ReadyStats,
    Listeners,
}

/// The consequence of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Ask(Endpoint),
    Reply(Reply),
}

impl Endpoint {
    /// The first request of a call.
    #[must_use]
    pub(crate) const fn first(call: Call, knowledge: &Knowledge) -> Self {
        match call {
            Call::Live if knowledge.skip_generation => Self::ServerInfo,
            Call::Live => Self::LiveStats,
            Call::Drain if knowledge.drain.fail_healthcheck => Self::FailHealthcheck,
            Call::Drain => Self::Drain,
            Call::Connections => Self::Connections,
            // Never asked here; an epoch that answers this is LIVE all the same.
            Call::Memory | Call::Stopped => Self::ServerInfo,
        }
    }

    /// Body bytes of the answer that are looked at.
    #[must_use]
    pub(crate) const fn limit(self) -> usize {
        match self {
            Self::LiveStats | Self::ServerInfo | Self::ReadyStats => LIVE_BYTES,
            // Looked at line by line, and not kept.
            Self::Listeners => 0,
            Self::FailHealthcheck | Self::Drain | Self::DrainOlder | Self::DrainPlain => 1024,
            Self::Connections => CONNECTION_BYTES,
        }
    }

    /// The bytes to send. Envoy's admin port wants a `Host`.
    #[must_use]
    pub(crate) fn bytes(self, knowledge: &Knowledge) -> Vec<u8> {
        let (inbound, only) = if knowledge.drain.inbound_only {
            ("inboundonly&", "?inboundonly")
        } else {
            ("", "")
        };
        let (method, path, query, tail) = match self {
            Self::LiveStats => ("GET", LIVE_STATS, "", ""),
            Self::ServerInfo => ("GET", SERVER_INFO, "", ""),
            Self::Connections => ("GET", CONNECTION_STATS, "", ""),
            Self::ReadyStats => ("GET", READY_STATS, "", ""),
            Self::Listeners => ("GET", LISTENERS, "", ""),
            Self::FailHealthcheck => ("POST", "/healthcheck/fail", "", ""),
            Self::Drain => ("POST", "/drain_listeners?", inbound, "graceful&skip_exit"),
            Self::DrainOlder => ("POST", "/drain_listeners?", inbound, "graceful"),
            Self::DrainPlain => ("POST", "/drain_listeners", only, ""),
        };
        let path = [path, query, tail];
        request_head(method, &path, "localhost", b"Content-Length: 0\r\n")
    }

    /// Returns the meaning of the answer.
    #[must_use]
    pub(crate) fn judge(self, epoch: Epoch, answer: &Response, knowledge: &Knowledge) -> Step {
        let ok = answer.status() == Some(200);
        match self {
            Self::LiveStats if ok => live_stats(epoch, answer.body(), knowledge),
            Self::ServerInfo if ok => Step::Reply(server_info(epoch, answer.body(), knowledge)),
            Self::Connections if ok && !answer.is_cut() => {
                let count = connections(answer.body(), knowledge.prometheus_port);
                Step::Reply(count.map_or(Reply::Failed, Reply::Connections))
            }
            // Refused or not, the drain comes next.
            Self::FailHealthcheck => Step::Ask(Self::Drain),
            Self::Drain | Self::DrainOlder | Self::DrainPlain if ok => Step::Reply(Reply::Draining),
            Self::Drain => Step::Ask(Self::DrainOlder),
            Self::DrainOlder => Step::Ask(Self::DrainPlain),
            Self::LiveStats
            | Self::ServerInfo
            | Self::Connections
            | Self::DrainPlain
            // Of no call of the core's.
            | Self::ReadyStats
            | Self::Listeners => Step::Reply(Reply::Failed),
        }
    }
}

/// Both stats in one answer, so that both are of the same process.
fn live_stats(epoch: Epoch, body: &[u8], knowledge: &Knowledge) -> Step {
    let stat = |name: &str| lines(body).find_map(|(key, value)| (key == name).then_some(value));
    let workers = stat("listener_manager.workers_started");
    let generation = stat("server.hot_restart_generation");
    let expected = u64::from(epoch.0).saturating_add(1);
    match (workers, generation) {
        (Some(1), Some(generation)) if generation == expected => Step::Reply(Reply::Live),
        (Some(1), None) if !knowledge.hot_restart => Step::Reply(Reply::Live),
        (Some(_), Some(_)) => Step::Reply(Reply::NotLive),
        (Some(_), None) if !knowledge.hot_restart => Step::Reply(Reply::NotLive),
        // A stats matcher hides them.
        (None, _) | (_, None) => Step::Ask(Endpoint::ServerInfo),
    }
}

/// Judged by its text: quotes inside JSON strings are escaped, so a key with its quotes and colon cannot be part of one.
pub(super) fn server_info(epoch: Epoch, body: &[u8], knowledge: &Knowledge) -> Reply {
    let text = String::from_utf8_lossy(body);
    let live = after(&text, "\"state\":").is_some_and(|state| state.starts_with("\"LIVE\""));
    // Absent is 0: proto JSON leaves defaults out.
    let running: u32 = after(&text, "\"restart_epoch\":")
        .and_then(|rest| {
            rest.split(|c: char| !c.is_ascii_digit())
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0);
    if live && (running == epoch.0 || !knowledge.hot_restart) {
        Reply::Live
    } else {
        Reply::NotLive
    }
}

fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = search::split_once(text, key)?;
    Some(rest.trim_start())
}

/// Connections on the listeners of the configuration: not the admin's, not the status listeners', and each once
/// (per-worker stats count them again). `None` where no listener tells.
fn connections(body: &[u8], prometheus_port: u16) -> Option<u64> {
    let prometheus = ["_", &prometheus_port.to_string()].concat();
    let counted = |name: &str| {
        let listener = name
            .strip_prefix(LISTENER)
            .and_then(|name| name.strip_suffix(".downstream_cx_active"));
        listener.is_some_and(|listener| {
            !matches!(listener, "admin" | "admin.main_thread")
                && !listener.starts_with("envoy_internal_")
                && !is_of_worker(listener)
                && !listener.ends_with(&prometheus)
                && !listener.ends_with("_15021")
        })
    };
    let mut listeners = lines(body)
        .filter(|(name, _)| name.starts_with(LISTENER))
        .peekable();
    listeners.peek()?;
    Some(
        listeners
            .filter(|(name, _)| counted(name))
            .fold(0, |sum, (_, value)| value.saturating_add(sum)),
    )
}

const LISTENER: &str = "listener.";

/// A statistic of one worker's connections of a listener: `<listener>.worker_<number>`.
fn is_of_worker(listener: &str) -> bool {
    let last = search::split_last(listener, b'.');
    let number = last.and_then(|(_, last)| last.strip_prefix("worker_"));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// `name: value` lines whose value is a number.
pub(super) fn lines(body: &[u8]) -> impl Iterator<Item = (&str, u64)> {
    body.split(|byte| *byte == b'\n').filter_map(|line| {
        let (name, value) = search::split_last(std::str::from_utf8(line).ok()?, b':')?;
        Some((name, value.trim().parse().ok()?))
    })
}

#[cfg(test)]
pub(crate) const KNOWLEDGE: Knowledge = Knowledge {
    hot_restart: true,
    skip_generation: false,
    drain: DrainCall {
        inbound_only: false,
        fail_healthcheck: false,
    },
    prometheus_port: 15090,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Response {
        let mut response = Response::new(4096);
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        response.feed(head.as_bytes()).unwrap();
        response.feed(body.as_bytes()).unwrap();
        response
    }

    fn judge(endpoint: Endpoint, status: u16, body: &str) -> Step {
        endpoint.judge(Epoch(1), &answer(status, body), &KNOWLEDGE)
    }

    #[test]
    fn live_is_workers_at_the_generation_of_the_epoch() {
        let stats = |generation: u32, workers: u32| {
            let body = format!(
                "listener_manager.workers_started: {workers}\nserver.hot_restart_generation: {generation}\n"
            );
            judge(Endpoint::LiveStats, 200, &body)
        };
        assert_eq!(stats(2, 1), Step::Reply(Reply::Live));
        assert_eq!(
            stats(2, 0),
            Step::Reply(Reply::NotLive),
            "still initialising"
        );
        assert_eq!(
            stats(1, 1),
            Step::Reply(Reply::NotLive),
            "the parent's own port"
        );
    }

    #[test]
    fn without_hot_restart_there_is_no_generation_to_compare() {
        let knowledge = Knowledge {
            hot_restart: false,
            ..KNOWLEDGE
        };
        let answer = answer(200, "listener_manager.workers_started: 1\n");
        let step = Endpoint::LiveStats.judge(Epoch(0), &answer, &knowledge);
        assert_eq!(step, Step::Reply(Reply::Live));
    }

    #[test]
    fn hidden_stats_are_made_up_for_by_server_info() {
        assert_eq!(
            judge(Endpoint::LiveStats, 200, "\n"),
            Step::Ask(Endpoint::ServerInfo)
        );
        let info = |state, epoch| {
            let body = format!(
                "{{\n \"version\": \"x\",\n \"state\": \"{state}\",\n \"command_line_options\": {{\n  \"config_yaml\": \"{{\\\"restart_epoch\\\": 7}}\",\n  \"restart_epoch\": {epoch},\n"
            );
            judge(Endpoint::ServerInfo, 200, &body)
        };
        assert_eq!(info("LIVE", 1), Step::Reply(Reply::Live));
        assert_eq!(info("LIVE", 0), Step::Reply(Reply::NotLive));
        assert_eq!(info("INITIALIZING", 1), Step::Reply(Reply::NotLive));
        let absent = answer(200, "{\"state\": \"LIVE\"}");
        let step = Endpoint::ServerInfo.judge(Epoch(0), &absent, &KNOWLEDGE);
        assert_eq!(step, Step::Reply(Reply::Live), "an absent epoch is 0");
    }

    #[test]
    fn an_error_is_no_answer() {
        assert_eq!(
            judge(Endpoint::LiveStats, 503, "no"),
            Step::Reply(Reply::Failed)
        );
        assert_eq!(
            judge(Endpoint::Connections, 404, "no"),
            Step::Reply(Reply::Failed)
        );
    }

    #[test]
    fn a_drain_that_is_refused_is_asked_for_without_the_newer_parameters() {
        assert_eq!(
            judge(Endpoint::Drain, 200, "OK\n"),
            Step::Reply(Reply::Draining)
        );
        assert_eq!(
            judge(Endpoint::Drain, 400, "no"),
            Step::Ask(Endpoint::DrainOlder)
        );
        assert_eq!(
            judge(Endpoint::DrainOlder, 200, "OK\n"),
            Step::Reply(Reply::Draining)
        );
        assert_eq!(
            judge(Endpoint::DrainOlder, 400, "no"),
            Step::Ask(Endpoint::DrainPlain)
        );
        assert_eq!(
            judge(Endpoint::DrainPlain, 200, "OK\n"),
            Step::Reply(Reply::Draining)
        );
        assert_eq!(
            judge(Endpoint::DrainPlain, 404, "no"),
            Step::Reply(Reply::Failed)
        );
        assert_eq!(
            judge(Endpoint::FailHealthcheck, 200, "OK\n"),
            Step::Ask(Endpoint::Drain)
        );
    }

    #[test]
    fn requests_read_as_envoy_knows_them() {
        let line = |endpoint: Endpoint, inbound_only| {
            let drain = DrainCall {
                inbound_only,
                fail_healthcheck: false,
            };
            let bytes = endpoint.bytes(&Knowledge { drain, ..KNOWLEDGE });
            String::from_utf8(bytes)
                .unwrap()
                .lines()
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            line(Endpoint::Drain, false),
            "POST /drain_listeners?graceful&skip_exit HTTP/1.1"
        );
        assert_eq!(
            line(Endpoint::Drain, true),
            "POST /drain_listeners?inboundonly&graceful&skip_exit HTTP/1.1"
        );
        assert_eq!(
            line(Endpoint::DrainPlain, true),
            "POST /drain_listeners?inboundonly HTTP/1.1"
        );
        assert_eq!(
            line(Endpoint::DrainPlain, false),
            "POST /drain_listeners HTTP/1.1"
        );
        assert_eq!(
            line(Endpoint::FailHealthcheck, true),
            "POST /healthcheck/fail HTTP/1.1"
        );
        assert!(line(Endpoint::LiveStats, false).starts_with("GET /stats?filter="));
    }

    #[test]
    fn connections_are_those_of_users() {
        let body = "listener.0.0.0.0_8080.downstream_cx_active: 3\n\
                    listener.0.0.0.0_8080.worker_0.downstream_cx_active: 2\n\
                    listener.admin.downstream_cx_active: 1\n\
                    listener.admin.main_thread.downstream_cx_active: 1\n\
                    listener.0.0.0.0_15090.downstream_cx_active: 1\n\
                    listener.[__]_9090.downstream_cx_active: 4\n";
        assert_eq!(
            judge(Endpoint::Connections, 200, body),
            Step::Reply(Reply::Connections(7))
        );
        // By prefixes that users chose.
        for (name, is_counted) in [
            ("worker_api", true),
            ("worker_api.worker_0", false),
            ("worker_0", true),
            ("a.worker_12", false),
            ("a.worker_", true),
            ("a.worker_1b", true),
            ("a.worker_1.b", true),
            ("admin.foo", true),
            ("admin.foo.worker_3", false),
            ("administration", true),
            ("admin", false),
            ("admin.main_thread", false),
            ("admin.worker_0", false),
            ("0.0.0.0_15021", false),
            ("envoy_internal_api", false),
        ] {
            let body = format!("listener.{name}.downstream_cx_active: 5\n");
            assert_eq!(
                judge(Endpoint::Connections, 200, &body),
                Step::Reply(Reply::Connections(if is_counted { 5 } else { 0 })),
                "{name}"
            );
        }
        let endless = "listener.a.downstream_cx_active: 18446744073709551615\nlistener.b.downstream_cx_active: 2\n";
        assert_eq!(
            judge(Endpoint::Connections, 200, endless),
            Step::Reply(Reply::Connections(u64::MAX))
        );
        let admin_only = "listener.admin.downstream_cx_active: 1\n";
        assert_eq!(
            judge(Endpoint::Connections, 200, admin_only),
            Step::Reply(Reply::Connections(0))
        );
        assert_eq!(
            judge(Endpoint::Connections, 200, ""),
            Step::Reply(Reply::Failed),
            "hidden"
        );
    }
}
