//! Calls to Envoy's admin port: for the core, and for clients that ask whether the proxy is ready.

#![forbid(unsafe_code)]

use super::{EventLoop, prometheus_port};
use crate::admin::{Answer, Knowledge, Ports};
use crate::config::Config;
use crate::readiness::{Heard, Plan};
use crate::supervisor::{Call, Epoch, Event, Reply};
use crate::values::Role;

impl EventLoop {
    /// Probes that wait are answered with what the core knows, or the admin port is asked for them.
    pub(super) fn answer_probes(&mut self) {
        if self.status.wants_readiness() {
            self.ask_readiness();
        }
    }

    /// Answers clients that wait for readiness by the core's knowledge, or asks the admin port.
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
                    && facts.show_live()
                {
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
}

pub(super) fn knowledge(config: &Config) -> Knowledge {
    Knowledge {
        hot_restart: !config.launch.disable_hot_restart,
        skip_generation: config.launch.skip_parent_stats,
        drain: config.drain,
        prometheus_port: prometheus_port(&config.source),
    }
}

pub(super) fn ports(config: &Config) -> Ports {
    Ports {
        wanted: config.application_ports.clone(),
        all: config.role != Role::Sidecar,
    }
}
