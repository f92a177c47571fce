//! The agent's own metrics, in Prometheus' text format 0.0.4. Pure.
//!
//! Every name begins with `pintle_`, those of the process too: what is merged after this text (Envoy's, the
//! application's) may bring the `process_…` of its own client library, and a family that stands twice is an error to some
//! parsers. A family whose value is not known (no proxy, no /proc, no certificate) has its HELP and TYPE and no sample.
//! The README lists them all.

#![forbid(unsafe_code)]

use super::exposition::{Exposition, Type};
use super::usage::Usage;
use super::view::View;
use crate::counters::{Counters, REASONS};
use crate::supervisor::{AgentState, Companion, State};

/// The whole text.
#[must_use]
pub(crate) fn render(view: &View<'_>, usage: &Usage) -> Vec<u8> {
    let mut out = Exposition::new();
    agent(&mut out, view);
    epochs(&mut out, view);
    counted(&mut out, view.counters);
    companions(&mut out, view);
    process(&mut out, view, usage);
    out.finish()
}

/// The agent as a whole.
fn agent(out: &mut Exposition, view: &View<'_>) {
    out.family(Type::Gauge, "build_info", "Version of pintle, always 1");
    out.number(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    out.family(
        Type::Gauge,
        "state",
        "1 for what the agent is doing, 0 for the others",
    );
    for state in [
        AgentState::Starting,
        AgentState::Live,
        AgentState::Restarting,
        AgentState::Draining,
        AgentState::Stopping,
    ] {
        let is = u64::from(view.snapshot.state == state);
        out.number(&[("state", state.name())], is);
    }
    out.gauge(
        "ready",
        "1 while the readiness probe is answered with 200",
        Some(view.readiness.is_ready().into()),
    );
    let (left, all) = view.snapshot.retry_budget;
    out.gauge(
        "retry_budget",
        "Crash restarts that are left",
        Some(left.into()),
    );
    out.gauge(
        "retry_budget_limit",
        "Crash restarts that a full budget has",
        Some(all.into()),
    );
    out.seconds(
        "configuration_last_change_timestamp_seconds",
        "When what is watched became other than it was, in seconds since 1970",
        view.changed.map(|at| view.wall_of(at)),
    );
    out.gauge(
        "certificate_expiry_timestamp_seconds",
        "The earliest notAfter of the watched certificates, in seconds since 1970",
        view.certificate_expiry,
    );
}

/// The proxy processes.
fn epochs(out: &mut Exposition, view: &View<'_>) {
    let newest = view.snapshot.newest;
    out.gauge(
        "epoch",
        "Number of the newest proxy process; no sample while none runs",
        newest.map(|newest| newest.epoch.0.into()),
    );
    out.seconds(
        "epoch_start_time_seconds",
        "When the newest proxy process was started, in seconds since 1970",
        newest.map(|newest| view.wall_of(newest.started)),
    );
    out.seconds(
        "epoch_startup_duration_seconds",
        "From the start of the newest proxy process to LIVE; no sample before",
        newest
            .and_then(|newest| Some((newest.live_since?, newest.started)))
            .map(|(live, started)| live.saturating_duration_since(started)),
    );
    out.family(
        Type::Gauge,
        "proxy_processes",
        "Proxy processes that run, by state",
    );
    // By place, in the order of the names.
    let mut counts = [0; 4];
    for process in [newest, view.snapshot.older].into_iter().flatten() {
        let [starting, live, draining, stopping] = &mut counts;
        *match process.state {
            State::Starting => starting,
            State::Live => live,
            State::Draining => draining,
            State::Stopping(_) => stopping,
        } += 1;
    }
    for (state, count) in ["starting", "live", "draining", "stopping"]
        .into_iter()
        .zip(counts)
    {
        out.number(&[("state", state)], count);
    }
    out.family(
        Type::Counter,
        "epochs_started_total",
        "Proxy processes started, by reason",
    );
    for (reason, count) in REASONS.into_iter().zip(view.counters.epochs_started) {
        out.number(&[("reason", reason.name())], count);
    }
}

/// What has happened since the agent's start.
fn counted(out: &mut Exposition, counters: &Counters) {
    for (name, help, value) in [
        (
            "epochs_failed_total",
            "Proxy processes that could not be started, crashed, or died before they were LIVE",
            counters.epochs_failed,
        ),
        (
            "restarts_total",
            "Starts tried again after a failure, each out of the retry budget",
            counters.retries,
        ),
        (
            "configuration_changes_total",
            "Times that what is watched became other than it was",
            counters.configuration_changes,
        ),
        (
            "configurations_refused_total",
            "Configurations that --validate refused",
            counters.refused,
        ),
        (
            "configurations_given_up_total",
            "Configurations given up because no proxy process became LIVE with them",
            counters.given_up,
        ),
        (
            "watch_overflows_total",
            "Times that the kernel lost file notifications, and everything was hashed",
            counters.watch_overflows,
        ),
        (
            "orphans_reaped_total",
            "Adopted processes reaped",
            counters.orphans_reaped,
        ),
        (
            "admin_errors_total",
            "Calls to the admin port of Envoy that failed or were not answered in time",
            counters.admin_errors,
        ),
        (
            "connections_total",
            "Connections to the status port",
            counters.connections,
        ),
        (
            "connections_refused_total",
            "Of these, closed for a limit: too large a head, too slow, no place",
            counters.connections_refused,
        ),
        ("scrapes_total", "Scrapes of the metrics", counters.scrapes),
    ] {
        out.counter(name, help, value);
    }
    out.family(
        Type::Counter,
        "scrape_failures_total",
        "Sources whose metrics were missing or cut short in a scrape",
    );
    out.number(&[("source", "envoy")], counters.envoy_scrape_failures);
    let failures = counters.application_scrape_failures;
    out.number(&[("source", "application")], failures);
    out.family(
        Type::Counter,
        "probes_total",
        "Probes answered, the proxy's readiness and those of the application, by result",
    );
    for (kind, result, count) in [
        ("readiness", "passed", counters.ready_probes),
        ("readiness", "failed", counters.unready_probes),
        ("application", "passed", counters.app_probes_passed),
        ("application", "failed", counters.app_probes_failed),
    ] {
        out.number(&[("kind", kind), ("result", result)], count);
    }
}

/// The companions, by their place from 1, as people count flags.
fn companions(out: &mut Exposition, view: &View<'_>) {
    out.family(
        Type::Gauge,
        "companion_up",
        "1 while the companion's process runs",
    );
    each_companion(out, view, |companion| companion.has_process().into());
    out.family(
        Type::Counter,
        "companion_restarts_total",
        "How often the companion was started again",
    );
    each_companion(out, view, |companion| companion.restarts);
}

fn each_companion(out: &mut Exposition, view: &View<'_>, value: fn(&Companion) -> u64) {
    for companion in view.snapshot.companions {
        let index = usize::from(companion.id.0);
        let flag = view.companions.get(index);
        // The program alone: its arguments may hold a secret.
        let program = flag.and_then(|flag| flag.words.first());
        let labels = [
            ("companion", &*index.saturating_add(1).to_string()),
            ("program", program.map_or("", String::as_str)),
        ];
        out.number(&labels, value(companion));
    }
}

/// The agent's own process.
fn process(out: &mut Exposition, view: &View<'_>, usage: &Usage) {
    out.counter(
        "log_lines_lost_total",
        "Log lines lost because their reader is too slow",
        usage.lost_log_lines,
    );
    out.family(
        Type::Counter,
        "process_cpu_seconds_total",
        "User and system time of pintle itself",
    );
    out.duration(usage.cpu);
    out.gauge(
        "process_resident_memory_bytes",
        "Resident memory of pintle itself",
        usage.resident,
    );
    out.gauge(
        "process_open_fds",
        "File descriptors that pintle has open",
        usage.open_files,
    );
    out.gauge(
        "process_max_fds",
        "File descriptors that pintle may have open",
        usage.open_files_limit,
    );
    out.seconds(
        "process_start_time_seconds",
        "When pintle was started, in seconds since 1970",
        Some(view.wall_of(view.started)),
    );
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::super::exposition::{LABEL_CHARS, ROOM};
    use super::*;
    use crate::children::Children;
    use crate::config::{Companion as Flag, Role};
    use crate::history::History;
    use crate::status::Stage;
    use crate::supervisor::{
        Call, Cause, CleanExit, CompanionId, Configuration, Epoch, Event, Exit, Policy, Reply,
        Supervisor, Timer,
    };

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn policy() -> Policy {
        Policy {
            cert_debounce: secs(10),
            rescan_interval: None,
            wait_for_certificates: false,
            termination_drain: secs(5),
            exit_on_zero: None,
            pre_drain_delay: Duration::ZERO,
            kill_timeout: secs(5),
            retry_budget: 10,
            retry_initial: Duration::from_millis(200),
            retry_reset: secs(600),
            on_clean_exit: CleanExit::Exit,
            live_timeout: secs(20),
            validate: false,
            hot_restart: true,
            parent_shutdown: secs(60),
            parent_stand_in: true,
            companions: 2,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "an instant to begin with")]
    fn clock() -> Instant {
        // Room for what was before.
        Instant::now() + secs(100_000)
    }

    fn live(epoch: u32) -> Event {
        Event::AdminReplied {
            epoch: Epoch(epoch),
            call: Call::Live,
            reply: Reply::Live,
        }
    }

    fn companion_crashes() -> Event {
        Event::CompanionExited {
            companion: CompanionId(1),
            how: Exit::Code(1),
        }
    }

    /// The core after these events, at seconds since the start.
    fn story(start: Instant, events: &[(u64, Event)]) -> Supervisor {
        let mut core = Supervisor::new(policy());
        core.start(start, Configuration([1; 32]), true);
        for (after, event) in events {
            core.handle(start + secs(*after), event);
        }
        core
    }

    /// Epoch 0 was LIVE, a certificate was rotated, epoch 1 is LIVE beside it; a companion has crashed twice.
    fn rotation() -> Vec<(u64, Event)> {
        vec![
            (1, live(0)),
            (5, companion_crashes()),
            (6, Event::Due(Timer::Companions)),
            (7, companion_crashes()),
            (
                60,
                Event::Hashed {
                    configuration: Configuration([2; 32]),
                    complete: true,
                    cause: Cause::Noticed,
                },
            ),
            // The hot restart asks again, before it starts.
            (61, live(0)),
            (63, live(1)),
        ]
    }

    fn counters() -> Counters {
        Counters {
            epochs_started: [1, 2, 3, 4, 5],
            epochs_failed: 6,
            retries: 7,
            given_up: 8,
            refused: 9,
            configuration_changes: 10,
            orphans_reaped: 11,
            watch_overflows: 12,
            ready_probes: 13,
            unready_probes: 14,
            app_probes_passed: 15,
            app_probes_failed: 16,
            admin_errors: 17,
            scrapes: 18,
            envoy_scrape_failures: 19,
            application_scrape_failures: 20,
            connections: 21,
            connections_refused: 22,
        }
    }

    fn flags(programs: [&str; 2]) -> Vec<Flag> {
        let flag = |program: &str| Flag {
            words: vec![program.to_owned(), "--password=secret".to_owned()],
            text: [program, " --password=secret"].concat(),
        };
        programs.map(flag).into()
    }

    fn full_usage() -> Usage {
        Usage {
            cpu: Duration::from_millis(1_007),
            resident: Some(389_120),
            open_files: Some(12),
            open_files_limit: Some(1_048_576),
            lost_log_lines: 23,
        }
    }

    /// What is rendered 100 s after the start.
    fn rendered(events: &[(u64, Event)], change: fn(&mut View<'_>), usage: &Usage) -> String {
        let start = clock();
        let core = story(start, events);
        let (history, children) = (History::default(), Children::default());
        let flags = flags(["/bin/routing-agent", "a \"quoted\" \\ name\nof two lines"]);
        let mut view = View {
            now: start + secs(100),
            started: start,
            wall: Duration::from_millis(1_795_217_866_292),
            readiness: Stage::Ready,
            snapshot: core.snapshot(),
            history: &history,
            counters: &counters(),
            children: &children,
            companions: &flags,
            role: Role::Sidecar,
            node: "sidecar~10.1.2.3~p1.ns1~ns1.svc.cluster.local",
            admin: ([127, 0, 0, 1], 15000).into(),
            changed: Some(start + secs(60)),
            certificate_expiry: Some(1_795_304_166),
        };
        change(&mut view);
        String::from_utf8(render(&view, usage)).unwrap()
    }

    fn golden() -> String {
        rendered(&rotation(), |_| {}, &full_usage())
    }

    fn root(file: &str) -> String {
        [env!("CARGO_MANIFEST_DIR"), "/../../", file].concat()
    }

    #[test]
    fn the_metrics_are_those_of_the_golden_file() {
        let (file, text) = (root("tests/data/metrics.txt"), golden());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &text).unwrap();
        }
        let written = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            text == written,
            "{file} differs from what is rendered now:\n{text}"
        );
    }

    #[test]
    fn what_is_not_known_has_no_sample() {
        let usage = Usage {
            resident: None,
            open_files: None,
            open_files_limit: None,
            ..full_usage()
        };
        let nothing = |view: &mut View<'_>| {
            view.changed = None;
            view.certificate_expiry = None;
            view.snapshot.newest = None;
            view.snapshot.older = None;
            view.snapshot.companions = &[];
            view.readiness = Stage::NoProxy;
        };
        let text = rendered(&[], nothing, &usage);
        let families = |text: &str| text.lines().filter(|line| line.starts_with('#')).count();
        assert_eq!(families(&text), families(&golden()));
        for absent in [
            "pintle_epoch ",
            "pintle_epoch_start_time_seconds ",
            "pintle_epoch_startup_duration_seconds ",
            "pintle_configuration_last_change_timestamp_seconds ",
            "pintle_certificate_expiry_timestamp_seconds ",
            "pintle_process_resident_memory_bytes ",
            "pintle_process_open_fds ",
            "pintle_process_max_fds ",
            "pintle_companion_up{",
            "pintle_companion_restarts_total{",
        ] {
            assert!(golden().contains(&["\n", absent].concat()), "{absent}");
            assert!(!text.contains(&["\n", absent].concat()), "{absent}");
        }
        assert!(text.contains("\npintle_ready 0\n"));
        assert!(text.contains("\npintle_proxy_processes{state=\"live\"} 0\n"));
    }

    #[test]
    fn a_proxy_that_starts_has_no_startup_duration_yet() {
        let text = rendered(&[], |_| {}, &full_usage());
        assert!(text.contains("\npintle_epoch 0\n"));
        assert!(text.contains("\npintle_state{state=\"starting\"} 1\n"));
        assert!(text.contains("\npintle_proxy_processes{state=\"starting\"} 1\n"));
        assert!(!text.contains("\npintle_epoch_startup_duration_seconds "));
    }

    #[test]
    fn the_text_fits_the_room_reserved_and_a_long_program_is_cut() {
        assert!(golden().len() < ROOM, "{}", golden().len());
        let long = |view: &mut View<'_>| {
            let flags = flags([&*"ä".repeat(4096), ""]);
            view.companions = Box::leak(flags.into_boxed_slice());
        };
        let text = rendered(&rotation(), long, &full_usage());
        let program = ["program=\"", &*"ä".repeat(LABEL_CHARS), "\"} 1"].concat();
        assert!(text.contains(&program), "{text}");
        assert!(text.contains("companion=\"2\",program=\"\"} "));
    }

    #[test]
    fn no_argument_of_a_companion_is_told() {
        assert!(!golden().contains("secret"));
    }

    /// Both ways: the names of a table's first column, and the families.
    #[test]
    fn the_readme_lists_every_metric_and_no_other() {
        let readme = fs::read_to_string(root("README.md")).unwrap();
        let rows = readme
            .lines()
            .filter_map(|line| line.strip_prefix("| `pintle_"));
        let mut told: Vec<_> = rows
            .map(|row| {
                let (name, rest) = row.split_once('`').unwrap();
                let kind = rest.split('|').nth(1).unwrap().trim();
                [name, " ", kind].concat()
            })
            .collect();
        let text = golden();
        let types = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE pintle_"));
        let mut known: Vec<_> = types.map(str::to_owned).collect();
        told.sort();
        known.sort();
        assert_eq!(told, known);
    }
}
