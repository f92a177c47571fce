//! The agent's own metrics, in Prometheus' text format 0.0.4. Pure.
//!
//! Every name begins with `pintle_`, those of the process too: what is merged after this text (Envoy's, the
//! application's) may bring the `process_…` of its own client library, and a family that stands twice is an error to some
//! parsers. A family whose value is not known (no proxy, no /proc, no certificate) has its HELP and TYPE and no sample.
//! The README lists them all.
//!
//! The bounds of a scrape: its time and the number of them at once are in `status/server/limits.rs`, the effect on the time of
//! a client's
//! `X-Prometheus-Scrape-Timeout-Seconds` does to the time in `status/server/request.rs`, bytes of a line, of a turn and
//! of an application in `scrape.rs` and `merge.rs`.

#![forbid(unsafe_code)]

mod exposition;
pub(crate) mod merge;
pub(crate) mod scrape;
mod syntax;
pub(crate) mod usage;

use self::exposition::{Exposition, escaped};
use self::usage::Usage;
use crate::counters::{Counters, REASONS};
use crate::status::view::View;
use crate::supervisor::{AgentState, Companion, State};

/// The whole text.
#[must_use]
// A function of its own, for build/seldom.ld to set apart.
#[inline(never)]
pub(crate) fn render(view: &View<'_>, usage: &Usage) -> Vec<u8> {
    let mut out = Exposition::new();
    agent(&mut out, view);
    epochs(&mut out, view);
    happened(&mut out, view.counters);
    served(&mut out, view.counters);
    companions(&mut out, view);
    process(&mut out, view, usage);
    out.finish()
}

/// The agent as a whole.
fn agent(out: &mut Exposition, view: &View<'_>) {
    let version = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
    out.family("build_info Version of pintle, always 1");
    out.number(&[version], 1);
    out.family("state 1 for what the agent is doing, 0 for the others");
    for state in [
        AgentState::Starting,
        AgentState::Live,
        AgentState::Restarting,
        AgentState::Idle,
        AgentState::Draining,
        AgentState::Stopping,
    ] {
        let is = u64::from(view.snapshot.state == state);
        out.number(&["{state=\"", state.name(), "\"}"], is);
    }
    out.one(
        "ready 1 while the readiness probe is answered with 200",
        view.readiness.is_ready().into(),
    );
    let (left, all) = view.snapshot.retry_budget;
    out.one("retry_budget Crash restarts that are left", left.into());
    out.one(
        "retry_budget_limit Crash restarts that a full budget has",
        all.into(),
    );
    out.seconds(
        "configuration_last_change_timestamp_seconds When what is watched became other than it was, since 1970",
        view.changed.map(|at| view.wall_of(at)),
    );
    out.one(
        "configuration_given_up 1 while another configuration serves than what is watched, which failed",
        view.snapshot.given_up.into(),
    );
    out.known(
        "certificate_expiry_timestamp_seconds The earliest notAfter of the watched certificates, since 1970",
        view.certificate_expiry,
    );
}

/// The proxy processes.
fn epochs(out: &mut Exposition, view: &View<'_>) {
    let newest = view.snapshot.newest;
    out.known(
        "epoch Number of the newest proxy process; no sample while none runs",
        newest.map(|newest| newest.epoch.0.into()),
    );
    out.seconds(
        "epoch_start_time_seconds When the newest proxy process was started, since 1970",
        newest.map(|newest| view.wall_of(newest.started)),
    );
    out.seconds(
        "epoch_startup_duration_seconds From the start of the newest proxy process to LIVE; no sample before",
        newest
            .and_then(|newest| Some((newest.live_since?, newest.started)))
            .map(|(live, started)| live.saturating_duration_since(started)),
    );
    out.family("proxy_processes Proxy processes that run, by state");
    let (mut starting, mut live, mut draining, mut stopping) = (0, 0, 0, 0);
    for process in [newest, view.snapshot.older].into_iter().flatten() {
        *match process.state {
            State::Starting => &mut starting,
            State::Live => &mut live,
            State::Draining => &mut draining,
            State::Stopping(_) => &mut stopping,
        } += 1;
    }
    out.number(&["{state=\"starting\"}"], starting);
    out.number(&["{state=\"live\"}"], live);
    out.number(&["{state=\"draining\"}"], draining);
    out.number(&["{state=\"stopping\"}"], stopping);
}

/// Writes the events of the proxies and of the watched files.
fn happened(out: &mut Exposition, counters: &Counters) {
    out.family("epochs_started_total Proxy processes started, by reason");
    for (reason, count) in REASONS.iter().zip(&counters.epochs_started) {
        out.number(&["{reason=\"", reason.name(), "\"}"], *count);
    }
    out.one(
        "epochs_failed_total Proxy processes that could not be started, crashed, or died before they were LIVE",
        counters.epochs_failed,
    );
    out.one(
        "restarts_total Starts tried again after a failure, each out of the retry budget",
        counters.retries,
    );
    out.one(
        "configuration_changes_total Times that what is watched became other than it was",
        counters.configuration_changes,
    );
    out.one(
        "configurations_refused_total Configurations that --validate refused",
        counters.refused,
    );
    out.one(
        "configurations_given_up_total Configurations given up because no proxy process became LIVE with them",
        counters.given_up,
    );
    out.one(
        "watch_overflows_total Times that the kernel lost file notifications, and everything was hashed",
        counters.watch_overflows,
    );
    out.one(
        "orphans_reaped_total Adopted processes reaped",
        counters.orphans_reaped,
    );
    out.one(
        "admin_errors_total Calls to the admin port of Envoy that failed or were not answered in time",
        counters.admin_errors,
    );
}

/// Writes the requests to the status port.
fn served(out: &mut Exposition, counters: &Counters) {
    out.one(
        "connections_total Connections to the status port",
        counters.connections,
    );
    out.one(
        "connections_refused_total Of these, closed for a limit: too large a head, too slow, no place",
        counters.connections_refused,
    );
    out.one("scrapes_total Scrapes of the metrics", counters.scrapes);
    out.family("scrape_failures_total Sources whose metrics were missing or cut short in a scrape");
    let (envoy, application) = (
        counters.envoy_scrape_failures,
        counters.application_scrape_failures,
    );
    out.number(&["{source=\"envoy\"}"], envoy);
    out.number(&["{source=\"application\"}"], application);
    out.family(
        "probes_total Probes answered, the proxy's readiness and those of the application, by result",
    );
    for (labels, count) in [
        (
            "{kind=\"readiness\",result=\"passed\"}",
            counters.ready_probes,
        ),
        (
            "{kind=\"readiness\",result=\"failed\"}",
            counters.unready_probes,
        ),
        (
            "{kind=\"application\",result=\"passed\"}",
            counters.app_probes_passed,
        ),
        (
            "{kind=\"application\",result=\"failed\"}",
            counters.app_probes_failed,
        ),
    ] {
        out.number(&[labels], count);
    }
}

/// The companions, by their place from 1, as people count flags.
fn companions(out: &mut Exposition, view: &View<'_>) {
    out.family("companion_up 1 while the companion's process runs");
    each_companion(out, view, |companion| companion.has_process().into());
    out.family("companion_restarts_total How often the companion was started again");
    each_companion(out, view, |companion| companion.restarts);
}

fn each_companion(out: &mut Exposition, view: &View<'_>, value: fn(&Companion) -> u64) {
    for companion in view.snapshot.companions {
        let program = escaped(view.companion_program(companion.id));
        let place = u64::from(companion.id.0) + 1;
        out.number(
            &[
                "{companion=\"",
                &place.to_string(),
                "\",program=\"",
                &program,
                "\"}",
            ],
            value(companion),
        );
    }
}

/// The agent's own process.
fn process(out: &mut Exposition, view: &View<'_>, usage: &Usage) {
    out.one(
        "log_lines_lost_total Log lines lost because their reader is too slow",
        usage.lost_log_lines,
    );
    out.seconds(
        "process_cpu_seconds_total User and system time of pintle itself",
        Some(usage.cpu),
    );
    out.known(
        "process_resident_memory_bytes Resident memory of pintle itself",
        usage.resident,
    );
    out.known(
        "process_open_fds File descriptors that pintle has open",
        usage.open_files,
    );
    out.known(
        "process_max_fds File descriptors that pintle may have open",
        usage.open_files_limit,
    );
    out.seconds(
        "process_start_time_seconds When pintle was started, since 1970",
        Some(view.wall_of(view.started)),
    );
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use super::exposition::{LABEL_CHARS, ROOM};
    use super::*;
    use crate::children::Children;
    use crate::config::CompanionCommand;
    use crate::history::History;
    use crate::readiness::Stage;
    use crate::supervisor::{
        Call, Cause, CleanExit, CompanionId, Epoch, Event, ExitStatus, Fingerprint, Policy,
        ProcessId, Reply, Supervisor, Timer,
    };
    use crate::values::Role;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn policy() -> Policy {
        Policy {
            command: false,
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
            admin: "127.0.0.1:15000",
            hang_timeout: None,
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
        // The tests' epochs are started once each.
        let serial = epoch + 1;
        let epoch = Epoch(epoch);
        Event::AdminReplied {
            process: ProcessId { epoch, serial },
            call: Call::Live,
            reply: Reply::Live,
        }
    }

    fn companion_crashes() -> Event {
        Event::CompanionExited {
            companion: CompanionId(1),
            how: ExitStatus::Code(1),
        }
    }

    /// The core after these events, at seconds since the start.
    fn story(start: Instant, events: &[(u64, Event)]) -> Supervisor {
        let mut core = Supervisor::new(policy());
        core.start(start, Fingerprint([1; 32]), true);
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
                    configuration: Fingerprint([2; 32]),
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

    fn flags(programs: [&str; 2]) -> Vec<CompanionCommand> {
        let flag = |program: &str| CompanionCommand {
            words: vec![program.into(), "--password=secret".into()],
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

    /// Renders the metrics of 100 s after the start.
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
    fn unknown_values_have_no_sample() {
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
