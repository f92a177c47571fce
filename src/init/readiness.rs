//! Whether the proxy is ready, and if not, which stage is missing. Pure.
//!
//! The core's own knowledge decides first; where it is not enough, the admin port of the serving epoch is asked, once for
//! all probes that wait. An epoch that was found ready stays so during a hand-over: its admin port belongs to its child
//! from some moment on.

#![forbid(unsafe_code)]

use std::fmt;

use crate::supervisor::{AgentState, Epoch, Process, ProcessId, Snapshot, State};

/// The stage that is missing, or that none is.
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

/// The admin port's answer about readiness.
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
    pub(crate) same_epoch: bool,
    /// The workers have started.
    pub(crate) workers: bool,
    /// `None`: Envoy does not use this API.
    pub(crate) cds: Option<Updates>,
    pub(crate) lds: Option<Updates>,
    /// The first of `--application-ports` that is missed.
    pub(crate) missing_port: Option<u16>,
}

impl Facts {
    /// Returns true if they show that the epoch that was asked for is LIVE.
    #[must_use]
    pub(crate) const fn show_live(self) -> bool {
        self.same_epoch && self.workers
    }
}

/// The state of an API's updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Updates {
    pub(crate) accepted: bool,
    pub(crate) rejected: bool,
}

/// The way to answer a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Answer(Stage),
    /// Ask this process's admin port first.
    Ask(ProcessId),
}

/// The last finding about a LIVE process. What one lacked before is not kept: LIVE says that it has come, and no probe may
/// come in time to find that out.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    found: Option<(ProcessId, Stage)>,
}

impl Readiness {
    /// Returns the answer if it is known without the admin port, or else the epoch to ask.
    #[must_use]
    pub(crate) fn plan(&self, snapshot: &Snapshot<'_>) -> Plan {
        match snapshot.state {
            AgentState::Draining | AgentState::Stopping => return Plan::Answer(Stage::Draining),
            AgentState::Starting | AgentState::Live | AgentState::Restarting | AgentState::Idle => {
            }
        }
        if snapshot.waits_for_certificates {
            return Plan::Answer(Stage::Certificates);
        }
        let Some(newest) = snapshot.newest else {
            return Plan::Answer(Stage::NoProxy);
        };
        if let Some(parent) = snapshot.older.filter(|older| older.serves()) {
            // A hand-over: parent or child may own the admin port.
            return Plan::Answer(self.known(parent.id()));
        }
        if newest.is_stopping() {
            return Plan::Answer(Stage::NotLive(newest.epoch));
        }
        Plan::Ask(newest.id())
    }

    /// The admin port of `asked` has spoken, or has not; the core may have moved on meanwhile. `None`: another process
    /// serves by now, and has to be asked.
    pub(crate) fn conclude(
        &mut self,
        snapshot: &Snapshot<'_>,
        asked: ProcessId,
        heard: Heard,
    ) -> Option<Stage> {
        let newest = match (self.plan(snapshot), snapshot.newest) {
            (Plan::Answer(stage), _) => return Some(stage),
            (Plan::Ask(process), Some(newest)) if process == asked => newest,
            (Plan::Ask(_), _) => return None,
        };
        let stage = match heard {
            Heard::Facts(facts) => judge(newest, facts),
            Heard::Refused if newest.state == State::Starting => Stage::NotLive(asked.epoch),
            Heard::Refused if newest.admin_gone => return Some(self.known(asked)),
            Heard::Refused => Stage::AdminRefused,
            Heard::Silent => Stage::AdminSilent,
            Heard::Unclear => Stage::AdminUnclear,
        };
        let is_live = newest.state == State::Live;
        if matches!(heard, Heard::Facts(facts) if is_live || facts.show_live()) {
            self.found = Some((asked, stage));
        }
        Some(stage)
    }

    /// A process that is LIVE counts as ready, unless more was found out about it.
    fn known(&self, process: ProcessId) -> Stage {
        self.found
            .filter(|(known, _)| *known == process)
            .map_or(Stage::Ready, |(_, stage)| stage)
    }
}

/// The stages in the order in which a proxy goes through them; the first that is missing is named.
fn judge(newest: &Process, facts: Facts) -> Stage {
    let epoch = newest.epoch;
    if !facts.same_epoch {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::stories::Story;
    use crate::supervisor::{Event, Signal};

    fn heard(missing_port: Option<u16>) -> Heard {
        Heard::Facts(Facts {
            same_epoch: true,
            workers: true,
            missing_port,
            ..Facts::default()
        })
    }

    /// The process whose admin port is asked now.
    fn asked(readiness: &Readiness, story: &Story) -> ProcessId {
        match readiness.plan(&story.view().snapshot) {
            Plan::Ask(process) => process,
            Plan::Answer(stage) => panic!("{stage} is known already"),
        }
    }

    #[test]
    fn a_probe_in_flight_across_a_hand_over_is_asked_again() {
        let (mut story, mut readiness) = (Story::new(&[]), Readiness::default());
        story.live(100, 0);
        let parent = asked(&readiness, &story);
        story.change(1_000, 2);
        story.live(11_500, 1);
        for heard in [Heard::Silent, Heard::Refused, heard(None)] {
            let stage = readiness.conclude(&story.view().snapshot, parent, heard);
            assert_eq!(stage, None, "{heard:?} is about another process");
        }
        let child = asked(&readiness, &story);
        let stage = readiness.conclude(&story.view().snapshot, child, heard(None));
        assert_eq!(stage, Some(Stage::Ready));
    }

    /// The parent was 503 for all of the hand-over, and after a child that failed late, though it served.
    #[test]
    fn what_a_process_lacked_before_it_was_live_does_not_count_in_a_hand_over() {
        let updates = Some(Updates::default());
        for (workers, expected) in [
            (false, Stage::Ready),
            // Envoy starts without its control plane after 15 s: that is known of the LIVE process.
            (
                true,
                Stage::Discovery {
                    api: Api::Lds,
                    rejected: false,
                },
            ),
        ] {
            let (mut story, mut readiness) = (Story::new(&[]), Readiness::default());
            let heard = Heard::Facts(Facts {
                same_epoch: true,
                workers,
                lds: updates,
                ..Facts::default()
            });
            let parent = asked(&readiness, &story);
            let stage = readiness.conclude(&story.view().snapshot, parent, heard);
            assert!(stage.is_some_and(|stage| !stage.is_ready()), "{stage:?}");
            story.live(1_000, 0);
            story.event(2_000, &Event::Signalled(Signal::Hangup));
            let plan = readiness.plan(&story.view().snapshot);
            assert_eq!(plan, Plan::Answer(expected), "workers: {workers}");
        }
    }

    #[test]
    fn findings_about_a_process_do_not_hold_for_the_next_with_its_number() {
        let (mut story, mut readiness) = (Story::new(&[]), Readiness::default());
        story.live(100, 0);
        let first = asked(&readiness, &story);
        let stage = readiness.conclude(&story.view().snapshot, first, heard(Some(8080)));
        assert_eq!(stage, Some(Stage::Port(8080)));
        story.exited(1_000, 0, crate::supervisor::ExitStatus::Signal(11));
        story.live(1_500, 0);
        assert_ne!(asked(&readiness, &story), first);
        // A hand-over: what is known of the parent counts.
        story.change(2_000, 2);
        let plan = readiness.plan(&story.view().snapshot);
        assert_eq!(plan, Plan::Answer(Stage::Ready));
    }
}
