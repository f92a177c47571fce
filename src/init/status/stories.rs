//! Stories of an agent, for tests of the answers about it: the real core on a simulated clock.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use crate::children::{ChildKind, Children};
use crate::config::CompanionCommand;
use crate::counters::{Asked, Counters};
use crate::history::{Happening, History, Life};
use crate::readiness::Stage;
use crate::status::view::View;
use crate::supervisor::{
    Action, Call, CleanExit, CompanionId, Epoch, Event, ExitStatus, Fingerprint, Policy, Reply,
    Signal, Supervisor,
};
use crate::values::Role;
use sys::Pid;

/// 2026-11-20T23:36:06.292725Z, since 1970.
const BEGIN: Duration = Duration::from_micros(1_795_217_766_292_725);

/// An agent that never was.
pub(crate) struct Story {
    start: Instant,
    pub(crate) now: Instant,
    core: Supervisor,
    pub(crate) history: History,
    pub(crate) counters: Counters,
    children: Children,
    companions: Vec<CompanionCommand>,
    pub(crate) node: String,
    stage: Stage,
    changed: Option<Instant>,
    pub(crate) expiry: Option<u64>,
    files: u8,
    pid: i32,
}

impl Story {
    /// Started, with these programs as companions, each with an argument.
    pub(crate) fn new(companions: &[&str]) -> Self {
        let companions: Vec<_> = companions
            .iter()
            .map(|program| CompanionCommand {
                words: vec![(*program).into(), "--password=secret".into()],
                text: [program, " --password=secret"].concat(),
            })
            .collect();
        let start = clock();
        let mut story = Self {
            start,
            now: start,
            core: Supervisor::new(policy(u8::try_from(companions.len()).unwrap())),
            history: History::default(),
            counters: Counters::default(),
            children: Children::default(),
            companions,
            node: "sidecar~10.1.2.3~web-7d4b9.shop~shop.svc.cluster.local".to_owned(),
            stage: Stage::NotLive(Epoch(0)),
            changed: None,
            expiry: Some(BEGIN.as_secs() + 86_400),
            files: 1,
            pid: 6,
        };
        let actions = story.core.start(start, Fingerprint([1; 32]), true);
        story.carry_out(actions);
        story
    }

    /// A start, a rotation, a child that fails twice, a crash, a companion that ends, and the drain at the end.
    pub(crate) fn full() -> Self {
        let mut story = Self::new(&["/bin/routing-agent", "/opt/\"watch\" <me>'s"]);
        story.live(180, 0);
        story.change(90_000, 2);
        story.live(100_210, 1);
        story.exited(160_300, 0, ExitStatus::Code(0));
        story.companion_exited(200_000, 1, ExitStatus::Code(3));
        story.change(240_000, 3);
        story.exited(250_400, 2, ExitStatus::Code(1));
        story.exited(251_000, 2, ExitStatus::Signal(11));
        story.live(252_000, 2);
        story.exited(312_000, 1, ExitStatus::Code(0));
        story.exited(400_000, 2, ExitStatus::Signal(9));
        story.readiness(400_000, Stage::NoProxy);
        story.live(401_300, 0);
        story.event(480_000, &Event::Signalled(Signal::Terminate));
        story.readiness(480_000, Stage::Draining);
        story.until(482_500);
        story
    }

    pub(crate) fn view(&self) -> View<'_> {
        View {
            now: self.now,
            started: self.start,
            wall: BEGIN + self.now.duration_since(self.start),
            readiness: self.stage,
            snapshot: self.core.snapshot(),
            history: &self.history,
            counters: &self.counters,
            children: &self.children,
            companions: &self.companions,
            role: Role::Sidecar,
            node: &self.node,
            admin: "127.0.0.1:15000".parse().unwrap(),
            changed: self.changed,
            certificate_expiry: self.expiry,
        }
    }

    /// Timers until then, in milliseconds since the start.
    pub(crate) fn until(&mut self, at: u64) {
        let end = self.start + Duration::from_millis(at);
        while let Some(deadline) = self.core.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(deadline);
            while let Some(timer) = self.core.expire(self.now) {
                self.handle(&Event::Due(timer));
            }
        }
        self.now = end;
    }

    pub(crate) fn event(&mut self, at: u64, event: &Event) {
        self.until(at);
        self.handle(event);
    }

    pub(crate) fn live(&mut self, at: u64, epoch: u32) {
        self.until(at);
        let process = self.core.process(Epoch(epoch)).unwrap();
        let (call, reply) = (Call::Live, Reply::Live);
        self.handle(&Event::AdminReplied {
            process,
            call,
            reply,
        });
        if !self.stage.is_ready() {
            self.readiness(at, Stage::Ready);
        }
    }

    pub(crate) fn exited(&mut self, at: u64, epoch: u32, how: ExitStatus) {
        self.until(at);
        let epoch = Epoch(epoch);
        self.reaped(ChildKind::Proxy(epoch));
        self.history.ended(self.now, epoch, how);
        self.counters.ended(how, Asked::No);
        self.handle(&Event::Exited { epoch, how });
    }

    fn companion_exited(&mut self, at: u64, place: u8, how: ExitStatus) {
        self.until(at);
        let companion = CompanionId(place);
        self.reaped(ChildKind::Companion(companion));
        self.handle(&Event::CompanionExited { companion, how });
    }

    /// The files change; the core hashes them after the debounce.
    pub(crate) fn change(&mut self, at: u64, files: u8) {
        self.files = files;
        self.event(at, &Event::FilesChanged);
        self.until(at + 10_000);
        self.changed = Some(self.now);
    }

    pub(crate) fn readiness(&mut self, at: u64, stage: Stage) {
        self.until(at);
        self.stage = stage;
        self.history.happened(self.now, Happening::Readiness(stage));
    }

    fn reaped(&mut self, kind: ChildKind) {
        let pid: Option<Pid> = self.children.pid(kind);
        assert_eq!(pid.and_then(|pid| self.children.reaped(pid)), Some(kind));
    }

    fn handle(&mut self, event: &Event) {
        let actions = self.core.handle(self.now, event);
        self.carry_out(actions);
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the other orders change nothing that is told"
    )]
    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Spawn { epoch, reason } => {
                    let pid = self.next_pid(ChildKind::Proxy(epoch));
                    self.counters.started(reason);
                    self.history.started(Life {
                        epoch,
                        pid,
                        reason,
                        configuration: self.core.snapshot().desired,
                        started: self.now,
                        live: None,
                        draining: None,
                        ended: None,
                        failed: false,
                    });
                }
                Action::SpawnCompanion(id) => {
                    self.next_pid(ChildKind::Companion(id));
                }
                Action::Note(note) => {
                    self.counters.noted(&note);
                    self.history.noted(self.now, &note);
                }
                Action::Hash(cause) => self.handle(&Event::Hashed {
                    configuration: Fingerprint([self.files; 32]),
                    complete: true,
                    cause,
                }),
                _ => {}
            }
        }
    }

    fn next_pid(&mut self, kind: ChildKind) -> u32 {
        self.pid += 1;
        self.children.pretend(self.pid, kind);
        self.pid.cast_unsigned()
    }
}

fn policy(companions: u8) -> Policy {
    Policy {
        command: false,
        cert_debounce: Duration::from_secs(10),
        rescan_interval: None,
        wait_for_certificates: false,
        termination_drain: Duration::from_secs(5),
        exit_on_zero: None,
        pre_drain_delay: Duration::ZERO,
        kill_timeout: Duration::from_secs(5),
        retry_budget: 10,
        retry_initial: Duration::from_millis(200),
        retry_reset: Duration::from_secs(600),
        on_clean_exit: CleanExit::Exit,
        live_timeout: Duration::from_secs(20),
        admin: "127.0.0.1:15000",
        hang_timeout: None,
        validate: false,
        hot_restart: true,
        parent_shutdown: Duration::from_secs(60),
        parent_stand_in: true,
        companions,
    }
}

/// Compares with a file of `tests/data`, or writes it with `UPDATE_GOLDEN=1`.
pub(crate) fn golden(name: &str, made: &[u8]) {
    let made = std::str::from_utf8(made).unwrap();
    let file = [env!("CARGO_MANIFEST_DIR"), "/../../tests/data/", name].concat();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&file, made).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        made == written,
        "{file} is another; run with UPDATE_GOLDEN=1:\n{made}"
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test needs some moment to begin"
)]
pub(crate) fn clock() -> Instant {
    Instant::now()
}
