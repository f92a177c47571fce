//! Keeps webhook configurations: looks at each as it changes, and mends what is another's.
//!
//! Every replica does so, and none leads: what they write is the same, or grows to the same. The one thing that must not
//! happen is that two who want different things write as fast as they can, so a configuration that was mended a few times
//! within a minute waits before it is mended again.

mod goal;
mod one;
mod told;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bundle::Bundle;
use crate::connect::Cluster;
use crate::ledger::{Failed, Ledger, Standing};
use crate::listed::{Listed, Pace, Selection, Source as _};
use crate::store::store;
use crate::validation::{Refusal, Validation};
use crate::webhook::WebhookConfiguration;

use goal::Goal;
use one::One;

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
    configurations: Vec<String>,
    goal: Goal,
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
    /// The bundle alone is kept, in configurations that somebody else makes.
    #[must_use]
    pub fn new(order: Order, pace: Pace) -> (Self, Handle) {
        let goal = Goal::Bundle { entry: order.entry };
        Self::of(order.configurations, goal, pace)
    }

    /// A configuration that is made where there is none.
    #[must_use]
    pub fn of_validation(validation: Validation, pace: Pace) -> (Self, Handle) {
        let configurations = vec![validation.name.clone()];
        Self::of(configurations, Goal::Validation(validation), pace)
    }

    fn of(configurations: Vec<String>, goal: Goal, pace: Pace) -> (Self, Handle) {
        let (sender, receiver) = watch::channel((0, None));
        let ledger = Ledger::new(&configurations);
        let handle = Handle {
            bundle: sender,
            ledger: ledger.clone(),
        };
        let keeper = Self {
            configurations,
            goal,
            pace,
            bundle: receiver,
            ledger,
        };
        (keeper, handle)
    }

    /// Keeps, for as long as it is polled. Ends only when there is nothing to keep.
    pub async fn run(self, cluster: Cluster) {
        let (seen, refused) = watch::channel(false);
        let mut kept = JoinSet::new();
        for name in &self.configurations {
            let selection = Selection {
                name: Some(name.clone()),
                ..Selection::default()
            };
            let source =
                Listed::new(cluster.clone(), selection, self.pace).of(self.goal.resource());
            let (writer, reader) = store::<WebhookConfiguration>();
            let one = One::new(
                &self,
                cluster.clone(),
                name.clone(),
                reader,
                refused.clone(),
            );
            kept.spawn(async move {
                tokio::select! {
                    never = source.run(writer) => match never {},
                    () = one.run() => {}
                }
            });
        }
        let watching = async {
            if let Some(refusal) = self.refusal(&cluster) {
                refusal.run(seen).await;
            }
        };
        tokio::join!(watching, async {
            while kept.join_next().await.is_some() {}
        });
    }

    /// Who looks whether the webhook was seen to refuse, where somebody has to know.
    fn refusal(&self, cluster: &Cluster) -> Option<Refusal> {
        match &self.goal {
            Goal::Validation(validation) if !validation.unregistered => Some(Refusal {
                cluster: cluster.clone(),
                service: validation.service.clone(),
                within: self.pace.request,
                configuration: validation.name.clone(),
                ledger: self.ledger.clone(),
            }),
            Goal::Validation(_) | Goal::Bundle { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
