//! What the status port needs of the rest, and what it asks for.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Duration;

use mio::Poll;

use super::{Answer, Asked, EventLoop, FIRST_CLIENT, STATUS, prometheus_port};
use crate::admin::Ports;
use crate::children::Kind;
use crate::clock;
use crate::config::{Config, ProbeAction};
use crate::error::StartError;
use crate::history::{Happening, Life};
use crate::log;
use crate::readiness::{Heard, Plan, Stage};
use crate::status::probes::Helper;
use crate::status::server::{Demand, StatusServer};
use crate::status::view::View;
use crate::status::{Settings, Turn};
use crate::supervisor::{Call, Epoch, Event, Exit, Note, Reason, Reply};
use crate::values::Role;
use sys::Pid;

/// When the two clocks have come apart by more, the host's was set. Chosen: well above a day's drift.
const CLOCK_SET: Duration = Duration::from_secs(1);

/// Does TLS and gRPC for the agent; found beside the agent's own binary.
const HELPER: &str = "pintle-probe";

impl EventLoop {
    /// Somebody has connected to the status port.
    pub(super) fn accept_client(&mut self) {
        let mut turn = Turn {
            registry: self.poll.registry(),
            now: self.now,
            counters: &mut self.counters,
        };
        self.status.accept(&mut turn, &self.poll);
    }

    /// A client's socket is ready, or that of somebody who is asked for a client.
    pub(super) fn client_ready(&mut self, event: &mio::event::Event) {
        let mut turn = Turn {
            registry: self.poll.registry(),
            now: self.now,
            counters: &mut self.counters,
        };
        self.status.ready(&mut turn, event);
    }

    /// What the status port does without being called: what is late ends, what was held up goes on, what clients want
    /// done is done.
    pub(super) fn serve(&mut self) {
        let mut turn = Turn {
            registry: self.poll.registry(),
            now: self.now,
            counters: &mut self.counters,
        };
        self.status.expire(&mut turn);
        self.status.run(&mut turn);
        loop {
            let demands = self.status.demands();
            if demands.is_empty() {
                return;
            }
            for demand in demands {
                match demand {
                    Demand::Drain => self.queue.push_back(Event::DrainRequested),
                    Demand::Quit => self.queue.push_back(Event::QuitRequested),
                    Demand::KillHelper(serial) => self.children.kill(Kind::Probe(serial)),
                    // Where that fails, the next in line is demanded at once.
                    Demand::Helper(helper) => self.run_helper(helper),
                }
            }
        }
    }

    /// Probes that wait are answered with what the core knows, or the admin port is asked for them.
    pub(super) fn answer_probes(&mut self) {
        if self.status.wants_readiness() {
            self.ask_readiness();
        }
    }

    /// Who waits for readiness is answered by what the core knows, or by what the admin port will say.
    pub(super) fn ask_readiness(&mut self) {
        match self.readiness.plan(&self.supervisor.snapshot()) {
            Plan::Answer(stage) => self.answer_with(stage),
            Plan::Ask(process) => {
                let registry = self.poll.registry();
                if let Some(answer) = self.admin.ask_ready(registry, self.now, process) {
                    self.admin_answered(answer);
                }
            }
        }
    }

    pub(super) fn ask_admin(&mut self, epoch: Epoch, call: Call) {
        if let Some(process) = self.supervisor.process(epoch) {
            let registry = self.poll.registry();
            if let Some(answer) = self.admin.ask(registry, self.now, process, call) {
                self.admin_answered(answer);
            }
        }
    }

    /// A call to the admin port is over.
    pub(super) fn admin_answered(&mut self, answer: Answer) {
        if answer.is_failure() {
            self.counters.admin_errors = self.counters.admin_errors.saturating_add(1);
        }
        match answer {
            Answer::Core(event) => self.queue.push_back(event),
            Answer::Ready(process, heard) => {
                if let Heard::Facts(facts) = heard
                    && facts.ours
                    && facts.workers
                {
                    // Readiness has shown that the epoch is LIVE.
                    self.queue.push_back(Event::AdminReplied {
                        process,
                        call: Call::Live,
                        reply: Reply::Live,
                    });
                }
                let snapshot = self.supervisor.snapshot();
                match self.readiness.conclude(&snapshot, process, heard) {
                    Some(stage) => self.answer_with(stage),
                    None => self.ask_readiness(),
                }
            }
        }
    }

    fn answer_with(&mut self, stage: Stage) {
        self.note_stage(stage);
        if std::mem::take(&mut self.command_waits) {
            self.queue
                .push_back(Event::ReadinessKnown(stage.is_ready()));
        }
        let wall = self.wall();
        let counters = self.counters.clone();
        let view = View {
            now: self.now,
            started: self.started,
            wall,
            readiness: stage,
            snapshot: self.supervisor.snapshot(),
            history: &self.history,
            counters: &counters,
            children: &self.children,
            companions: &self.config.companions,
            role: self.config.role,
            node: &self.config.launch.service_node,
            admin: self.config.admin,
            changed: self.changed,
            certificate_expiry: self.files.expiry().map(|(at, _)| *at),
        };
        let mut turn = Turn {
            registry: self.poll.registry(),
            now: self.now,
            counters: &mut self.counters,
        };
        self.status.answer(&mut turn, stage, &view);
    }

    /// Time since 1970, as far from the start as the clock of the loop is: an event has one time, however often it is
    /// told. Set anew when somebody sets the host's clock.
    pub(super) fn wall(&mut self) -> Duration {
        let elapsed = self.now.saturating_duration_since(self.started);
        let clock = clock::wall();
        let ours = self.started_wall.saturating_add(elapsed);
        if ours.abs_diff(clock) > CLOCK_SET {
            self.started_wall = clock.saturating_sub(elapsed);
        }
        self.started_wall.saturating_add(elapsed)
    }

    /// Said on a change, not on every probe.
    fn note_stage(&mut self, stage: Stage) {
        if self.stage == Some(stage) {
            return;
        }
        self.stage = Some(stage);
        if stage.is_ready() {
            log::info!("ready");
        } else {
            log::info!("not ready: {stage}");
        }
        self.history.happened(self.now, Happening::Readiness(stage));
    }

    fn run_helper(&mut self, helper: Helper) {
        self.used_seldom = true;
        let Helper {
            place,
            serial,
            arguments,
            socket,
        } = helper;
        let program = helper_path();
        let spawned = if self.outcome.is_some() {
            // All of its own have been killed: one more would be waited for.
            Err("the agent is stopping".to_owned())
        } else {
            self.children
                .spawn_probe(serial, &program, &arguments, &socket)
                .map_err(|error| format!("cannot start {}: {error}", program.display()))
        };
        if let Err(why) = spawned {
            let mut turn = Turn {
                registry: self.poll.registry(),
                now: self.now,
                counters: &mut self.counters,
            };
            self.status.helper_failed(&mut turn, place, &why);
        }
    }

    /// Its socket has said what there was to say.
    pub(super) fn helper_ended(&mut self) {
        let mut turn = Turn {
            registry: self.poll.registry(),
            now: self.now,
            counters: &mut self.counters,
        };
        self.status.helper_ended(&mut turn);
    }

    /// Said at the start, not only when kubelet restarts a container for it.
    pub(super) fn look_for_helper(&self) {
        let needed = self.status.probers().any(|prober| match &prober.action {
            ProbeAction::Http(http) => http.https,
            ProbeAction::Grpc { .. } => true,
            ProbeAction::Tcp { .. } => false,
        });
        if needed && !helper_path().exists() {
            let path = helper_path();
            let path = path.display();
            log::warning!("{path} is missing: HTTPS and gRPC probes of the application will fail");
        }
    }

    pub(super) fn proxy_started(&mut self, epoch: Epoch, pid: i32, reason: Reason) {
        self.counters.started(reason);
        self.history.started(Life {
            epoch,
            pid: pid.unsigned_abs(),
            reason,
            configuration: self.supervisor.snapshot().desired,
            started: self.now,
            live: None,
            draining: None,
            ended: None,
            failed: false,
        });
    }

    /// A proxy was reaped, or could not be started; the core does not know yet.
    pub(super) fn proxy_ended(&mut self, epoch: Epoch, how: Exit) {
        let asked = self
            .supervisor
            .processes()
            .any(|process| process.epoch == epoch && process.may_end());
        let asked = if asked { Asked::Yes } else { Asked::No };
        self.counters.ended(how, asked);
        self.history.ended(self.now, epoch, how);
    }

    pub(super) fn orphan_reaped(&mut self, pid: Pid, how: Exit) {
        self.counters.orphans_reaped = self.counters.orphans_reaped.saturating_add(1);
        log::debug!("reaped orphan {}: it {how}", pid.number());
    }

    /// The core says something.
    pub(super) fn say(&mut self, note: &Note) {
        let changed = matches!(note, Note::Changed(_) | Note::ChangedBack(_));
        let files = if changed { self.files.changed() } else { "" };
        if note.is_warning() {
            log::warning!("{note}");
        } else {
            log::info!("{note}{files}");
        }
        if changed {
            self.changed = Some(self.now);
        }
        if matches!(note, Note::Live { .. }) {
            self.hot_restart.proxy_is_live();
        }
        self.counters.noted(note);
        self.history.noted(self.now, note);
    }
}

fn helper_path() -> PathBuf {
    // Without /proc the name that we were started by has to do.
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(sys::own_name()));
    own.with_file_name(HELPER)
}

pub(super) fn ports(config: &Config) -> Ports {
    Ports {
        wanted: config.application_ports.clone(),
        all: config.role != Role::Sidecar,
    }
}

/// Opened before the proxy is started: an address that is taken is an error of the start.
pub(super) fn open_status_port(
    config: &mut Config,
    poll: &Poll,
) -> Result<StatusServer, StartError> {
    let settings = Settings {
        application_ports: config.application_ports.clone(),
        probers: std::mem::take(&mut config.probers),
        scrape: std::mem::take(&mut config.scrape),
        metrics: config.metrics,
        admin: config.admin,
        node: config.node,
        own: [
            config.admin.port(),
            prometheus_port(&config.source),
            config.status.map_or(0, |status| status.port()),
        ],
    };
    let address = config.status;
    let tokens = (STATUS.0, FIRST_CLIENT);
    let server = StatusServer::open(address, settings, tokens).and_then(|server| {
        server.register(poll)?;
        Ok(server)
    });
    server.map_err(|error| {
        let address = address.map(|address| address.to_string());
        let what = format!("listen on status port {}", address.unwrap_or_default());
        StartError::os_but(what, "--status-port chooses another, 0 none")(error)
    })
}
