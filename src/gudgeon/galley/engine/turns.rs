//! The work on the state, in turns beside the event loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinError;
use tracing::warn;

use super::{EngineState, GalleyEngine, SNAPSHOT};
use crate::galley::processing::Progress;
use crate::galley::state_snapshot::Publish;
use crate::secrets::redact_text;

/// The time after which a long work lets others have a turn. Chosen: events wait no longer than the loop may work at a stretch.
pub(in crate::galley) const TURN: Duration = Duration::from_millis(20);

/// Publishes that are remembered, for the page.
const REMEMBERED: usize = 200;

/// Log lines about generated objects at most.
const MAX_LINES: usize = 100;

/// The time of the next turn of [`GalleyEngine::run`].
pub(super) enum Next {
    Now,
    /// `None`: at the next change.
    At(Option<Duration>),
}

impl GalleyEngine {
    /// Does a job on the state beside the event loop, in its turn.
    pub(super) async fn in_turn<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> T {
        let turn = Arc::clone(&self.turns).lock_owned().await;
        let engine = Arc::clone(self);
        let job = move || {
            // The turn is the job's: its caller may be gone before it ends.
            let _turn = turn;
            job(&engine)
        };
        match tokio::task::spawn_blocking(job)
            .await
            .map_err(JoinError::try_into_panic)
        {
            Ok(done) => done,
            // The state is not what it should be, so this ends the role.
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime is at its end.
            Err(Err(_cancelled)) => std::future::pending().await,
        }
    }

    /// Does a turn of the session's work.
    pub(super) fn work(&self, state: &mut EngineState, now: Duration) -> Progress {
        let Some(processing) = &mut state.processing else {
            return Progress::Complete;
        };
        let begun = Instant::now();
        let is_over = || begun.elapsed() >= self.settings.turn;
        let progress = processing.work(now, &mut state.publisher, &is_over);
        // A session that changes all the time is never complete, and is published all the same.
        let opens = processing.has_generated_all() && std::mem::take(&mut state.is_opening);
        if opens {
            state.publisher.open(now);
        }
        if (opens || progress == Progress::Complete) && processing.take_news() {
            log_findings(state);
        }
        progress
    }

    /// Works and publishes snapshots when they are due, for ever.
    pub(in crate::galley) async fn run(self: Arc<Self>) {
        loop {
            let deadline = match self.in_turn(Self::turn).await {
                Next::Now => continue,
                Next::At(deadline) => deadline,
            };
            let due = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(self.clock.instant(at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.wake.notified() => {}
                () = due => {}
            }
        }
    }

    /// Works for a turn, and publishes the snapshots that are due. Returns the time of the next turn.
    pub(super) fn turn(&self) -> Next {
        let mut state = self.state();
        let now = self.clock.now();
        match self.work(&mut state, now) {
            // An event is published whole: a half of it may have the routes of a subset, say, that the other half removes.
            Progress::Applying => Next::Now,
            Progress::Generating => {
                // Other objects do not wait for the end of this work.
                self.publish(&mut state, now);
                Next::Now
            }
            Progress::Complete => Next::At(self.publish(&mut state, now)),
        }
    }

    /// Publishes the snapshots that are due now. Returns the time of the next ones.
    fn publish(&self, state: &mut EngineState, now: Duration) -> Option<Duration> {
        for published in state.publisher.due(now) {
            let group = published.snapshot.group();
            self.metrics.published(published.due.count);
            if state.publishes.len() >= REMEMBERED {
                state.publishes.pop_front();
            }
            state.publishes.push_back(Publish {
                group,
                at: now,
                changes: published.due.count,
                waited: now.saturating_sub(published.due.since),
            });
            *state.counts.entry(group).or_default() += 1;
            self.out
                .send_modify(|snapshots| snapshots.set(published.snapshot));
        }
        if state.publisher.is_ready() {
            self.readiness.has(SNAPSHOT);
        }
        state.publisher.deadline()
    }
}

/// Logs findings about generated objects, each once.
fn log_findings(state: &mut EngineState) {
    let Some(processing) = &state.processing else {
        return;
    };
    let origins = &state.report.ingresses;
    let refused = processing.refused(origins).map(|one| one.line());
    let warned = processing.warned(origins).map(|one| one.line());
    let lines: BTreeMap<_, _> = refused.chain(warned).take(MAX_LINES).collect();
    let is_new = |fault: &String| !state.logged.contains_key(fault);
    for (_, line) in lines.iter().filter(|(fault, _)| is_new(fault)) {
        warn!("{}", redact_text(line));
    }
    state.logged = lines;
}
