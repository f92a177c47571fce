//! The shell: one thread, one poll, one owner of everything. Sources yield events, the core yields actions.
//!
//! One turn: sleep until the nearest deadline; read the clock once; drain every source that is ready, in a fixed order
//! (signals and dead children, admin replies, files, the stand-in); hand each event to the core and carry its actions
//! out, what they yield included; then the timers that are due.
//!
//! INVARIANT: after `start` nothing fails upward. There is no `?` below it that could leave the loop.

#![forbid(unsafe_code)]

mod admin_port;
mod command;
mod companions;
mod files;
mod leaving;
mod processes;
mod records;
mod sources;
mod status_port;

use admin_port::{knowledge, ports};
use files::{Expiry, Hashing};
use processes::{open_store, owner};
use status_port::open_status_port;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};

use crate::admin::{self, AdminClient};
use crate::adopted::Adopted;
use crate::bootstrap::{self, Override, Source};
use crate::children::{ChildKind, Children};
use crate::clock;
use crate::config::Config;
use crate::counters::Counters;
use crate::error::StartError;
use crate::fingerprint::Files;
use crate::history::History;
use crate::host;
use crate::hot_restart::{HotRestart, StandIn};
use crate::log;
use crate::readiness::{Readiness, Stage};
use crate::signals::{self, Signals};
use crate::status::server::{PLACES, StatusServer};
use crate::store::Store;
use crate::supervisor::{Action, Call, ChildSignal, Epoch, Event, Note, Outcome, Supervisor};
use crate::timeline;
use crate::watcher::Watcher;
use sys::signal;

/// Ready sources taken from the kernel at once. Chosen: more wait for the next turn.
const EVENTS: usize = 32;
/// Events handled in one turn. Chosen: a flood cannot keep the timers from their turn.
const EVENTS_PER_TURN: usize = 64;
/// After an error of `poll` itself, which should not happen. Chosen: ten lines a second, and no spin.
const POLL_ERROR_PAUSE: Duration = Duration::from_millis(100);

const ENDS: Token = Token(4);
const SIGNALS: Token = Token(0);
const WATCHER: Token = Token(1);
const STAND_IN: Token = Token(2);
const STATUS: Token = Token(3);
/// One for each call to the admin port.
const FIRST_ADMIN: usize = 16;
const LAST_ADMIN: usize = FIRST_ADMIN + admin::SLOTS - 1;
/// Two for each connection to the status port.
const FIRST_CLIENT: usize = 64;
const LAST_CLIENT: usize = FIRST_CLIENT + 2 * PLACES - 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct EventLoop {
    poll: Poll,
    config: &'static mut Config,
    signals: Signals,
    watcher: Watcher,
    children: Children,
    admin: AdminClient,
    hot_restart: HotRestart,
    store: Store,
    /// Answers the child of a dead parent.
    stand_in: Option<(StandIn, Epoch)>,
    /// It could not, and that was said of this parent.
    stand_in_refused: Option<Epoch>,
    supervisor: Supervisor,
    status: StatusServer,
    readiness: Readiness,
    /// The command of `run` is started once the proxy is ready, and wants to know.
    command_waits: bool,
    /// The stage of readiness in the last line about it.
    stage: Option<Stage>,
    history: History,
    counters: Counters,
    /// The time of the agent's start, and of the last change of its configuration.
    started: Instant,
    changed: Option<Instant>,
    /// `started` as time since 1970.
    started_wall: Duration,
    files: Files,
    hashing: Hashing,
    expiry: Expiry,
    /// The end of the watcher's pause, if no hash ends it.
    watch_again: Option<Instant>,
    /// Events that have not been handled.
    queue: VecDeque<Event>,
    /// The clock, read once in a turn.
    now: Instant,
    /// The cgroup's count of out-of-memory kills, when it was last read.
    oom_kills: Option<u64>,
    /// Bit n - 1: signal n was said to be ignored.
    ignored: u64,
    degraded: bool,
    /// Code, stack and heap were used that are needed seldom: by a start of any process, a hash, a page.
    used_seldom: bool,
    /// Set while the first epoch is started: then a bootstrap that cannot be made is an error of the start.
    starting: Option<Option<StartError>>,
    /// The client's certificate that was missing when an epoch was prepared, once that was said.
    missed: Option<PathBuf>,
    outcome: Option<Outcome>,
    /// Once there is an outcome.
    adopted: Option<Adopted>,
}

impl EventLoop {
    /// Takes on the duties of an init, opens everything and starts the first epoch. Nothing may fail after it. What is made
    /// here lives as long as the process, and is closed with it.
    ///
    /// # Errors
    /// The operating system refuses something, or the bootstrap cannot be made.
    pub(crate) fn start(config: &'static mut Config) -> Result<&'static mut Self, StartError> {
        if std::process::id() != 1 {
            sys::become_subreaper().map_err(StartError::os("become a subreaper"))?;
        }
        let poll = Poll::new().map_err(StartError::os("create an epoll instance"))?;
        let store = open_store(config)?;
        let hot_restart = HotRestart::new(config.launch.base_id, owner(&config.launch)).map_err(
            StartError::os_but("find a free base id", "--disable-hot-restart needs none"),
        )?;
        let watcher = Watcher::not_yet(config.watch.paths.clone());
        let required = std::mem::take(&mut config.watch.required);
        let files = Files::new(std::mem::take(&mut config.watch.paths), required);
        let status = open_status_port(config, &poll)?;
        let now = clock::read();
        // On the heap: it is large, and each place on the stack that it passes through would stay.
        let this = Box::leak(Box::new(Self {
            admin: AdminClient::new(config.admin, knowledge(config), ports(config), FIRST_ADMIN),
            supervisor: Supervisor::new(config.policy.clone()),
            poll,
            signals: Signals::default(),
            watcher,
            children: Children::at_start(),
            hot_restart,
            store,
            stand_in: None,
            stand_in_refused: None,
            queue: VecDeque::new(),
            status,
            readiness: Readiness::default(),
            command_waits: false,
            stage: None,
            history: History::default(),
            counters: Counters::default(),
            started: now,
            changed: None,
            started_wall: Duration::ZERO,
            files,
            hashing: Hashing::default(),
            expiry: Expiry::default(),
            watch_again: None,
            now,
            oom_kills: None,
            ignored: 0,
            degraded: false,
            used_seldom: false,
            starting: Some(None),
            missed: None,
            outcome: None,
            adopted: None,
            config,
        }));
        this.start_first()?;
        timeline::log(this.config);
        this.look_for_helper();
        this.look_at_directory();
        Ok(this)
    }

    fn start_first(&mut self) -> Result<(), StartError> {
        if self.config.policy.wait_for_certificates {
            // The first epoch may start in two minutes; a bootstrap that cannot be made is said now.
            bootstrap::render(&self.config.source, 0, Override::InFile)
                .map_err(|error| StartError::bootstrap(&error))?;
        }
        // The first hash reads up to 256 MiB, a second's work: a signal that asks for the end does not wait for it.
        let scan = loop {
            let scan = self.files.advance();
            if scan.is_some() || signals::end_is_asked() {
                break scan;
            }
        };
        if let Some(scan) = scan {
            let configuration = scan.fingerprint;
            let mut actions = self
                .supervisor
                .start(self.now, configuration, scan.complete);
            self.carry_out(&mut actions);
        }
        if let Some(error) = self.starting.take().flatten() {
            return Err(error);
        }
        // The proxy first; from here on comes what can wait until it has been started.
        if let Err(error) = self.listen() {
            self.clean_up();
            return Err(error);
        }
        // A change since the hash was taken, which nobody has watched, is seen by hashing again.
        self.watcher.refresh();
        if let Some(scan) = scan {
            self.hash_again(scan);
        }
        self.report_watcher();
        // Out-of-memory kills before the start do not count.
        self.oom_kills = host::oom_kills();
        Ok(())
    }

    /// To signals and to the files.
    fn listen(&mut self) -> Result<(), StartError> {
        let registry = self.poll.registry();
        let caught = self.signals.catch(registry, [ENDS, SIGNALS]);
        caught.map_err(StartError::os("catch signals"))?;
        let watched = self.watcher.register(registry, WATCHER);
        watched.map_err(StartError::os("watch the file watcher"))
    }

    /// Turns until the end; returns the exit code.
    #[must_use]
    // Not inlined: the caller's frame must not hold its locals.
    #[inline(never)]
    pub(crate) fn run(&mut self) -> u8 {
        sys::set_apart();
        self.used_seldom = true;
        let mut events = Events::with_capacity(EVENTS);
        let outcome = loop {
            self.turn(&mut events);
            if let Some(outcome) = self.has_left() {
                break outcome;
            }
        };
        self.clean_up();
        let level = if outcome.code() == 0 {
            log::Level::Info
        } else {
            log::Level::Error
        };
        let by = self.supervisor.asker();
        log::last_words(level, format_args!("{}", Note::Finished { outcome, by }));
        outcome.code()
    }

    fn turn(&mut self, events: &mut Events) {
        let timeout = self.timeout();
        if let Err(error) = self.poll.poll(events, timeout) {
            events.clear();
            if error.kind() != std::io::ErrorKind::Interrupted {
                log::error!("cannot poll: {error}");
                sys::pause(POLL_ERROR_PAUSE);
            }
        }
        self.now = clock::read();
        self.collect(events);
        self.hash_on();
        self.handle_events();
        self.serve();
        self.handle_events();
        self.answer_probes();
        // Last: places have become free in all of these, and no event may come that says so.
        self.status.resume(self.now, &self.poll);
        self.tidy();
    }

    /// Returns unused code, stack and heap pages once idle: after the start, an epoch, a page, a crowd of clients, an
    /// application's long answer.
    fn tidy(&mut self) {
        self.used_seldom |= self.status.used_seldom();
        if self.status.is_idle() {
            if self.queue.is_empty() {
                // Its place may be above all that a crowd has left: nothing would be high then.
                self.queue = VecDeque::new();
            }
            self.used_seldom |= sys::heap_is_high();
        }
        if self.used_seldom && self.queue.is_empty() && !self.status.is_runnable() {
            self.used_seldom = false;
            self.queue = VecDeque::new();
            sys::give_back();
            sys::release_stack();
            sys::release_heap();
        }
    }

    /// Hands events to the core, and carries out what follows.
    fn handle_events(&mut self) {
        for _ in 0..EVENTS_PER_TURN {
            let Some(event) = self.next_event() else {
                break;
            };
            self.handle(&event);
        }
    }

    pub(super) fn handle(&mut self, event: &Event) {
        if self.outcome.is_none() {
            let mut actions = self.supervisor.handle(self.now, event);
            self.carry_out(&mut actions);
            self.supervisor.take_back(actions);
        } else if let Event::Signalled(signal) = event {
            self.hurry(*signal);
        }
    }

    /// Returns an event that waits, before one that is due: a reply that is there beats its time-out.
    fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.queue.pop_front() {
            return Some(event);
        }
        while let Some(answer) = self.admin.expire(self.now) {
            self.admin_answered(answer);
        }
        if let Some(event) = self.queue.pop_front() {
            return Some(event);
        }
        self.supervisor.expire(self.now).map(Event::Due)
    }

    fn timeout(&self) -> Option<Duration> {
        let busy = self.signals.are_left() || self.status.is_runnable() || self.files.is_walking();
        if busy || !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadlines = [
            self.supervisor.next_deadline(),
            self.admin.next_deadline(),
            self.status.next_deadline(),
            self.adopted.as_ref().map(Adopted::deadline),
            self.expiry.due,
            self.watch_again,
        ];
        let nearest = deadlines.into_iter().flatten().min()?;
        Some(nearest.saturating_duration_since(self.now))
    }

    fn carry_out(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Hash(cause) => self.hash(cause),
                Action::Spawn { epoch, reason } => self.spawn(epoch, reason),
                Action::Validate(epoch) => self.validate(epoch),
                Action::KillValidator => self.children.kill(ChildKind::Validator),
                Action::Signal(epoch, ChildSignal::Term) => {
                    self.children
                        .signal(ChildKind::Proxy(epoch), signal::SIGTERM);
                }
                Action::Signal(epoch, ChildSignal::Reopen) => {
                    self.children
                        .signal(ChildKind::Proxy(epoch), signal::SIGUSR1);
                }
                Action::Signal(epoch, ChildSignal::Kill) => {
                    self.children.kill(ChildKind::Proxy(epoch));
                }
                Action::SpawnCompanion(id) => self.spawn_companion(id),
                Action::SignalCompanion(id, what) => self.signal_companion(id, what),
                Action::CheckReady => self.check_ready(),
                Action::SpawnCommand => self.spawn_command(),
                Action::SignalCommand(number) => self.signal_command(number),
                Action::KillCommand => self.children.kill(ChildKind::Command),
                Action::IgnoreSignal(number) => self.ignore_signal(number),
                Action::CallAdmin(epoch, call @ (Call::Memory | Call::Stopped)) => {
                    self.look_at(epoch, call);
                }
                Action::CallAdmin(epoch, call) => self.ask_admin(epoch, call),
                Action::ClearInitializing => self.clear_initializing(),
                Action::StandIn { parent, child } => self.stand_in(parent, child),
                Action::ReopenLog => log::reopen(),
                Action::Note(note) => self.say(&note),
                Action::Exit(outcome) => self.outcome = Some(outcome),
            }
        }
    }
}

fn prometheus_port(source: &Source) -> u16 {
    match source {
        Source::Generated { inputs, .. } => inputs.prometheus_port,
        Source::Template { .. } | Source::Custom { .. } => 15090,
    }
}
