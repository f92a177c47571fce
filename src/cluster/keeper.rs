//! Keeps a CA bundle in webhook configurations: looks at each as it changes, and mends what is another's.
//!
//! Every replica does so, and none leads: what they write is the same, or grows to the same. The one thing that must not
//! happen is that two who want different things write as fast as they can, so a configuration that was mended a few times
//! within a minute waits before it is mended again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::core::Request;
use kube::core::params::{GetParams, Patch, PatchParams};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::bundle::Bundle;
use crate::connect::Cluster;
use crate::decide::{Decision, decide};
use crate::failure::{Action, Cause, Failure};
use crate::kind::{Key, Kind as _};
use crate::ledger::{Failed, Ledger, Standing, State};
use crate::listed::{Listed, Pace, Selection, Source as _};
use crate::repeats::{Repeats, times};
use crate::store::{Reader, store};
use crate::webhook::WebhookConfiguration;

/// Certificates expire without anybody saying so.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
/// So many patches within a minute are sent at once; the next ones wait, each twice as long as the one before.
const AT_ONCE: usize = 3;
const RECENT: Duration = Duration::from_secs(60);
/// Conflicts are tried again at once, but not for ever without a pause.
const CONFLICTS: u32 = 5;

/// What is kept where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Names of MutatingWebhookConfigurations.
    pub configurations: Vec<String>,
    /// Entries of this name, or of names that end in a dot and this.
    pub entry: String,
}

/// A bundle, and which one it is of all there were.
type Numbered = (u64, Option<Arc<Bundle>>);

#[derive(Debug)]
pub struct Keeper {
    order: Order,
    pace: Pace,
    bundle: watch::Receiver<Numbered>,
    ledger: Ledger,
}

/// By which a keeper is told what to keep, and asked how it stands.
#[derive(Clone, Debug)]
pub struct Handle {
    bundle: watch::Sender<Numbered>,
    ledger: Ledger,
}

impl Handle {
    /// From now on this is to be in the configurations.
    pub fn keep(&self, bundle: Bundle) {
        self.bundle.send_modify(|(number, kept)| {
            *number = number.saturating_add(1);
            *kept = Some(Arc::new(bundle));
        });
    }

    /// What should be kept could not be read: what was kept before is kept on.
    pub fn cannot_load(&self) {
        self.ledger
            .each(|standing| standing.failed(Failed::LoadCaBundle));
    }

    /// Whether the bundle that was last given is in every entry of every configuration.
    #[must_use]
    pub fn held(&self) -> bool {
        let number = self.bundle.borrow().0;
        let mut held = true;
        self.ledger.each(|standing| held &= standing.holds(number));
        held && number > 0
    }

    #[must_use]
    pub fn standings(&self) -> Vec<Standing> {
        self.ledger.all()
    }
}

impl Keeper {
    #[must_use]
    pub fn new(order: Order, pace: Pace) -> (Self, Handle) {
        let (sender, receiver) = watch::channel((0, None));
        let ledger = Ledger::new(&order.configurations);
        let handle = Handle {
            bundle: sender,
            ledger: ledger.clone(),
        };
        let keeper = Self {
            order,
            pace,
            bundle: receiver,
            ledger,
        };
        (keeper, handle)
    }

    /// Keeps, for as long as it is polled. Ends only when there is nothing to keep.
    pub async fn run(self, cluster: Cluster) {
        let mut kept = JoinSet::new();
        for name in &self.order.configurations {
            let selection = Selection {
                name: Some(name.clone()),
                ..Selection::default()
            };
            let source = Listed::new(cluster.clone(), selection, self.pace);
            let (writer, reader) = store();
            let one = One {
                cluster: cluster.clone(),
                name: name.clone(),
                entry: self.order.entry.clone(),
                bundle: self.bundle.clone(),
                ledger: self.ledger.clone(),
                reader,
                pace: self.pace,
                backoff: Backoff::new(self.pace.bounds()),
                again: None,
                recent: VecDeque::new(),
                repeats: Repeats::default(),
                answered: None,
            };
            kept.spawn(async move {
                tokio::select! {
                    never = source.run(writer) => match never {},
                    () = one.run() => {}
                }
            });
        }
        while kept.join_next().await.is_some() {}
    }
}

/// One configuration.
struct One {
    cluster: Cluster,
    name: String,
    entry: String,
    bundle: watch::Receiver<Numbered>,
    ledger: Ledger,
    reader: Reader<WebhookConfiguration>,
    pace: Pace,
    backoff: Backoff,
    /// When to look even if nothing is heard.
    again: Option<Instant>,
    /// When it was patched of late.
    recent: VecDeque<Instant>,
    repeats: Repeats,
    /// What the store showed when a patch was answered, and the answer, which is newer.
    answered: Option<(Option<Arc<WebhookConfiguration>>, WebhookConfiguration)>,
}

impl One {
    async fn run(mut self) {
        loop {
            let again = self.again.unwrap_or_else(|| Instant::now() + LOOK_AGAIN);
            tokio::select! {
                changed = self.reader.changed() => if changed.is_none() { return },
                changed = self.bundle.changed() => if changed.is_err() { return },
                () = sleep_until(again) => self.again = None,
            }
            // A failure waits for its time, whatever is heard meanwhile: an API server that refuses is not asked faster
            // because others change the object.
            if self.again.is_none_or(|again| again <= Instant::now()) {
                self.again = None;
                self.look().await;
            }
        }
    }

    fn key(&self) -> Key {
        Key::new("", &self.name)
    }

    /// What is known last: what a patch was answered with, until the watch says something newer.
    fn known(&mut self) -> Option<WebhookConfiguration> {
        let shown = self.reader.get(&self.key());
        if let Some((before, answer)) = &self.answered {
            if *before == shown {
                return Some(answer.clone());
            }
            self.answered = None;
        }
        shown.map(|shown| (*shown).clone())
    }

    fn note(&self, change: impl FnOnce(&mut Standing)) {
        self.ledger.of(&self.name, change);
    }

    /// Looks, and mends what is to be mended.
    async fn look(&mut self) {
        let (number, Some(bundle)) = self.bundle.borrow().clone() else {
            return;
        };
        let freshness = self.reader.freshness();
        if !freshness.listed {
            self.note(|standing| standing.error = freshness.stale.map(|(_, why)| why));
            return;
        }
        let Some(configuration) = self.known() else {
            self.missing();
            return;
        };
        let mut conflicts = 0;
        let mut next = Some(configuration);
        while let Some(configuration) = next.take() {
            match decide(&configuration, &self.entry, &bundle, SystemTime::now()) {
                Decision::NoEntry => self.no_entry(),
                Decision::Held { entries } => {
                    self.held(
                        number,
                        entries,
                        freshness.stale.as_ref().map(|(_, why)| why),
                    );
                }
                Decision::Patch { entries, patch } => {
                    self.note(|standing| standing.entries = entries);
                    if self.too_often() {
                        return;
                    }
                    next = match self.send(&patch).await {
                        Ok(answer) => Some(answer),
                        Err(failure) => self.not_sent(failure, &mut conflicts).await,
                    };
                }
            }
        }
    }

    fn missing(&mut self) {
        let words = format!(
            "there is no {} {}: waiting for it",
            WebhookConfiguration::RESOURCE,
            self.name
        );
        if self.repeats.worth_saying(&words) == Some(1) {
            tracing::warn!("{words}");
            self.note(|standing| standing.failed(Failed::ConfigNotFound));
        }
        self.note(|standing| {
            standing.state = State::Missing;
            standing.entries.clear();
            standing.error = Some(words);
        });
    }

    fn no_entry(&mut self) {
        let words = format!(
            "{} has no entry named {} or ending in .{}: waiting for one",
            self.name, self.entry, self.entry
        );
        if self.repeats.worth_saying(&words) == Some(1) {
            tracing::error!("{words}");
            self.note(|standing| standing.failed(Failed::EntryNotFound));
        }
        self.note(|standing| {
            standing.state = State::NoEntry;
            standing.entries.clear();
            standing.error = Some(words);
        });
    }

    fn held(&mut self, number: u64, entries: Vec<String>, stale: Option<&String>) {
        if self.repeats.forget() {
            tracing::info!("{} has its CA bundle", self.name);
        }
        self.note(|standing| {
            standing.hold(number);
            standing.entries = entries;
            // It was so when it was last seen.
            standing.error = stale.cloned();
        });
    }

    /// Whether it was mended so often of late that it must wait, and until when then.
    fn too_often(&mut self) -> bool {
        let now = Instant::now();
        while self
            .recent
            .front()
            .is_some_and(|sent| now.duration_since(*sent) > RECENT)
        {
            self.recent.pop_front();
        }
        let Some(last) = self.recent.back() else {
            return false;
        };
        let Some(more) = self.recent.len().checked_sub(AT_ONCE) else {
            return false;
        };
        let doubled = 2_u32.saturating_pow(u32::try_from(more).unwrap_or(u32::MAX));
        let wait = self.pace.first.saturating_mul(doubled).min(self.pace.most);
        let again = *last + wait;
        if again <= now {
            return false;
        }
        let words = format!(
            "the CA bundle in {} is changed again and again by somebody else",
            self.name
        );
        if let Some(count) = self.repeats.worth_saying(&words) {
            tracing::warn!("{words}{}", times(count));
        }
        self.note(|standing| {
            standing.state = State::Failing;
            standing.error = Some(words);
        });
        self.again = Some(again);
        true
    }

    async fn send(&mut self, patch: &Value) -> Result<WebhookConfiguration, Failure> {
        let retry = self.backoff.waited();
        self.note(|standing| {
            standing.attempts = standing.attempts.saturating_add(1);
            standing.retries = standing.retries.saturating_add(u64::from(retry));
        });
        let action = self.action("patch");
        let request = Request::new(WebhookConfiguration::RESOURCE.path(None)).patch(
            &self.name,
            &PatchParams::default(),
            &Patch::Strategic(patch),
        );
        let shown = self.reader.get(&self.key());
        let exchange = self.cluster.exchange(&action, self.pace.request);
        let answer: WebhookConfiguration = exchange.json(request).await?;
        self.backoff.reset();
        self.recent.push_back(Instant::now());
        tracing::info!("wrote the CA bundle into {}", self.name);
        self.answered = Some((shown, answer.clone()));
        Ok(answer)
    }

    /// What to look at next, after a patch that failed.
    async fn not_sent(
        &mut self,
        failure: Failure,
        conflicts: &mut u32,
    ) -> Option<WebhookConfiguration> {
        let mut failure = failure;
        if failure.code() == Some(409) && *conflicts < CONFLICTS {
            *conflicts += 1;
            let _counted = self.backoff.next(0.0);
            let action = self.action("get");
            let request = Request::new(WebhookConfiguration::RESOURCE.path(None))
                .get(&self.name, &GetParams::default());
            let exchange = self.cluster.exchange(&action, self.pace.request);
            match exchange.json::<WebhookConfiguration>(request).await {
                Ok(newer) => return Some(newer),
                Err(other) => failure = other,
            }
        }
        let mut wait = self.backoff.next(fastrand::f64());
        if let Cause::Status {
            after: Some(after), ..
        } = failure.cause
        {
            wait = wait.max(after);
        }
        self.again = Some(Instant::now() + wait);
        let words = failure.to_string();
        if let Some(count) = self.repeats.worth_saying(&words) {
            tracing::error!("{words}{}: trying again", times(count));
        }
        self.note(|standing| {
            standing.failed(Failed::Update);
            standing.state = State::Failing;
            standing.error = Some(words);
        });
        None
    }

    fn action(&self, verb: &'static str) -> Action {
        Action {
            verb,
            resource: WebhookConfiguration::RESOURCE.to_string(),
            name: Some(self.name.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
