//! Whether the proxy is ready, and if not, which stage is missing. Pure.
//!
//! What the core knows decides first; where that is not enough, the admin port of the serving epoch is asked, once for
//! all probes that wait. An epoch that was found ready stays so during a hand-over: its admin port belongs to its child
//! from some moment on.

#![forbid(unsafe_code)]

use std::fmt;

use crate::supervisor::{AgentState, Epoch, Process, Snapshot, State};

/// What is missing, or that nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Ready,
    /// MUTUAL_TLS: the certificates are not there yet.
    Certificates,
    /// No proxy process runs: it crashed, or ended and stays so.
    NoProxy,
    /// It starts, or is stopped to be started afresh.
    NotLive(Epoch),
    Workers(Epoch),
    /// An xDS API that Envoy uses has not had a configuration accepted; `rejected`: it had one refused.
    Discovery {
        api: Api,
        rejected: bool,
    },
    /// `--application-ports`: nothing listens on this one.
    Port(u16),
    Draining,
    /// No answer in time.
    AdminSilent,
    /// No connection.
    AdminRefused,
    /// Not what Envoy would say.
    AdminUnclear,
    /// The admin port is another process's.
    AdminForeign(Epoch),
}

/// The APIs whose first update readiness waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Cds,
    Lds,
}

impl Stage {
    #[must_use]
    pub(crate) fn is_ready(self) -> bool {
        self == Self::Ready
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Certificates => f.write_str("waiting for certificates"),
            Self::NoProxy => f.write_str("no proxy runs"),
            Self::NotLive(epoch) => write!(f, "{epoch} is not LIVE"),
            Self::Workers(epoch) => write!(f, "workers of {epoch} have not started"),
            Self::Discovery { api, rejected } => {
                let api = match api {
                    Api::Cds => "CDS",
                    Api::Lds => "LDS",
                };
                if *rejected {
                    write!(f, "{api}: every update was rejected")
                } else {
                    write!(f, "{api}: no update yet (is the control plane there?)")
                }
            }
            Self::Port(port) => write!(f, "no listener on application port {port}"),
            Self::Draining => f.write_str("draining"),
            Self::AdminSilent => f.write_str("admin port does not answer"),
            Self::AdminRefused => f.write_str("admin port refuses connections"),
            Self::AdminUnclear => f.write_str("admin port gives no usable answer"),
            Self::AdminForeign(epoch) => write!(f, "admin port is not the one of {epoch}"),
        }
    }
}

/// What the admin port said about readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Facts(Facts),
    Refused,
    Silent,
    Unclear,
}

/// Readiness as Envoy's stats tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The answer is of the epoch that was asked for.
    pub(crate) ours: bool,
    /// The workers have started.
    pub(crate) workers: bool,
    /// `None`: Envoy does not use this API.
    pub(crate) cds: Option<Updates>,
    pub(crate) lds: Option<Updates>,
    /// The first of `--application-ports` that is missed.
    pub(crate) missing_port: Option<u16>,
}

/// What became of an API's updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Updates {
    pub(crate) accepted: bool,
    pub(crate) rejected: bool,
}

/// How to answer a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Answer(Stage),
    /// Ask this epoch's admin port first.
    Ask(Epoch),
}

/// What was found last, for the epoch that it was found of.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    found: Option<(Epoch, Stage)>,
}

impl Readiness {
    /// What is known without the admin port, or whose to ask.
    #[must_use]
    pub(crate) fn plan(&self, snapshot: &Snapshot<'_>) -> Plan {
        match snapshot.state {
            AgentState::Draining | AgentState::Stopping => return Plan::Answer(Stage::Draining),
            AgentState::Starting | AgentState::Live | AgentState::Restarting => {}
        }
        if snapshot.waits_for_certificates {
            return Plan::Answer(Stage::Certificates);
        }
        let Some(newest) = snapshot.newest else {
            return Plan::Answer(Stage::NoProxy);
        };
        if let Some(parent) = snapshot.older.filter(|older| older.serves()) {
            // A hand-over: whose the admin port is nobody knows.
            return Plan::Answer(self.known(parent.epoch));
        }
        if newest.is_stopping() {
            return Plan::Answer(Stage::NotLive(newest.epoch));
        }
        Plan::Ask(newest.epoch)
    }

    /// The admin port of `asked` has spoken, or has not; the core may have moved on meanwhile.
    pub(crate) fn conclude(
        &mut self,
        snapshot: &Snapshot<'_>,
        asked: Epoch,
        heard: Heard,
    ) -> Stage {
        let newest = match (self.plan(snapshot), snapshot.newest) {
            (Plan::Answer(stage), _) => return stage,
            (Plan::Ask(epoch), Some(newest)) if epoch == asked => newest,
            (Plan::Ask(epoch), _) => return Stage::NotLive(epoch),
        };
        let stage = match heard {
            Heard::Facts(facts) => judge(newest, facts),
            Heard::Refused if newest.state == State::Starting => Stage::NotLive(asked),
            Heard::Refused if newest.admin_gone => return self.known(asked),
            Heard::Refused => Stage::AdminRefused,
            Heard::Silent => Stage::AdminSilent,
            Heard::Unclear => Stage::AdminUnclear,
        };
        if matches!(heard, Heard::Facts(_)) {
            self.found = Some((asked, stage));
        }
        stage
    }

    /// An epoch that is LIVE counts as ready, unless more was found out about it.
    fn known(&self, epoch: Epoch) -> Stage {
        self.found
            .filter(|(known, _)| *known == epoch)
            .map_or(Stage::Ready, |(_, stage)| stage)
    }
}

/// The stages in the order in which a proxy goes through them; the first that is missing is named.
fn judge(newest: &Process, facts: Facts) -> Stage {
    let epoch = newest.epoch;
    if !facts.ours {
        return match newest.state {
            State::Starting => Stage::NotLive(epoch),
            State::Live | State::Draining | State::Stopping(_) => Stage::AdminForeign(epoch),
        };
    }
    for (api, updates) in [(Api::Cds, facts.cds), (Api::Lds, facts.lds)] {
        if let Some(Updates {
            accepted: false,
            rejected,
        }) = updates
        {
            return Stage::Discovery { api, rejected };
        }
    }
    match facts.missing_port {
        _ if !facts.workers => Stage::Workers(epoch),
        Some(port) => Stage::Port(port),
        None => Stage::Ready,
    }
}
