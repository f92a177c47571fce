//! The status port's needs of the rest, and its requests.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use mio::Poll;

use super::{EventLoop, FIRST_CLIENT, STATUS, prometheus_port};
use crate::children::ChildKind;
use crate::config::{Config, ProbeAction};
use crate::error::StartError;
use crate::log;
use crate::readiness::Stage;
use crate::status::probes::Helper;
use crate::status::server::{Effect, StatusServer};
use crate::status::view::View;
use crate::status::{Settings, Turn};
use crate::supervisor::Event;

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

    /// Does the status port's own work: late connections end, those held up go on, and wishes of clients are granted.
    pub(super) fn serve(&mut self) {
        let mut turn = Turn {
            registry: self.poll.registry(),
            now: self.now,
            counters: &mut self.counters,
        };
        self.status.expire(&mut turn);
        self.status.run(&mut turn);
        loop {
            let effects = self.status.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Drain => self.queue.push_back(Event::DrainRequested),
                    Effect::Quit => self.queue.push_back(Event::QuitRequested),
                    Effect::KillHelper(serial) => self.children.kill(ChildKind::Probe(serial)),
                    // Where that fails, the next in line is asked for at once.
                    Effect::Helper(helper) => self.run_helper(helper),
                }
            }
        }
    }

    /// Answers all that wait to be told about readiness.
    pub(super) fn answer_with(&mut self, stage: Stage) {
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
            certificate_expiry: self.files.expiry().next().map(|(at, _)| *at),
        };
        let mut turn = Turn {
            registry: self.poll.registry(),
            now: self.now,
            counters: &mut self.counters,
        };
        self.status.answer(&mut turn, stage, &view);
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
}

fn helper_path() -> PathBuf {
    // Without /proc the name that we were started by has to do.
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from(sys::own_name()));
    own.with_file_name(HELPER)
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
        pod: config.pod,
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
